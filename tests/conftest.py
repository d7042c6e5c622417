"""What holds for all tests."""

import gc
from collections.abc import Generator

import pytest
from hypothesis import settings

from tests.examples import examples

settings.register_profile("ours", examples())
settings.load_profile("ours")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is imported and collected stays: to go through it again and again for garbage is half of what collecting costs,
    and each process of the tests collects all of them."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
