"""Stop strings: found across any split, and never shown in part."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.text.stops import StopMatcher


def feed(stops: tuple[str, ...], pieces: list[str], *, include: bool = False) -> tuple[str, str | None]:
    matcher = StopMatcher(stops, include=include)
    shown = ""
    for piece in pieces:
        shown += matcher.push(piece)
        if matcher.matched is not None:
            return shown, matcher.matched
    return shown + matcher.flush(), None


def expected(stops: tuple[str, ...], text: str) -> tuple[str, str | None]:
    """By definition: the shortest prefix that ends with a stop string decides."""
    for end in range(1, len(text) + 1):
        found = [stop for stop in stops if text[:end].endswith(stop)]
        if found:
            stop = max(found, key=len)
            return text[: end - len(stop)], stop
    return text, None


small = st.text(alphabet="abc", max_size=14)
stop_sets = st.lists(st.text(alphabet="abc", min_size=1, max_size=4), min_size=1, max_size=4).map(tuple)


@given(stops=stop_sets, pieces=st.lists(small, max_size=8))
def test_the_outcome_depends_on_the_text_alone(stops: tuple[str, ...], pieces: list[str]) -> None:
    assert feed(stops, pieces) == expected(stops, "".join(pieces))


@given(stops=stop_sets, pieces=st.lists(small, max_size=8))
def test_no_part_of_a_stop_string_is_ever_shown(stops: tuple[str, ...], pieces: list[str]) -> None:
    final, _ = expected(stops, "".join(pieces))
    matcher = StopMatcher(stops)
    shown = ""
    for piece in pieces:
        shown += matcher.push(piece)
        assert final.startswith(shown)
        if matcher.matched is not None:
            break


def test_text_that_cannot_be_part_of_a_stop_is_not_held_back() -> None:
    matcher = StopMatcher(("\n\nUser:",))
    assert matcher.push("Hello\n") == "Hello"
    assert matcher.push("\nUse") == ""
    assert matcher.push(" it") == "\n\nUse it"


def test_the_stop_string_is_kept_when_asked_for() -> None:
    assert feed(("END",), ["one E", "ND two"], include=True) == ("one END", "END")


@pytest.mark.parametrize(("pieces", "shown"), [(["ab"], "ab"), (["a", "b"], "ab")])
def test_a_stop_completed_before_min_tokens_does_not_count(pieces: list[str], shown: str) -> None:
    matcher = StopMatcher(("ab", "abc"))
    text = "".join(matcher.push(piece, armed=False) for piece in pieces)
    assert matcher.matched is None
    assert text + matcher.push("x") == shown + "x"
    assert matcher.matched is None


def test_a_stop_may_begin_before_min_tokens_and_end_after() -> None:
    matcher = StopMatcher(("\n\n",))
    assert matcher.push("hi\n", armed=False) == "hi"
    assert matcher.push("\nthere") == ""
    assert matcher.matched == "\n\n"
