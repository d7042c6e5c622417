"""What moving running answers brings a fleet in which one worker is emptier than the others (R-26), in virtual time.

    python -m benchmarks.moves                       # 3 seeds, without and with balance
    python -m benchmarks.moves --seeds 1 --rate 0.9

Three decode workers of TP2 (Llama-3.1-70B, H200 figures), full of natural-reasoning traffic, get a fourth. New answers go there, but
those that run stay where they are for as long as they last, which is minutes. The spread is that between the fullest and the emptiest
decode worker, as a share of their KV.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.admission.fleet import Service, layout
from benchmarks.admission.trial import good, schedule
from benchmarks.admission.watch import Watch
from gateway.config import GatewayConfig
from gateway.policy.control.controller import controller_of
from loadgen.result import Ending
from loadgen.simulate import Addition, Layout
from loadgen.simulate.simulation import Simulation
from proto.worker import Role

COMES_S, END_S = 120.0, 360.0
SERVICE = Service(queue_s=60.0)
SETTINGS: dict[str, dict[str, float] | None] = {"stays": None, "moves": {"above": 0.5, "spread": 0.1}}


@dataclass(frozen=True, slots=True)
class Figures:
    """`spread`: means over the first minute after the worker has come, and over the two after that."""

    spread: float
    later_spread: float
    moved: int
    moved_gb: float
    preemptions: int
    completed: int
    good: int  # as the admission contest counts them
    tokens: int
    pause_s: float  # longest gap between two tokens of an answer: the 99th percentile


def fleet(balance: dict[str, float] | None) -> Layout:
    plain = layout(SERVICE, decode=3)
    stay: dict[str, dict[str, list[str]]] = {"default": {"on_overrun": []}}  # nothing else moves anything
    policy = plain.gateway.policy.model_dump() | {"rule": "forecast", "balance": balance, "classes": stay}
    gateway = GatewayConfig.model_validate(plain.gateway.model_dump() | {"policy": policy})
    fourth = Addition(Role.DECODE, 1, COMES_S)
    return replace(plain, gateway=gateway, controller=controller_of, changes=(fourth,), start_s=0.0)


def trial(balance: dict[str, float] | None, rate: float, seed: int) -> Figures:
    simulation = Simulation(fleet(balance), schedule("natural-reasoning", rate, END_S, seed))
    watch = Watch(simulation, 1.0)
    watch.start()
    outcome = simulation.run()

    def spread(start_s: float, end_s: float) -> float:
        seen = [one.used for one in watch.between(start_s, end_s) if len(one.used) == 4]
        used = np.array(seen, dtype=np.float64) / watch.blocks
        return float((used.max(axis=1) - used.min(axis=1)).mean())

    done = [one for one in outcome.results if one.ending is Ending.COMPLETED]
    gaps = [one.gaps.longest_s for one in done if one.gaps is not None and len(one.gaps)]
    return Figures(
        spread(COMES_S, COMES_S + 60.0),
        spread(COMES_S + 60.0, COMES_S + 180.0),
        simulation.legs.moves.counts["moved"],
        outcome.moved_bytes / 1e9,
        outcome.preemptions,
        len(done),
        sum(good(one, SERVICE) for one in outcome.results),
        sum(one.output_tokens for one in done),
        float(np.quantile(gaps, 0.99)) if gaps else 0.0,
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rate", type=float, default=1.2, help="requests/s; three workers take 1.18")
    options = parser.parse_args(arguments)
    print(
        "| answers | seed | spread, 1st minute | 2nd and 3rd | moved | KV moved, GB | preempted | completed | good | tokens | "
        "longest gap, p99 |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for seed in range(1, options.seeds + 1):
        for name, balance in SETTINGS.items():
            one = trial(balance, options.rate, seed)
            print(
                f"| {name} | {seed} | {one.spread:.1%} | {one.later_spread:.1%} | {one.moved} | {one.moved_gb:.1f} | "
                f"{one.preemptions} | {one.completed} | {one.good} | {one.tokens:,} | {one.pause_s:.2f} s |",
                flush=True,
            )


if __name__ == "__main__":
    main()
