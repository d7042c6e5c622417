"""Everything one run is reported by."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from loadgen.measure.cost import Cost, Price, cost_of
from loadgen.measure.distribution import Distribution
from loadgen.measure.groups import Group, group_of, split
from loadgen.measure.saturation import Saturation, detect
from loadgen.measure.verdict import Judged, judge_all
from loadgen.result import Ending, Result
from loadgen.slo.policy import Policy
from loadgen.slo.presets import AnyPolicy
from loadgen.slo.relative import ConditionResult, Reference, ReferenceRun

#: p99 of the send lag above which a run is invalid: the client, not the target, was then being measured.
MAX_SEND_LAG_MS = 10.0


@dataclass(frozen=True, slots=True)
class Setting:
    """What measuring needs to know beside the results. `window_s` is the time over which sends were planned."""

    policy: AnyPolicy
    window_s: float
    gpus: float = 1.0
    price: Price | None = None
    max_send_lag_ms: float = MAX_SEND_LAG_MS
    reference: ReferenceRun | None = None
    complete: bool = True
    open_loop: bool = True


@dataclass(frozen=True, slots=True)
class Load:
    """Offered and achieved, side by side."""

    offered_rps: float
    achieved_rps: float
    completed_rps: float
    output_tokens_ps: float
    total_tokens_ps: float
    peak_concurrency: int
    send_lag_ms: Distribution


@dataclass(frozen=True, slots=True)
class Goodput:
    requests_ps: float
    output_tokens_ps: float
    requests_ps_per_gpu: float
    output_tokens_ps_per_gpu: float


@dataclass(frozen=True, slots=True)
class Measures:
    duration_s: float
    overall: Group
    cancelled: int
    not_applicable: int
    load: Load
    goodput: Goodput
    cost: Cost
    by_class: dict[str, Group]
    by_tenant: dict[str, Group]
    by_bucket: dict[str, Group]
    saturation: Saturation
    relative: tuple[ConditionResult, ...] | None
    invalid: tuple[str, ...]
    warnings: tuple[str, ...]
    judged: tuple[Judged, ...] = field(repr=False, default=())


def measure(results: Sequence[Result], setting: Setting) -> Measures:
    """Pure: the same results and setting always give the same figures."""
    absolute = setting.policy if isinstance(setting.policy, Policy) else Policy()
    judged = judge_all(results, absolute)
    offered = [j.result for j in judged]
    duration = max((r.end_s for r in results), default=0.0)
    overall = group_of(judged, setting.reference)
    per_second = 1 / duration if duration > 0 else 0.0
    good = overall.counts["good"]
    saturation = detect(offered) if setting.open_loop else Saturation(False, why="closed loop")
    load = _load(offered, overall, setting, per_second)
    return Measures(
        duration_s=duration,
        overall=overall,
        cancelled=len(results) - len(offered),
        not_applicable=sum("tpot" in j.skipped for j in judged),
        load=load,
        goodput=_goodput(overall, per_second, setting.gpus),
        cost=cost_of(setting.gpus, duration, overall.completed, good, setting.price),
        by_class=_groups(judged, "klass", setting.reference),
        by_tenant=_groups(judged, "tenant", setting.reference),
        by_bucket=_groups(judged, "bucket", setting.reference),
        saturation=saturation,
        relative=_relative(results, setting),
        invalid=_invalid(load, results, setting),
        warnings=_warnings(offered, overall, saturation, setting),
        judged=tuple(judged),
    )


def _load(offered: Sequence[Result], overall: Group, setting: Setting, per_second: float) -> Load:
    window = setting.window_s
    sent_window = max((r.sent_s for r in offered), default=0.0)
    return Load(
        offered_rps=len(offered) / window if window > 0 else 0.0,
        achieved_rps=len(offered) / max(sent_window, window) if max(sent_window, window) > 0 else 0.0,
        completed_rps=overall.completed * per_second,
        output_tokens_ps=overall.output_tokens * per_second,
        total_tokens_ps=(overall.prompt_tokens + overall.output_tokens) * per_second,
        peak_concurrency=peak_concurrency(offered),
        send_lag_ms=Distribution.of([r.send_lag_s * 1e3 for r in offered]),
    )


def peak_concurrency(results: Sequence[Result]) -> int:
    """Most requests open at one moment."""
    steps = sorted([(r.sent_s, 1) for r in results] + [(r.end_s, -1) for r in results])
    now = peak = 0
    for _, step in steps:
        now += step
        peak = max(peak, now)
    return peak


def _goodput(overall: Group, per_second: float, gpus: float) -> Goodput:
    requests = overall.counts["good"] * per_second
    tokens = overall.good_output_tokens * per_second
    return Goodput(requests, tokens, requests / gpus, tokens / gpus)


def _groups(judged: Sequence[Judged], label: str, reference: Reference | None) -> dict[str, Group]:
    parts = split(judged, lambda r: str(getattr(r, label)))
    return {key: group_of(part, reference) for key, part in parts.items()}


def _relative(results: Sequence[Result], setting: Setting) -> tuple[ConditionResult, ...] | None:
    if isinstance(setting.policy, Policy) or setting.reference is None:
        return None
    return setting.policy.evaluate(results, setting.reference)


def _invalid(load: Load, results: Sequence[Result], setting: Setting) -> tuple[str, ...]:
    reasons = []
    lag = load.send_lag_ms.p99
    if setting.open_loop and lag is not None and lag > setting.max_send_lag_ms:
        reasons.append(
            f"send lag p99 {lag:.1f} ms is above the bound of {setting.max_send_lag_ms:g} ms: the sender had too little "
            "of a core, so its figures are of this machine as well. Leave it more (fewer processes beside it, "
            "--processes N), lower the rate, or raise the bound (--max-send-lag MS)"
        )
    if not results:
        reasons.append("no request was sent")
    if not setting.complete:
        reasons.append("interrupted before the schedule was done")
    return tuple(reasons)


def _warnings(offered: Sequence[Result], overall: Group, saturation: Saturation, setting: Setting) -> tuple[str, ...]:
    found = []
    if saturation.saturated:
        found.append("not stationary: concurrency and TTFT rise through the run, so its figures depend on its length")
    residence = (overall.latency_ms["e2el"].p99 or 0.0) / 1e3
    if setting.open_loop and 0 < setting.window_s < 3 * residence:
        found.append(f"short run: p99 residence {residence:.1f} s against {setting.window_s:.1f} s of sending")
    completed = [r for r in offered if r.completed]
    prompts = sum(0 < r.prompt_tokens != r.planned_prompt_tokens for r in completed)
    if prompts:
        found.append(f"{prompts} requests had another prompt length at the target than planned")
    outputs = sum(r.output_tokens != r.planned_output_tokens and r.ending is Ending.COMPLETED for r in completed)
    if outputs:
        found.append(f"{outputs} requests had another output length than planned")
    guessed = sum(r.tokens_from == "spread" for r in completed)
    if guessed:
        found.append(f"{guessed} requests had chunks of several tokens whose split is a guess: ITL is approximate")
    return tuple(found)
