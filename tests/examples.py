"""How many examples and cases tests go through: all in `make test`, a share of them in `make check`."""

import os
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import settings

#: Each run draws others, so that few at a time see as much in the end.
SHARE = float(os.environ.get("TANDEM_TEST_EXAMPLES", "1"))
#: What hypothesis draws when a test does not say.
_DEFAULT = 100


def examples(count: int = _DEFAULT, **more: Any) -> settings:
    """No test fails because its machine is slow, so that none has a deadline."""
    return settings(max_examples=max(1, round(SHARE * count)), deadline=None, **more)


def first(count: int, cases: Iterable[object]) -> list[Any]:
    """The cases of a parameter: the first `count` are quick tests, the others are for `make test`."""
    return [case if at < count else pytest.param(case, marks=pytest.mark.slow) for at, case in enumerate(cases)]
