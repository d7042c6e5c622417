"""The bounds of a step in vLLM's scheduler, without the engine."""

from types import SimpleNamespace
from typing import Any

from transfer.nixl.step_limit import METHOD, limit, teach


def scheduler(most: int = 2048, longest: int = 0, *, chunked: bool = True) -> Any:
    config = SimpleNamespace(long_prefill_token_threshold=longest, enable_chunked_prefill=chunked)
    return SimpleNamespace(max_num_scheduled_tokens=most, scheduler_config=config)


def bounds(one: Any) -> tuple[int, int]:
    return one.max_num_scheduled_tokens, one.scheduler_config.long_prefill_token_threshold


def test_a_limit_holds_until_the_next_and_none_is_what_was_before() -> None:
    one = scheduler()
    assert limit(one, 512, 480) == 2048
    assert bounds(one) == (512, 480)
    assert limit(one, 1024, 1000) == 2048
    assert bounds(one) == (1024, 1000)
    assert limit(one, 0, 0) == 2048
    assert bounds(one) == (2048, 0)


def test_no_limit_exceeds_what_the_engine_was_started_with() -> None:
    one = scheduler(most=256, longest=128)
    limit(one, 4096, 4000)
    assert bounds(one) == (256, 128)
    limit(one, 64, 0)
    assert bounds(one) == (64, 128)


def test_an_engine_without_chunks_takes_no_limit() -> None:
    """A prompt that is longer than a step would wait for ever."""
    one = scheduler(chunked=False)
    assert limit(one, 64, 64) == 0
    assert bounds(one) == (2048, 0)


def test_the_core_learns_it() -> None:
    class Core:
        def __init__(self) -> None:
            self.scheduler = scheduler()

    teach(Core)
    core = Core()
    assert getattr(core, METHOD)(100, 90) == 2048
    assert bounds(core.scheduler) == (100, 90)
