"""What modules of this folder share."""

import pytest

from gateway.policy.admission import overrun


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is gained while answers leave, so that figures are round."""
    monkeypatch.setattr(overrun, "LEAVING_STEPS", 0)
