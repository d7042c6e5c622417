"""Admission by forecast against its baselines and an oracle, in virtual time.

    python -m benchmarks.admission                        # three workloads, four loads, five seeds
    python -m benchmarks.admission --cold                 # the first minutes of a gateway that knows nothing
    python -m benchmarks.admission --quick                # two loads, two seeds, shorter
    python -m benchmarks.admission --workload r1-production --load 1.0 --rule forecast --rule oracle
    python -m benchmarks.admission --workload natural-reasoning --window 100 350    # a short one
    python -m benchmarks.admission --capacity             # what the oracle completes under far too much

4 decode workers of TP2 (Llama-3.1-70B on H200, a cost model) beside prefill workers that never bind. Clients declare
the rest of a window of 40,960 tokens as max_tokens. Good: decode has begun within 10 s, 60 ms a token after that. The
gateway turns away whoever has waited 8 s. All rules that need lengths have learnt them from 2,000 earlier answers, as a
gateway that was restarted with its saved state, and go on learning; with --cold they begin with the shipped prior.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.admission.contenders import ABLATIONS, CONTENDERS, ORACLE
from benchmarks.admission.contest import Cell, Contest, trial
from benchmarks.admission.fleet import Service
from benchmarks.admission.table import course, markdown
from benchmarks.admission.trial import Window
from benchmarks.admission.workloads import WORKLOADS, Workload
from decode_pool.expected import Admission

LOADS = (0.6, 1.0, 1.15, 1.3)


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", action="append", choices=WORKLOADS)
    parser.add_argument("--file", metavar="WORDS", help="a trace or family in loadgen's words, with --rate")
    parser.add_argument("--rate", type=float, help="requests/s that are 100 %% of --file")
    parser.add_argument("--load", action="append", type=float)
    parser.add_argument("--rule", action="append", choices=CONTENDERS)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--store", type=Path, help="JSON lines: trials kept there are not run again")
    parser.add_argument("--cold", action="store_true", help="nothing is known of lengths when the run begins")
    parser.add_argument(
        "--window", nargs=2, type=float, metavar="S", help="judge what comes between, and let no more come"
    )
    parser.add_argument("--course", action="store_true", help="goodput by time of arrival, too")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--capacity", action="store_true")
    shipped = Admission()
    parser.add_argument("--epsilon", type=float, default=shipped.epsilon)
    parser.add_argument("--pool-share", type=float, default=shipped.pool_share)
    parser.add_argument("--spread", type=float, default=shipped.spread)
    given = parser.parse_args(words)
    ours = Admission(given.epsilon, given.pool_share, given.spread)
    workloads = [WORKLOADS[name] for name in given.workload or WORKLOADS]
    if given.file:
        workloads = [Workload(given.file, given.file, given.rate, WORKLOADS["r1-production"].window)]
    if given.cold:
        workloads = [workload.at_first() for workload in workloads]
    if given.window:
        workloads = [replace(workload, window=Window(*given.window)) for workload in workloads]
    if given.capacity:
        for workload in workloads:
            found = trial(workload, Service(), Cell(ORACLE, 2.0, 1))
            print(f"{workload.name}: {found.completed:.2f} requests/s, KV {found.kv_used:.1%} used", flush=True)
        return
    loads, seeds = given.load or LOADS, given.seeds
    rules = [name for name in CONTENDERS if name not in ABLATIONS]
    if given.quick:
        loads, seeds = given.load or (1.0, 1.3), min(2, seeds)
        workloads = [workload.shorter(0.3) for workload in workloads]
    print(f"$ python -m benchmarks.admission {' '.join(words if words is not None else sys.argv[1:])}")
    for workload in workloads:
        contest = Contest(workload, Service(), learnt=not given.cold)
        if given.store:
            contest.remember(given.store)
        contest.run(given.rule or rules, loads, seeds, given.processes, ours)
        print(f"\n{markdown(contest)}", flush=True)
        if given.course:
            print(f"\n{course(contest)}", flush=True)


if __name__ == "__main__":
    main()
