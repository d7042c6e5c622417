"""Early rejection: what it refuses, for which reason, and until when."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.policy.rejection import Accept, Ask, Bounds, EarlyRejection, Reject, RejectReason
from tests.gateway.policy.fairness.serving import UNHURRIED


@dataclass(frozen=True, slots=True)
class Foreseen:
    """A forecast written down."""

    predicted_ttft_s: float = 1.0
    load: Callable[[float], float] = field(default=lambda t_s: 0.5)

    def decode_load_at(self, t_s: float) -> float:
        return self.load(t_s)


def rejected(answer: Accept | Reject) -> Reject:
    assert isinstance(answer, Reject)
    return answer


def test_what_fits_is_accepted_with_its_numbers() -> None:
    answer = EarlyRejection().before_prefill(Ask(ttft_s=2.0, decode_load=0.25), Foreseen())
    assert isinstance(answer, Accept)
    assert answer.numbers == {
        "predicted_ttft_s": 1.0,
        "promised_ttft_s": 2.0,
        "decode_load": 0.5,
        "decode_load_at_s": 1.0,
        "decode_load_asked": 0.25,
        "decode_load_limit": 1.0,
    }


def test_a_promise_that_cannot_be_kept_is_refused_until_the_queue_has_drained() -> None:
    answer = rejected(EarlyRejection().before_prefill(Ask(ttft_s=2.0), Foreseen(predicted_ttft_s=9.0)))
    assert (answer.reason, answer.retry_after_s) == (RejectReason.TTFT, 7.0)
    assert answer.numbers["predicted_ttft_s"] == 9.0


@pytest.mark.parametrize(("margin", "verdict"), [(0.5, Reject), (1.0, Accept), (2.0, Accept)])
def test_the_margin_is_a_share_of_the_promise(margin: float, verdict: type[Accept] | type[Reject]) -> None:
    rule = EarlyRejection(Bounds(ttft_margin=margin))
    assert isinstance(rule.before_prefill(Ask(ttft_s=2.0), Foreseen(predicted_ttft_s=1.5)), verdict)


def test_decode_is_looked_at_when_prefill_ends_and_not_before() -> None:
    falling, rising = Foreseen(10.0, lambda t_s: 1.2 - t_s / 20), Foreseen(10.0, lambda t_s: 0.8 + t_s / 20)
    ask = Ask(decode_load=0.1)
    assert isinstance(EarlyRejection().before_prefill(ask, falling), Accept)
    assert rejected(EarlyRejection().before_prefill(ask, rising)).reason is RejectReason.DECODE


@UNHURRIED
@given(st.floats(2.0, 55.0), st.floats(0.0, 20.0), st.floats(0.01, 0.9))
def test_retry_after_is_when_there_will_be_room(room_at_s: float, ttft_s: float, own: float) -> None:
    """The load drops at one moment; a client that comes back then, with the same prefill before it, finds room."""
    forecast = Foreseen(ttft_s, lambda t_s: 1.0 if t_s < ttft_s + room_at_s else 1.0 - own)
    answer = rejected(EarlyRejection().before_prefill(Ask(decode_load=own), forecast))
    assert answer.retry_after_s == pytest.approx(room_at_s, abs=0.01)
    later = Foreseen(ttft_s, lambda t_s: forecast.decode_load_at(t_s + answer.retry_after_s))
    assert isinstance(EarlyRejection().before_prefill(Ask(decode_load=own), later), Accept)


def test_no_room_in_sight_is_the_horizon_and_room_at_once_the_least() -> None:
    bounds = Bounds(retry_min_s=2.0, horizon_s=30.0)
    never = Foreseen(load=lambda t_s: 2.0)
    soon = Foreseen(load=lambda t_s: 2.0 if t_s < 1.1 else 0.0)
    assert rejected(EarlyRejection(bounds).before_prefill(Ask(), never)).retry_after_s == 30.0
    assert rejected(EarlyRejection(bounds).before_prefill(Ask(), soon)).retry_after_s == 2.0


def test_of_two_reasons_the_one_that_lasts_longer_is_told() -> None:
    both = Foreseen(predicted_ttft_s=5.0, load=lambda t_s: 2.0)
    assert rejected(EarlyRejection().before_prefill(Ask(ttft_s=1.0), both)).reason is RejectReason.DECODE
    short = Foreseen(predicted_ttft_s=50.0, load=lambda t_s: 2.0 if t_s < 51.0 else 0.0)
    assert rejected(EarlyRejection().before_prefill(Ask(ttft_s=1.0), short)).reason is RejectReason.TTFT


@pytest.mark.parametrize("wrong", [{"decode_load": 0.0}, {"ttft_margin": 0.0}, {"retry_min_s": 99.0}])
def test_bounds_that_make_no_sense_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must"):
        Bounds(**wrong)
