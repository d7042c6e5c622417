"""How often Python looks for garbage while a simulation runs."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

#: Objects more than before until it looks; every so many looks it looks further back.
_SELDOM = (20_000, 20, 20)


@contextmanager
def seldom_collected() -> Iterator[None]:
    """A simulation makes and drops many objects, hardly any of which refer to each other in a circle: looking for those as
    often as Python does by default took 5 to 7 % of its time. The setting is the process's: of two simulations at once, in
    threads, the first sets it and takes it back.
    """
    before = gc.get_threshold()
    if before == _SELDOM:
        yield
        return
    gc.set_threshold(*_SELDOM)
    try:
        yield
    finally:
        gc.set_threshold(*before)
