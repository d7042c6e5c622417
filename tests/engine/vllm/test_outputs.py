"""From an engine output to the delta its owner sees."""

from types import SimpleNamespace
from typing import Any

import pytest

from engine.vllm.outputs import Live, to_delta
from proto.fault import FaultKind
from proto.sampling import Sampling, StructuredKind, StructuredOutput
from proto.work import FinishReason, Work


def _live(writer: str = "", structured: StructuredOutput | None = None) -> Live:
    sampling = Sampling(max_tokens=4, structured=structured)
    return Live(Work("r", (1, 2), sampling), "r.1", writer=writer)


def _output(tokens: tuple[int, ...] = (), finish: int | None = None, **rest: Any) -> Any:
    return SimpleNamespace(
        new_token_ids=list(tokens),
        finish_reason=finish,
        events=[SimpleNamespace(type=kind, timestamp=at) for kind, at in rest.get("events", ())],
        prefill_stats=rest.get("prefill"),
        new_logprobs=None,
        new_prompt_logprobs_tensors=None,
    )


def test_what_is_known_of_the_start_comes_on_the_first_delta_only() -> None:
    live = _live()
    live.transfer_s = 0.05  # of the 0.2 s between queued and scheduled
    first = _output((7,), events=((1, 10.0), (2, 10.2)), prefill=SimpleNamespace(num_local_cached_tokens=16))
    assert live.observe(first, 10.5) == 0
    delta = to_delta(live, first)
    assert (delta.tokens, delta.cached_tokens, delta.transfer_s) == ((7,), 16, 0.05)
    assert delta.queue_s == pytest.approx(0.15)
    assert live.compute_s == pytest.approx(0.3)
    second = to_delta(live, _output((8,)))
    assert (second.cached_tokens, second.queue_s, second.transfer_s) == (0, 0.0, 0.0)


def test_preemptions_are_counted_and_do_not_move_the_first_schedule() -> None:
    live = _live()
    assert live.observe(_output(events=((1, 1.0), (2, 2.0), (3, 3.0), (2, 4.0))), 5.0) == 1
    assert live.scheduled_s == 2.0


@pytest.mark.parametrize(
    ("code", "finish"),
    [(0, FinishReason.STOP), (1, FinishReason.LENGTH), (2, FinishReason.ABORT), (4, FinishReason.STOP)],
)
def test_finish_reasons(code: int, finish: FinishReason) -> None:
    delta = to_delta(_live(), _output((1,), code))
    assert delta.finish is finish
    assert delta.fault is None


def test_an_engine_error_is_told_by_what_the_request_was_doing() -> None:
    schema = StructuredOutput(StructuredKind.JSON_OBJECT)
    kinds = []
    for live in (_live(writer="w"), _live(structured=schema), _live()):
        delta = to_delta(live, _output(finish=3))
        assert delta.finish is None
        assert delta.fault is not None
        kinds.append(delta.fault.kind)
    assert kinds == [FaultKind.KV_LOAD_FAILED, FaultKind.INVALID_REQUEST, FaultKind.INTERNAL]


def test_a_pull_that_has_answered_is_past_its_load() -> None:
    live = _live(writer="w")
    to_delta(live, _output((5,)))
    fault = to_delta(live, _output(finish=3)).fault
    assert fault is not None
    assert fault.kind is FaultKind.INTERNAL
