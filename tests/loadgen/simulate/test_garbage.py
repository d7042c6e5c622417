"""What a simulation asks of Python's collector holds while it runs, and no longer."""

import gc
from collections.abc import Iterator

import pytest

from loadgen.simulate.garbage import seldom_collected


@pytest.fixture(autouse=True)
def as_python_has_it() -> Iterator[None]:
    """Whatever a simulation of another test, which goes on in a thread, has set."""
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield
    gc.set_threshold(*before)


def test_two_simulations_at_once_leave_nothing_behind() -> None:
    before = gc.get_threshold()
    one, other = seldom_collected(), seldom_collected()
    one.__enter__()
    other.__enter__()
    one.__exit__(None, None, None)
    other.__exit__(None, None, None)
    assert gc.get_threshold() == before


def test_the_collector_is_as_it_was_whatever_happens() -> None:
    before = gc.get_threshold()
    with seldom_collected():
        assert gc.get_threshold()[0] > before[0]
    assert gc.get_threshold() == before
    with pytest.raises(KeyboardInterrupt), seldom_collected():
        raise KeyboardInterrupt
    assert gc.get_threshold() == before
