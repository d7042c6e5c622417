"""From one request's share of an engine step to the delta its owner sees."""

from dataclasses import dataclass
from typing import Any

from proto.fault import Fault, FaultKind
from proto.work import FinishReason, PromptLogprobs, SequenceDelta, TokenLogprobs, Work

# vLLM's event types and finish reasons as they travel, so that reading them needs no import of vLLM.
_QUEUED, _SCHEDULED, _PREEMPTED = 1, 2, 3
_STOP, _LENGTH, _ABORT, _ERROR, _REPETITION = range(5)
_FINISHES = {
    _STOP: FinishReason.STOP,
    _LENGTH: FinishReason.LENGTH,
    _ABORT: FinishReason.ABORT,
    _REPETITION: FinishReason.STOP,
}


@dataclass(slots=True)
class Live:
    """A request inside the engine. Times are on the engine process's clock, and only ever subtracted."""

    work: Work
    core_id: str
    hold: bool = False
    writer: str = ""
    emitted: bool = False
    aborted: bool = False
    moving: bool = False  # asked to be handed over
    ticket_id: str = ""
    preemptions: int = 0
    queued_s: float = 0.0
    scheduled_s: float = 0.0
    transfer_s: float = 0.0
    compute_s: float = 0.0

    def observe(self, output: Any, now_s: float) -> int:
        """Takes in an output's events; returns how many of them were preemptions."""
        preempted = 0
        for event in output.events or ():
            if event.type == _QUEUED:
                self.queued_s = event.timestamp
            elif event.type == _SCHEDULED and not self.scheduled_s:
                self.scheduled_s = event.timestamp
            elif event.type == _PREEMPTED:
                preempted += 1
        if not self.emitted and self.scheduled_s:
            self.compute_s = max(0.0, now_s - self.scheduled_s)
        self.preemptions += preempted
        return preempted


def to_delta(live: Live, output: Any) -> SequenceDelta:
    """The delta of one output; the first one of a request also carries what is known only then."""
    sampling = live.work.sampling
    reason = None if output.finish_reason is None else int(output.finish_reason)
    first = not live.emitted
    live.emitted = True
    prefill = output.prefill_stats
    return SequenceDelta(
        tokens=tuple(output.new_token_ids),
        logprobs=() if sampling.logprobs is None else _logprobs(output.new_logprobs, sampling.logprobs),
        finish=None if reason is None else _FINISHES.get(reason),
        fault=_fault(live, first) if reason == _ERROR else None,
        cached_tokens=prefill.num_local_cached_tokens if first and prefill is not None else 0,
        prompt_logprobs=_prompt_logprobs(output.new_prompt_logprobs_tensors, sampling.prompt_logprobs),
        queue_s=max(0.0, live.scheduled_s - live.queued_s - live.transfer_s) if first else 0.0,
        transfer_s=live.transfer_s if first else 0.0,
    )


def _logprobs(lists: Any, wanted: int) -> tuple[TokenLogprobs, ...]:
    """Rows are as wide as the widest request of the batch; ours are the first `wanted` + 1."""
    if lists is None:
        return ()
    rows = zip(lists.logprob_token_ids, lists.logprobs, lists.sampled_token_ranks, strict=True)
    return tuple(_position(ids.tolist(), values.tolist(), int(rank), wanted) for ids, values, rank in rows)


def _prompt_logprobs(tensors: Any, wanted: int | None) -> PromptLogprobs:
    if tensors is None or wanted is None:
        return ()
    rows = zip(
        tensors.logprob_token_ids.tolist(),
        tensors.logprobs.tolist(),
        tensors.selected_token_ranks.tolist(),
        strict=True,
    )
    return (None, *(_position(ids, values, rank, wanted) for ids, values, rank in rows))


def _position(ids: list[int], values: list[float], rank: int, wanted: int) -> TokenLogprobs:
    width = wanted + 1
    return TokenLogprobs(tuple(ids[:width]), tuple(values[:width]), (rank, *range(1, len(ids[:width]))))


def _fault(live: Live, first: bool) -> Fault:
    """vLLM says only that a request failed; what it was doing tells why."""
    if live.writer and first:
        return Fault(FaultKind.KV_LOAD_FAILED, f"pulling KV from {live.writer} failed")
    if live.work.sampling.structured is not None:
        return Fault(FaultKind.INVALID_REQUEST, "the engine could not build or follow the output grammar")
    return Fault(FaultKind.INTERNAL, "the engine gave the request up; its log says why")
