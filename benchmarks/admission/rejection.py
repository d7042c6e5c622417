"""Rejection before anything is computed against rejection stage by stage, at twice the load that can be served.

    python -m benchmarks.admission.rejection                  # four arms, five seeds
    python -m benchmarks.admission.rejection --quick
    python -m benchmarks.admission.rejection --figure swing   # also swing-load.svg and swing-correlation.svg, first seed

Mooncake's setting in virtual time: prompts of 12,000 tokens, the mean of its trace, and answers as in the trace, on 12 prefill
and 2 decode workers of TP2 (Llama-3.1-70B on H200, a cost model). Good: first token within 30 s, 100 ms a token after it.
`stage-wise`, `present` and `predicted` reserve nothing. `tandem` is the gateway as it ships, with that promise: it reserves KV
before it computes.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.admission.contest import mean_of
from benchmarks.admission.stages import PREDICTED, PRESENT, STAGE_WISE, Conductor, Stages
from benchmarks.admission.trial import Window, schedule, tpot_s
from benchmarks.admission.watch import Watch
from gateway.policy.control.controller import controller_of
from gateway.policy.rejection import Bounds
from gateway.policy_config import ClassPolicy, PolicyConfig
from loadgen.report.svg import Axis, Line, chart, standalone
from loadgen.result import Ending, Result
from loadgen.schedule import Schedule
from loadgen.simulate import Layout, Policies, parse_layout
from loadgen.simulate.simulation import Simulation

WORDS = (
    "--profile h200-sxm/llama-3.1-70b --decode 2 --decode-tp 2 --prefill 12 --prefill-tp 2"
    " --set engine.max_num_seqs=512 --set gateway.admission.max_queued=100000"
)
#: What decode completes when far more comes; 100 %.
CAPACITY_PER_S = 6.0
PROMISE_S, TPOT_S = 30.0, 0.1
PROMPT_TOKENS = 12_000
#: Of the KV; the rest is for what the usual length gets wrong.
BOUNDS = Bounds(decode_load=0.9)
WINDOW = Window(60.0, 180.0)
LAGS_S = 60


@dataclass(frozen=True, slots=True)
class Arm:
    """`stages` None: the gateway's own policy."""

    name: str
    stages: Stages | None = None

    def simulation(self, planned: Schedule) -> Simulation:
        layout = parse_layout(WORDS, client_timeout_s=float("inf"))
        return self._gateway(layout, planned) if self.stages is None else self._conducted(layout, planned, self.stages)

    def _gateway(self, layout: Layout, planned: Schedule) -> Simulation:
        policy = PolicyConfig(classes={"default": ClassPolicy(ttft_s=PROMISE_S)})
        gateway = layout.gateway.model_copy(update={"policy": policy})
        return Simulation(replace(layout, gateway=gateway, controller=controller_of), planned)

    def _conducted(self, layout: Layout, planned: Schedule, stages: Stages) -> Simulation:
        conductor = Conductor(
            stages, BOUNDS, PROMISE_S, kv_tokens(layout),
            lambda bid: simulation.clients.under_way[int(bid.request_id)],
            lambda: simulation.fleet.now_s,
        )  # fmt: skip
        policies = Policies(objection=conductor.objection, thrown_away=conductor.thrown_away)
        simulation = Simulation(replace(layout, policies=policies, admission=False), planned)
        return simulation


ARMS = (
    Arm("stage-wise", STAGE_WISE),
    Arm("present", PRESENT),
    Arm("predicted", PREDICTED),
    Arm("tandem"),
)

Series = NDArray[np.float64]


def kv_tokens(layout: Layout) -> float:
    """Of all that decode."""
    pools = [pool for pool in layout.pools if pool.role.decodes]
    return float(sum(pool.workers * pool.limits.blocks * pool.limits.block_size for pool in pools))


@dataclass(frozen=True, slots=True)
class Found:
    """Of what arrives in the window. Loads once a second, as shares of the decode workers' KV: prompts that prefill workers
    have in hand; answers that decode has, those that wait there included, so that it can be more than all."""

    goodput: float
    rejected: float
    wasted_tokens: float  # computed prompt tokens whose answer never came, of all computed
    prefill: Series
    decode: Series

    @property
    def antiphase(self) -> float:
        """Correlation of prefill and decode load in the same second; -1 is a seesaw."""
        return correlation(self.prefill, self.decode, 0)

    @property
    def rhythm(self) -> float:
        """The most negative autocorrelation of the decode load; a steady beat comes near -1, noise stays near 0."""
        return min(correlation(self.decode, self.decode, lag) for lag in range(LAGS_S))


def correlation(one: Series, other: Series, lag: int) -> float:
    """Of `one` with what `other` is `lag` steps later; 0 where one of them never moves."""
    a, b = one[: len(one) - lag], other[lag:]
    return float(np.corrcoef(a, b)[0, 1]) if a.std() > 0 and b.std() > 0 else 0.0


def traffic(seed: int, load: float, end_s: float) -> Schedule:
    """With prompts of all lengths each arm would serve other ones, and counts of requests would not compare."""
    planned = schedule("mooncake-like", CAPACITY_PER_S * load, end_s, seed, start_full=False)
    plain = tuple(
        replace(one, demand=replace(one.demand, prompt_tokens=PROMPT_TOKENS, prefix=())) for one in planned.requests
    )
    return replace(planned, requests=plain)


def run(arm: Arm, seed: int, load: float, window: Window) -> Found:
    simulation = arm.simulation(traffic(seed, load, window.end_s))
    watch = Watch(simulation, 1.0)
    watch.start()
    return judge(watch, simulation.run().results, window)


def judge(watch: Watch, results: Sequence[Result], window: Window) -> Found:
    mine = [one for one in results if window.warm_s <= one.intended_s <= window.end_s]
    computed = {one.index: one.planned_prompt_tokens for one in mine if dict(one.stages_s).get("prefill")}
    wasted = sum(tokens for index, tokens in computed.items() if results[index].ending is not Ending.COMPLETED)
    seen = watch.between(window.warm_s, window.end_s)
    kv = kv_tokens(watch.simulation.layout)
    return Found(
        goodput=sum(map(good, mine)) / window.length_s,
        rejected=sum(one.ending is Ending.REJECTED for one in mine) / max(1, len(mine)),
        wasted_tokens=wasted / max(1, sum(computed.values())),
        prefill=np.array([each.prefilling_tokens for each in seen], dtype=np.float64) / kv,
        decode=decode_load(results, np.array([each.at_s for each in seen]), kv),
    )


def decode_load(results: Sequence[Result], at_s: Series, kv: float) -> Series:
    """An answer is held from the end of its prefill to its own, with half of its length on the mean."""
    load = np.zeros(len(at_s))
    for one in results:
        if one.ending is Ending.COMPLETED:
            stages_s = dict(one.stages_s)
            start_s = one.intended_s + stages_s["queue"] + stages_s["prefill"]
            load[(start_s <= at_s) & (at_s < one.end_s)] += one.planned_prompt_tokens + one.output_tokens / 2
    return load / kv


def good(result: Result) -> bool:
    if result.ending is not Ending.COMPLETED or result.first_s is None:
        return False
    return result.first_s - result.intended_s <= PROMISE_S and tpot_s(result) <= TPOT_S


def row(name: str, found: Sequence[Found]) -> str:
    return (
        f"| {name} | {mean_of(f.goodput for f in found):.2f}"
        f" | {mean_of(f.rejected for f in found):.1%}"
        f" | {mean_of(f.wasted_tokens for f in found):.1%} | {mean_of(f.decode.mean() for f in found):.1%}"
        f" | {mean_of(f.decode.std() for f in found):.1%} | {mean_of(f.prefill.std() for f in found):.1%}"
        f" | {mean_of(f.antiphase for f in found):.2f}"
        f" | {mean_of(f.rhythm for f in found):.2f} |"
    )


def figures(found: dict[str, Found], stem: Path) -> None:
    loads = [
        Line(name, [(float(second), share) for second, share in enumerate(each.decode)]) for name, each in found.items()
    ]
    beats = [
        Line(name, [(float(lag), correlation(each.decode, each.decode, lag)) for lag in range(LAGS_S)])
        for name, each in found.items()
    ]
    for suffix, title, x, y, lines in (
        ("load", "Decode load at twice the load", Axis("s"), Axis("share of decode KV", low=0.0, percent=True), loads),
        ("correlation", "Autocorrelation of the decode load", Axis("lag, s"), Axis("", low=-1.0, high=1.0), beats),
    ):
        text = standalone(title, chart(title, x, y, lines), list(found))
        stem.with_name(f"{stem.name}-{suffix}.svg").write_text(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arm", action="append", choices=[arm.name for arm in ARMS])
    parser.add_argument("--load", type=float, default=2.0)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="two seeds, half of the time")
    parser.add_argument("--figure", type=Path, metavar="STEM", help="draw the first seed")
    given = parser.parse_args()
    seeds, window = given.seeds, WINDOW
    if given.quick:
        seeds, window = min(2, seeds), Window(WINDOW.warm_s, WINDOW.warm_s + WINDOW.length_s / 2)
    head = (
        "arm",
        "goodput /s",
        "rejected",
        "prefill wasted",
        "decode load",
        "its ±",
        "prefill load ±",
        "correlation",
        "beat",
    )
    print(f"| {' | '.join(head)} |\n|{' --- |' * len(head)}")
    first: dict[str, Found] = {}
    for arm in ARMS:
        if given.arm and arm.name not in given.arm:
            continue
        found = [run(arm, seed, given.load, window) for seed in range(1, seeds + 1)]
        first[arm.name] = found[0]
        print(row(arm.name, found), flush=True)
    if given.figure:
        figures(first, given.figure)


if __name__ == "__main__":
    main()
