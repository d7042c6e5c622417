"""Joining the legs into one answer (B-11, B-12, B-15, B-18). Pure."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.request.answer import Piece
from gateway.request.merge import Merge, MergeError, Origin
from proto.work import FinishReason, PrefillDone, SequenceDelta, TokenLogprobs

answers = st.lists(st.integers(0, 300), min_size=1, max_size=40)


def merge(limit: int = 1000, logprobs: bool = False, origin: Origin | None = None) -> Merge:
    return Merge(0, limit, logprobs, origin or Origin())


def entry(token: int) -> TokenLogprobs:
    return TokenLogprobs((token,), (-0.5,), (1,))


def entries(tokens: tuple[int, ...]) -> tuple[TokenLogprobs, ...]:
    return tuple(entry(token) for token in tokens)


def done(*tokens: int, cached: int = 0, **more: Any) -> PrefillDone:
    return PrefillDone(tokens, None, FinishReason.LENGTH, cached_tokens=cached, **more)


def pieces_of(
    tokens: list[int], cuts: list[int], carried: int, origin: Origin, logprobs: bool
) -> tuple[list[Piece], Merge]:
    """An answer of which the first `carried` tokens come from the prefill leg and the rest in arbitrary deltas."""
    joined = merge(len(tokens), logprobs, origin)
    pieces = [joined.carry(done(token, logprobs=entries((token,))), None) for token in tokens[:carried]]
    rest = tokens[carried:]
    edges = sorted({min(cut, len(rest)) for cut in cuts} | {0, len(rest)})
    for start, end in pairwise(edges):
        part = tuple(rest[start:end])
        finish = FinishReason.STOP if end == len(rest) else None
        piece = joined.add(SequenceDelta(part, entries(part) if logprobs else (), finish, cached_tokens=99))
        pieces += [piece] if piece else []
    return pieces, joined


@given(answers, st.lists(st.integers(0, 40), max_size=8), st.integers(0, 3), st.booleans())
def test_whatever_the_split_the_answer_is_the_same(
    tokens: list[int], cuts: list[int], carried: int, logprobs: bool
) -> None:
    origin = Origin()
    origin.learn(32, ())
    pieces, joined = pieces_of(tokens, cuts, min(carried, len(tokens) - 1), origin, logprobs)
    assert [token for piece in pieces for token in piece.tokens] == tokens == joined.tokens
    assert [piece.first for piece in pieces] == [True] + [False] * (len(pieces) - 1)
    assert [piece.finish for piece in pieces if piece.finish] == [FinishReason.STOP]
    assert pieces[-1].finish is FinishReason.STOP
    assert joined.ended
    assert [piece.cached_tokens for piece in pieces if piece.first] == [32]  # B-11: never decode's 99
    for piece in pieces:
        assert [each.token_ids[0] for each in piece.logprobs] == (list(piece.tokens) if logprobs else [])


@given(answers, st.integers(1, 41), st.lists(st.integers(0, 40), max_size=8), st.booleans(), st.booleans())
def test_wherever_it_is_handed_off_the_answer_is_the_same(
    tokens: list[int], first: int, cuts: list[int], logprobs: bool, stops: bool
) -> None:
    """The first `first` tokens by the prefill leg, both legs in arbitrary parts; it ends by a stop, or at its limit."""
    limit = len(tokens) + (5 if stops else 0)
    joined = merge(limit, logprobs)
    begun, rest = tokens[:first], tokens[first:]
    end = FinishReason.STOP if stops else FinishReason.LENGTH
    pieces = []
    edges = sorted({min(cut, len(begun)) for cut in cuts} | {0, len(begun)})
    for start, stop in pairwise(edges):
        part = tuple(begun[start:stop])
        last = (FinishReason.LENGTH if rest else end) if stop == len(begun) else None
        more = entries(part) if logprobs else ()
        pieces.append(joined.begin(PrefillDone(part, None, last, more, cached_tokens=16)))
    assert joined.ended == (not rest)
    edges = sorted({min(cut, len(rest)) for cut in cuts} | {0, len(rest)})
    for start, stop in pairwise(edges):
        part = tuple(rest[start:stop])
        more = entries(part) if logprobs else ()
        pieces.append(joined.add(SequenceDelta(part, more, end if stop == len(rest) else None, cached_tokens=99)))
    shown = [piece for piece in pieces if piece is not None]
    assert [token for piece in shown for token in piece.tokens] == tokens == joined.tokens
    assert [piece.first for piece in shown] == [True] + [False] * (len(shown) - 1)
    assert [piece.finish for piece in shown if piece.finish] == [end]
    assert joined.finish is end
    assert shown[0].cached_tokens == 16
    for piece in shown:
        assert [each.token_ids[0] for each in piece.logprobs] == (list(piece.tokens) if logprobs else [])


def test_a_prefill_leg_that_is_aborted_or_too_long_is_no_answer() -> None:
    with pytest.raises(MergeError, match="aborted"):
        merge().begin(PrefillDone((1,), None, FinishReason.ABORT))
    with pytest.raises(MergeError, match="3 tokens, 2 were asked for"):
        merge(limit=2).begin(PrefillDone((1, 2, 3), None))


def test_after_the_text_layer_has_stopped_it_a_prefill_leg_shows_nothing() -> None:
    one = merge()
    one.begin(PrefillDone((1,), None))
    one.stop()
    assert one.begin(PrefillDone((2,), None)) is None
    assert one.tokens == [1]


def test_b11_the_first_report_of_cached_tokens_stands() -> None:
    origin = Origin()
    first, second = merge(origin=origin), merge(origin=origin)
    one = first.add(SequenceDelta((1,), cached_tokens=16))
    other = second.add(SequenceDelta((2,), cached_tokens=48))
    assert one is not None
    assert other is not None
    assert (one.cached_tokens, other.cached_tokens) == (16, 16)


def test_b07_prompt_logprobs_come_with_the_first_piece_of_every_answer() -> None:
    origin, prompt = Origin(), (None, entry(4))
    origin.learn(0, prompt)
    for joined in (merge(origin=origin), merge(origin=origin)):
        first = joined.add(SequenceDelta((1,)))
        later = joined.add(SequenceDelta((2,)))
        assert first is not None
        assert later is not None
        assert (first.prompt_logprobs, later.prompt_logprobs) == (prompt, ())


def test_an_empty_delta_shows_nothing() -> None:
    joined = merge()
    assert joined.add(SequenceDelta(())) is None
    piece = joined.add(SequenceDelta((), finish=FinishReason.LENGTH))
    assert piece == Piece(0, (), finish=FinishReason.LENGTH, first=True)


def test_nothing_follows_the_end() -> None:
    joined = merge()
    assert joined.add(SequenceDelta((1,), finish=FinishReason.STOP)) is not None
    assert joined.add(SequenceDelta((2,))) is None
    stopped = merge()
    stopped.stop()
    assert stopped.add(SequenceDelta((1,))) is None
    assert stopped.tokens == []


@pytest.mark.parametrize(
    "delta",
    [
        SequenceDelta((1, 2, 3)),
        SequenceDelta((1,), finish=FinishReason.ABORT),
    ],
    ids=["more tokens than asked for", "aborted by the engine"],
)
def test_what_breaks_the_contract_is_not_passed_on(delta: SequenceDelta) -> None:
    with pytest.raises(MergeError):
        merge(limit=2).add(delta)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_b15_logprobs_out_of_step_are_not_passed_on(count: int) -> None:
    with pytest.raises(MergeError):
        merge(logprobs=True).add(SequenceDelta((1, 2), entries(tuple(range(count)))))


def test_logprobs_that_nobody_wanted_are_dropped() -> None:
    piece = merge().add(SequenceDelta((1,), entries((1,))))
    assert piece is not None
    assert piece.logprobs == ()
