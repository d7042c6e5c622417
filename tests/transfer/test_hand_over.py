"""Where a running request of the real engine's is cut, without the engine."""

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transfer.nixl.handover import METHOD, cut, teach
from transfer.ticket import boundary_fault

BLOCK, WINDOW = 16, 1_024


def request(prompt: int, came: int, under_way: int = 0, limit: int = 500) -> Any:
    return SimpleNamespace(
        num_prompt_tokens=prompt, num_output_tokens=came, num_output_placeholders=under_way, max_tokens=limit
    )


def test_it_ends_at_its_next_token() -> None:
    assert cut(request(20, 3), BLOCK, WINDOW) == 4


def test_tokens_of_steps_under_way_come_first() -> None:
    assert cut(request(20, 3, under_way=1), BLOCK, WINDOW) == 5


@pytest.mark.parametrize(("came", "tokens"), [(10, 11), (11, 12), (12, 14), (13, 14)])
def test_where_a_block_ends_it_is_one_token_more(came: int, tokens: int) -> None:
    """With 13 tokens 32 of 33 are computed: the reader would need a third block for the last."""
    assert cut(request(20, came), BLOCK, WINDOW) == tokens


def test_what_has_not_begun_or_is_about_to_end_stays() -> None:
    assert cut(request(20, 0), BLOCK, WINDOW) == 0
    assert cut(request(20, 3, limit=4), BLOCK, WINDOW) == 0
    assert cut(request(20, 3, limit=5), BLOCK, WINDOW) == 4
    assert cut(request(20, 3), BLOCK, 24) == 0
    assert cut(request(20, 3), BLOCK, 25) == 4


@given(prompt=st.integers(1, 500), came=st.integers(1, 100), under_way=st.integers(0, 2))
def test_a_reader_never_needs_a_block_that_is_not_there(prompt: int, came: int, under_way: int) -> None:
    tokens = cut(request(prompt, came, under_way, limit=10_000), BLOCK, 10_000)
    computed = prompt + tokens - 1
    assert came + under_way < tokens <= came + under_way + 2
    assert boundary_fault(prompt + tokens, BLOCK, -(-computed // BLOCK)) is None


def test_the_core_learns_to_ask_its_schedulers_connector() -> None:
    class Core:
        def __init__(self) -> None:
            self.asked = list[tuple[Any, int]]()
            connector = SimpleNamespace(hand_over=self._hand_over)
            self.scheduler = SimpleNamespace(connector=connector, requests={"a": "request a"}, max_model_len=7)

        def _hand_over(self, request: Any, window: int) -> bool:
            self.asked.append((request, window))
            return True

    teach(Core)
    core: Any = Core()
    assert getattr(core, METHOD)("a") is True
    getattr(core, METHOD)("unknown")
    assert core.asked == [("request a", 7), (None, 7)]
