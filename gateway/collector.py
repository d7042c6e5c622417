"""Python's cyclic garbage collector, as a gateway sets it."""

import gc

#: Objects, and then collections of the generation below, between two collections of each generation.
_COLLECT = (20_000, 20, 50)


def calm_collector() -> None:
    """What has been imported stays: looking through it again and again made pauses that every stream could see.

    Requests are freed by their reference counts; what they leave in cycles is little and may gather for a while.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_COLLECT)
