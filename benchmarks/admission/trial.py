"""One contender at one load with one seed: what came of it between warm-up and the last arrival."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from benchmarks.admission.begun import BEGUN, begun
from benchmarks.admission.contenders import Contender
from benchmarks.admission.fleet import Service
from benchmarks.admission.watch import Watch
from decode_pool.expected import Admission
from gateway.policy.estimate import Features
from gateway.policy_config import PolicyConfig
from loadgen.arrivals.process import Arrivals, Kind
from loadgen.demand import Demand
from loadgen.result import Ending, Result
from loadgen.schedule import Plan, Planned, Schedule, build
from loadgen.simulate import Layout
from loadgen.simulate.simulation import Simulation
from loadgen.workload.spec import Catalogue


@dataclass(frozen=True, slots=True)
class Window:
    """Arrivals from 0 to `end_s`; what arrives from `warm_s` on is judged."""

    warm_s: float
    end_s: float

    @property
    def length_s(self) -> float:
        return self.end_s - self.warm_s


@dataclass(frozen=True, slots=True)
class Bucket:
    """Answers of one third by planned length, those turned away left out; p99 in s."""

    up_to_tokens: int
    start_p99_s: float
    tpot_p99_s: float


@dataclass(frozen=True, slots=True)
class Figures:
    """Rates per s over the window. `recomputed`: of generated tokens. `overrun`: share of moments and workers at which
    more than capacity less the pool was in use; `full`: at which all was. `served`: tokens that the fleet generated, of
    whoever had come when; `course`: goodput of the quarter before the window, and of the window's four; `moves`: answers a minute
    that went on at another worker."""

    goodput: float
    good_share: float
    good_tokens: float
    completed: float
    preemptions: float
    recomputed: float
    kv_used: float
    overrun: float
    full: float
    rejected: float
    buckets: tuple[Bucket, ...] = field(default=())
    served: float = float("nan")
    course: tuple[float, ...] = ()
    moves: float = 0.0

    @property
    def served_per_kv(self) -> float:
        """Tokens/s for all of the KV: what the memory that was held brought."""
        return self.served / self.kv_used


#: Of a full decode worker: seconds a token, and tokens of KV of the whole pool that what has begun may fill.
TOKEN_S, KV_TOKENS = 0.042, 0.9 * 4 * 370_576


def schedule(workload: str, rate: float, end_s: float, seed: int, *, start_full: bool = True) -> Schedule:
    """Poisson arrivals on top of what has begun before."""
    mix = Catalogue(None).mix(workload.split(";"))
    fresh = build(Plan(mix, Arrivals(Kind.POISSON, rate=rate), seed=seed, duration_s=end_s))
    old = begun(mix, rate, TOKEN_S, KV_TOKENS, seed) if start_full else []
    return merged(fresh, [(0.0, demand) for demand in old] + [(one.at_s, one.demand) for one in fresh.requests])


def merged(base: Schedule, rows: Iterable[tuple[float, Demand]]) -> Schedule:
    """These demands, each at its moment, in the place of those of `base`; of equal moments in the order given."""
    in_order = sorted(rows, key=lambda row: row[0])
    return replace(base, requests=tuple(Planned(n, at_s, demand) for n, (at_s, demand) in enumerate(in_order)))


def good(result: Result, service: Service) -> bool:
    if result.ending is not Ending.COMPLETED or start_s(result) > service.start_s:
        return False
    return tpot_s(result) <= service.tpot_s


def start_s(result: Result) -> float:
    """Until decode goes on with the second token."""
    return sum(seconds for name, seconds in result.stages_s if name != "decode")


def tpot_s(result: Result) -> float:
    if result.first_s is None or result.output_tokens < 2:
        return 0.0
    return (result.end_s - result.first_s) / (result.output_tokens - 1)


def run(
    contender: Contender,
    layout: Layout,
    planned: Schedule,
    ours: Admission | None = None,
    policy: PolicyConfig | None = None,
    taught: Sequence[Demand] = (),
) -> tuple[Watch, tuple[Result, ...]]:
    layout, minds = contender.enter(layout, ours, policy)
    simulation = Simulation(layout, planned)
    (mind,) = minds  # made with the simulation
    mind.teach(layout.model, taught)
    watch = Watch(simulation, max(1.0, planned.window_s / 500), lambda: mind.lengths.running(under_way(simulation)))
    watch.start()
    outcome = simulation.run()
    return watch, outcome.results


def under_way(simulation: Simulation) -> Iterator[tuple[Features, int]]:
    """What a gateway knows of the answers that it is passing on: tokens until now."""
    for flight in simulation.clients.under_way.values():
        if flight.hold is not None and flight.bid.plan is not None and flight.planned.demand.klass != BEGUN:
            yield flight.bid.plan.features, max(1, flight.hold.tokens - flight.planned.demand.prompt_tokens)


def judge(watch: Watch, results: tuple[Result, ...], window: Window, service: Service, pool_share: float) -> Figures:
    mine = [one for one in results if window.warm_s <= one.intended_s <= window.end_s]
    fine = [one for one in mine if good(one, service)]
    seen = watch.between(window.warm_s, window.end_s)
    used = watch.used(window.warm_s, window.end_s)
    first, last = seen[0], seen[-1]
    generated = max(1, last.generated_tokens - first.generated_tokens)
    completed = [one for one in mine if one.ending is Ending.COMPLETED]
    return Figures(
        goodput=len(fine) / window.length_s,
        good_share=len(fine) / max(1, len(mine)),
        good_tokens=sum(one.output_tokens for one in fine) / window.length_s,
        completed=len(completed) / window.length_s,
        preemptions=(last.preemptions - first.preemptions) / max(1, len(mine)),
        recomputed=(last.recomputed_tokens - first.recomputed_tokens) / generated,
        kv_used=float(used.mean()),
        overrun=float((used > 1.0 - pool_share).mean()),
        full=float((used > 0.9995).mean()),
        rejected=sum(one.ending is not Ending.COMPLETED for one in mine) / max(1, len(mine)),
        buckets=_buckets(mine),
        served=(last.generated_tokens - first.generated_tokens) / (last.at_s - first.at_s),
        course=_course(results, window, service),
        moves=(last.moved - first.moved) / (last.at_s - first.at_s) * 60.0,
    )


def _course(results: tuple[Result, ...], window: Window, service: Service) -> tuple[float, ...]:
    quarter_s = window.length_s / 4.0
    edges = window.warm_s + quarter_s * np.arange(-1, 5)
    came = [one.intended_s for one in results if good(one, service)]
    return tuple((np.histogram(came, edges)[0] / quarter_s).tolist())


def _buckets(mine: list[Result]) -> tuple[Bucket, ...]:
    lengths = np.array([one.planned_output_tokens for one in mine])
    edges = np.quantile(lengths, [1 / 3, 2 / 3, 1.0])
    buckets, below = [], 0.0
    for edge in edges:
        here = [one for one in mine if below < one.planned_output_tokens <= edge and one.first_s is not None]
        starts, gaps = [start_s(one) for one in here], [tpot_s(one) for one in here]
        p99 = (float(np.quantile(v, 0.99)) if v else float("nan") for v in (starts, gaps))
        buckets.append(Bucket(int(edge), *p99))
        below = edge
    return tuple(buckets)
