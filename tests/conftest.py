"""What holds for all tests."""

from hypothesis import settings

# No test fails because its machine is slow.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")
