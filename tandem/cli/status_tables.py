"""The status of a cluster as tables."""

from collections.abc import Iterable, Mapping, Sequence

from rich.console import Group, JustifyMethod, RenderableType
from rich.table import Table
from rich.text import Text

from gateway.cluster.snapshot import ClusterSnapshot, PairSnapshot, WorkerSnapshot
from gateway.cluster.states import PairState, WorkerStatus
from gateway.policy.control.rows import BucketRow, ClassRow, EarlyRow, PolicySnapshot, RolesRow
from gateway.wording import counted
from proto.worker import Role
from tandem.units import rate, size

_POOLS = {Role.PREFILL: "prefill", Role.DECODE: "decode", Role.BOTH: "colocated"}
_GOOD: frozenset[WorkerStatus | PairState] = frozenset({WorkerStatus.READY, PairState.USABLE})
_BAD: frozenset[WorkerStatus | PairState] = frozenset(
    {WorkerStatus.EJECTED, WorkerStatus.GONE, PairState.QUARANTINED, PairState.INCOMPATIBLE}
)

#: A fleet of n colocated workers with fluid roles has n × (n - 1) pairs.
_PAIRS_SHOWN = 24

#: UCX is set a worker, not a pair, and does not say which way it took.
_HOW_NEAR = "in brackets: the narrowest place that both ends share (NVLink domain, node, rack); apart: none"
_HOW_KNOWN = "over: inferred, the fastest that both ends may use; the figures are measured"
_WHAT_POOLS = "tickets: prompts whose KV is kept until the worker that decodes has read it"
_WHAT_WORKERS = "blocks: used + reserved / all; leases: what this gateway holds there"
_WHAT_PROMISES = (
    "promised: blocks that what runs may need, within the error budget; risk: that it needs more; pool: for then"
)
_WHAT_ESTIMATES = (
    "came/estimated: tokens, against the mean. under, over: answers that got longer or shorter than the length they were "
    "let in with (lengths.target_quantile), and by how many tokens; drifts: how often the lengths of a class have shifted"
)


def render(snapshot: ClusterSnapshot, policy: PolicySnapshot | None = None) -> RenderableType:
    parts: list[RenderableType] = [_headline(snapshot), Text(), _pools(snapshot.workers), _legend(_WHAT_POOLS), Text()]
    parts += [_workers(snapshot.workers), _legend(_WHAT_WORKERS), *_places(snapshot.workers)]
    parts += _reasons({worker.worker_id: worker.reason for worker in snapshot.workers})
    if snapshot.pairs:
        shown = _telling(snapshot.pairs)
        parts += [Text(), _pairs(shown), *_others(snapshot.pairs, len(shown)), _legend(_HOW_KNOWN)]
        parts += [_legend(_HOW_NEAR)] if any(pair.distance for pair in shown) else []
        parts += _reasons({_name(pair): pair.reason for pair in shown})
    if any(_there(worker) and (worker.pool_blocks or worker.preemptions) for worker in snapshot.workers):
        parts += [Text(), _promises(snapshot.workers), _legend(_WHAT_PROMISES)]
    parts += [Text(), _requests(snapshot)]
    if policy is not None:
        parts += [Text(), *_policy(policy)]
    return Group(*parts)


def _legend(text: str) -> Text:
    return Text(text, "dim")


def _promises(workers: Iterable[WorkerSnapshot]) -> Table:
    """What decode workers have promised of their blocks, and what came of it."""
    table = _table("Promises", ("worker", "promised", "pool used", "risk", "preempted", "recomputed"))
    for worker in workers:
        if worker.role.decodes and _there(worker):
            table.add_row(
                worker.worker_id,
                f"{worker.blocks_promised:.0f}/{worker.blocks_total - worker.pool_blocks}",
                f"{worker.pool_blocks_used}/{worker.pool_blocks}",
                _risk(worker),
                str(worker.preemptions),
                f"{worker.recomputed_tokens:,}",
            )
    return table


def _risk(worker: WorkerSnapshot) -> str:
    """And what is accepted, by a worker that says so."""
    risk, accepted = (f"{100 * share:.2g} %" for share in (worker.overrun_risk, worker.error_budget))
    return f"{risk} of {accepted}" if worker.error_budget else risk


def _policy(policy: PolicySnapshot) -> list[RenderableType]:
    parts: list[RenderableType] = [
        Text(f"Policy {policy.version}: {policy.rule}, {counted(policy.admitted, 'request')} under way")
    ]
    if policy.lengths:
        parts.append(_estimates(policy.lengths))
    if policy.buckets:
        parts.append(_answers(policy.buckets))
    if policy.lengths or policy.buckets:
        parts.append(_legend(_WHAT_ESTIMATES))
    if policy.roles is not None:
        parts.append(Text(_roles(policy.roles)))
    if policy.moves:
        moves = ", ".join(f"{row.count:,} {row.outcome} ({row.reason})" for row in policy.moves)
        parts.append(Text(f"Running answers that were to move: {moves}"))
    if policy.queue:
        waiting = ", ".join(f"{row.waiting} {row.klass} ({row.band})" for row in policy.queue)
        parts.append(Text(f"Waiting for KV: {waiting}"))
    if policy.rejected:
        reasons = ", ".join(f"{count} {reason}" for reason, count in policy.rejected.items())
        parts.append(Text(f"Refused: {reasons}"))
    parts += [Text(_hindsight(row)) for row in policy.early]
    for fair in policy.fairness:
        parts += [Text(f"{fair.klass}: the fairness budget of {measure} is spent", "red") for measure in fair.alarms]
    return parts


def _estimates(rows: Iterable[ClassRow]) -> Table:
    table = _table("Estimates", ("class", "answers", "came/estimated", "under", "by", "over", "by", "drifts"))
    for row in rows:
        ratio = row.realised_tokens / row.estimated_tokens if row.estimated_tokens else None
        table.add_row(
            row.klass,
            f"{row.requests:,}",
            "–" if ratio is None else f"{ratio:.2f}",
            f"{row.under_requests:,}",
            f"{row.under_tokens:,}",
            f"{row.over_requests:,}",
            f"{row.over_tokens:,}",
            str(row.drifts),
        )
    return table


def _answers(rows: Iterable[BucketRow]) -> Table:
    table = _table("Answers by length", ("model", "tokens", "answers", "under", "by", "over", "by"))
    for row in rows:
        table.add_row(
            row.model,
            row.answer_tokens,
            f"{row.answers:,}",
            f"{row.under_answers:,}",
            f"{row.under_tokens:,}",
            f"{row.over_answers:,}",
            f"{row.over_tokens:,}",
        )
    return table


def _roles(row: RolesRow) -> str:
    ways = ", ".join(f"{count:,} {way.replace('_', ' ')}" for way, count in row.ways.items())
    return (
        f"Fluid roles: {ways}; leaning to prefill: {', '.join(row.leaning) or 'nobody'}; a step takes "
        f"{1e3 * row.weights_s:.1f} ms, {1e6 * row.token_s:.0f} µs a token, {1e9 * row.context_s:.0f} ns a KV token"
        f"{_limits(list(row.step_tokens.values()))}"
    )


def _limits(tokens: list[int]) -> str:
    if not tokens:
        return ""
    sizes = f"{min(tokens):,}" if len(set(tokens)) == 1 else f"{min(tokens):,} to {max(tokens):,}"
    return f"; steps of {sizes} tokens at {len(tokens)} workers"


def _hindsight(row: EarlyRow) -> str:
    judged = row.right + row.wrong
    share = f"{100 * row.right / judged:.0f} % of {judged} rightly" if judged else "none judged yet"
    rest = ", ".join(
        f"{count} {what}" for count, what in ((row.unjudged, "not to be judged"), (row.open, "open")) if count
    )
    return f"Refused early as {row.reason}: {share}{f' ({rest})' if rest else ''}"


def _headline(snapshot: ClusterSnapshot) -> Text:
    verdict = Text("ready", "green") if snapshot.ready else Text(f"not ready: {snapshot.missing}", "red")
    return Text.assemble(f"gateway {snapshot.gateway_id}: {snapshot.mode}, ", verdict)


def _table(title: str, columns: Iterable[str], *, gap: int = 2) -> Table:
    left = ("class", "model", "worker", "pool", "pair", "state", "over", "engine")
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, gap, 0, 0))
    for column in columns:
        # on 80 columns long names break, before any figure is cut: a pair's at its arrow
        named = column in ("engine", "pair", "worker", "class", "model")
        justify: JustifyMethod = "left" if column in left else "right"
        table.add_column(column, justify=justify, no_wrap=not named, overflow="fold" if named else "ellipsis")
    return table


def _pools(workers: Iterable[WorkerSnapshot]) -> Table:
    """Figures are sums over the workers that are there."""
    table = _table("Pools", ("pool", "workers", "ready", "KV tokens", "used", "reserved", "runs", "waits", "tickets"))
    listed = tuple(workers)
    for role, name in _POOLS.items():
        known = [worker for worker in listed if worker.role is role]
        if not known:
            continue
        pool = [worker for worker in known if _there(worker)]
        table.add_row(
            name,
            str(len(known)),
            str(sum(worker.status is WorkerStatus.READY for worker in pool)),
            f"{sum(worker.blocks_total * worker.block_size_tokens for worker in pool):,}",
            _share(sum(worker.blocks_used for worker in pool), sum(worker.blocks_total for worker in pool)),
            _share(sum(worker.blocks_reserved for worker in pool), sum(worker.blocks_total for worker in pool)),
            str(sum(worker.running for worker in pool)),
            str(sum(worker.waiting for worker in pool)),
            str(sum(worker.tickets_held for worker in pool)),
        )
    return table


def _workers(workers: Iterable[WorkerSnapshot]) -> Table:
    """Blocks are used + reserved / total; leases are what this gateway holds on the worker. Of one that is gone only
    those are facts."""
    table = _table("Workers", ("worker", "state", "engine", "blocks", "leases", "runs", "step"))
    for worker in workers:
        table.add_row(
            worker.worker_id,
            _state(worker.status),
            f"{worker.engine} {worker.engine_version} TP{worker.tp}",
            f"{worker.blocks_used}+{worker.blocks_reserved}/{worker.blocks_total}" if _there(worker) else "–",
            str(worker.lease_reservations + worker.lease_prefills + worker.lease_tickets),
            str(worker.running) if _there(worker) else "–",
            f"{worker.step_time_s * 1000:.0f} ms" if _there(worker) else "–",
        )
    return table


def _places(workers: Iterable[WorkerSnapshot]) -> list[RenderableType]:
    """Where workers stand, those that share a place in one line; nothing where none of them says it."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for worker in workers:
        if worker.node or worker.rack:
            found.setdefault((worker.rack, worker.node, worker.nvlink_domain), []).append(worker.worker_id)
    kinds = ("rack", "node", "NVLink domain")
    return [
        Text(
            f"{', '.join(f'{kind} {name}' for kind, name in zip(kinds, place, strict=True) if name)}: {', '.join(names)}"
        )
        for place, names in sorted(found.items())
    ]


def _telling(pairs: Sequence[PairSnapshot]) -> Sequence[PairSnapshot]:
    """All of them, or those that are in trouble and those that have moved the most."""
    if len(pairs) <= _PAIRS_SHOWN:
        return pairs
    first = sorted(pairs, key=lambda pair: (pair.state is PairState.USABLE, -pair.failures, -pair.bytes))
    return first[:_PAIRS_SHOWN]


def _others(pairs: Sequence[PairSnapshot], shown: int) -> list[RenderableType]:
    if shown == len(pairs):
        return []
    usable = sum(pair.state is PairState.USABLE for pair in pairs)
    return [Text(f"{len(pairs) - shown} more; of all {len(pairs)} pairs {usable} are usable (--json has each)")]


def _pairs(pairs: Iterable[PairSnapshot]) -> Table:
    table = _table("Pairs", ("pair", "state", "over", "measured", "moved", "in use", "failed"), gap=1)
    for pair in pairs:
        table.add_row(
            _name(pair),
            _state(pair.state),
            (pair.transport or "?") + (f" ({pair.distance})" if pair.distance else ""),
            rate(pair.bytes_per_s) if pair.bytes_per_s else "–",
            f"{size(pair.bytes)} in {pair.transfers}",
            rate(pair.bytes / pair.seconds) if pair.seconds else "–",
            str(pair.failures),
        )
    return table


def _there(worker: WorkerSnapshot) -> bool:
    """Whether its figures may be taken for current: those of one that is gone are the last it told."""
    return worker.status not in (WorkerStatus.GONE, WorkerStatus.CONNECTING)


def _name(pair: PairSnapshot) -> str:
    return f"{pair.prefill_worker} → {pair.decode_worker}"


def _reasons(reasons: Mapping[str, str]) -> list[RenderableType]:
    """Below their table: a column of sentences would leave no room for the others on 80 columns."""
    return [Text(f"{name}: {reason}", "yellow") for name, reason in reasons.items() if reason]


def _requests(snapshot: ClusterSnapshot) -> Text:
    phases = ", ".join(f"{count} {phase}" for phase, count in snapshot.in_flight.items() if count)
    queued = f"; {snapshot.queued} wait for KV" if snapshot.queued else ""
    return Text(f"Requests in flight: {phases or 'none'}{queued}")


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f} %" if whole else "–"


def _state(state: WorkerStatus | PairState) -> Text:
    return Text(state.value, "green" if state in _GOOD else "red" if state in _BAD else "yellow")
