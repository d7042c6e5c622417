"""Refusals in words and numbers (invariant 9)."""

from collections.abc import Mapping

from gateway.policy.fairness.limits import Limited, LimitReason
from gateway.policy.routing import Dead, NoRoute, Placement, Wait
from gateway.policy.turned_away import TurnedAway, Why
from gateway.request.errors import Reason, RequestError
from gateway.wording import counted

_REASONS: dict[Dead, Reason] = {
    Dead.NO_DECODE: Reason.NO_DECODE_WORKER,
    Dead.NO_PREFILL: Reason.NO_PREFILL_WORKER,
    Dead.NEVER_FITS: Reason.KV_CAPACITY,
    Dead.TOO_LONG: Reason.CONTEXT_LENGTH,
    Dead.TOGETHER: Reason.KV_CAPACITY,
}


def turned_away(away: TurnedAway) -> RequestError:
    """A bid that got no place."""
    match away.why:
        case Why.QUEUE_FULL:
            return queue_full(away.waiting, away.outlook, away.retry_after_s)
        case Why.QUEUE_TIMEOUT:
            return queue_timeout(away.waited_s, away.outlook, away.retry_after_s, away.waiting)
        case Why.NO_ROUTE:
            assert isinstance(away.outlook, NoRoute)
            return no_route(away.outlook, away.retry_after_s)
        case Why.TTFT:
            waited = {"waited_s": away.waited_s, "waiting": away.waiting}
            return ttft_unreachable(away.numbers or {**waited, **_kv(away.outlook)}, away.retry_after_s)
        case Why.DECODE:
            return decode_overloaded(away.numbers, away.retry_after_s)


def ttft_unreachable(numbers: Mapping[str, float], retry_after_s: float) -> RequestError:
    promised = f" in the {numbers['promised_ttft_s']:g} s promised" if "promised_ttft_s" in numbers else " in time"
    return RequestError(
        Reason.TTFT_UNREACHABLE,
        f"the first token could not come{promised}; nothing was computed. Try again later",
        retry_after_s=retry_after_s,
        numbers=numbers,
    )


def decode_overloaded(numbers: Mapping[str, float], retry_after_s: float) -> RequestError:
    return RequestError(
        Reason.DECODE_OVERLOADED,
        "the decode workers are expected to be full when this prompt would be computed; nothing was. Try again later",
        retry_after_s=retry_after_s,
        numbers=numbers,
    )


#: A limit of zero opens never; clients are told to come back after this.
_NEVER_S = 3600.0


def limited(limit: Limited) -> RequestError:
    """The tenant's own limits."""
    if limit.reason is LimitReason.RATE:
        reason, message = Reason.RATE_LIMITED, "this key asks for more requests or tokens a second than it may"
    else:
        reason = Reason.CONCURRENCY_LIMITED
        message = f"this key has {counted(limit.numbers['in_hand'], 'request')} running or waiting, as many as it may"
    wait_s = min(_NEVER_S, limit.retry_after_s)
    return RequestError(reason, f"{message}; try again in {wait_s:.3g} s", retry_after_s=wait_s, numbers=limit.numbers)


def no_route(route: NoRoute, retry_after_s: float) -> RequestError:
    numbers = route.numbers
    match route.why:
        case Dead.NO_DECODE:
            return no_worker(retry_after_s)
        case Dead.NO_PREFILL:
            message = (
                "no prefill worker with a usable pair is ready; start one, or set routing.on_no_prefill to local "
                "to let decode workers prefill"
            )
        case Dead.NEVER_FITS if numbers["answers"] > numbers["slots_total"]:
            message = (
                f"the request asks for {counted(numbers['answers'], 'answer')} at once; the largest decode worker runs "
                f"{numbers['slots_total']:g}. Lower n"
            )
        case Dead.NEVER_FITS:
            message = (
                f"prompt ({counted(numbers['prompt_tokens'], 'token')}) and answer "
                f"({counted(numbers['growth_tokens'], 'token')}) need {counted(numbers['blocks_needed'], 'KV block')}; "
                f"the largest decode worker has {numbers['blocks_total']:,.0f}. "
                "Lower max_tokens or n, or shorten the prompt"
            )
        case Dead.TOGETHER:
            message = (
                f"the {numbers['prompts']:g} prompts of this request are served together or not at all; they need "
                f"{counted(numbers['blocks_needed'], 'KV block')} and {counted(numbers['answers'], 'slot')}, all decode "
                f"workers have {numbers['blocks_total']:,.0f} and {numbers['slots_total']:,.0f}. Send fewer in one request, or declare a "
                "lower max_tokens"
            )
        case Dead.TOO_LONG:
            return too_long(int(numbers["prompt_tokens"]), 1, int(numbers["window_tokens"]))
    waits = route.why is Dead.NO_PREFILL
    return RequestError(
        _REASONS[route.why], message, retry_after_s=retry_after_s if waits else None, numbers=dict(numbers)
    )


def no_worker(retry_after_s: float = 1.0) -> RequestError:
    return RequestError(
        Reason.NO_DECODE_WORKER,
        "no decode worker is ready; see `tandem status`",
        retry_after_s=retry_after_s,
        numbers={"decode_workers": 0},
    )


def worker_away(route: NoRoute, retry_after_s: float) -> RequestError:
    """What fits none of the ready workers, but one that is known and not ready."""
    return RequestError(
        Reason.NO_DECODE_WORKER,
        "the decode workers that could take this are away; see `tandem status`. Try again later",
        retry_after_s=retry_after_s,
        numbers=dict(route.numbers),
    )


def too_long(prompt_tokens: int, answer_tokens: int, window_tokens: int) -> RequestError:
    return RequestError(
        Reason.CONTEXT_LENGTH,
        f"this model's context window is {counted(window_tokens, 'token')}; the prompt has {prompt_tokens:,} and the "
        f"answer asks for {answer_tokens:,}. Shorten one of them",
        param="max_tokens" if prompt_tokens < window_tokens else None,
        numbers={
            "prompt_tokens": prompt_tokens,
            "answer_tokens": answer_tokens,
            "window_tokens": window_tokens,
        },
    )


def queue_full(waiting: int, outlook: Placement | Wait | NoRoute, retry_after_s: float) -> RequestError:
    return RequestError(
        Reason.QUEUE_FULL,
        f"the line for KV is full ({counted(waiting, 'request')}); try again later",
        retry_after_s=retry_after_s,
        numbers={"waiting": waiting, **_kv(outlook)},
    )


def queue_timeout(
    waited_s: float, outlook: Placement | Wait | NoRoute, retry_after_s: float, waiting: int
) -> RequestError:
    return RequestError(
        Reason.QUEUE_TIMEOUT,
        f"no decode worker had room within {waited_s:.1f} s; try again later, or lower max_tokens",
        retry_after_s=retry_after_s,
        numbers={"waited_s": waited_s, "waiting": waiting, **_kv(outlook)},
    )


def draining(in_flight: int, drain_s: float) -> RequestError:
    """`drain_s`: how long the gateway waits at most for what it still has in hand."""
    return RequestError(
        Reason.DRAINING,
        "this gateway is shutting down; send the request to another",
        retry_after_s=1.0,
        numbers={"in_flight": in_flight, "drain_s": drain_s},
    )


def cut_off(drain_s: float) -> RequestError:
    """Of an answer that was not complete when the gateway had waited `drain_s`."""
    return RequestError(
        Reason.DRAINING,
        f"this gateway shut down, and waited {drain_s:g} s for the answer, which was not complete; send the request to another",
        retry_after_s=1.0,
        numbers={"drain_s": drain_s},
    )


def _kv(outlook: Placement | Wait | NoRoute) -> dict[str, float]:
    if isinstance(outlook, Wait):
        return {
            "blocks_needed": outlook.blocks_needed,
            "blocks_free": outlook.blocks_free,
            "blocks_total": outlook.blocks_total,
        }
    return {}
