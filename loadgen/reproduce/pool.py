"""Runs cases one by one or in several processes, each distinct case once."""

from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context

from loadgen.reproduce.batch import BatchRun
from loadgen.reproduce.case import Case, run_case

#: Told after each case: how many are done, and of how many.
Watch = Callable[[int, int], None]
Runs = dict[Case, BatchRun | None]


def run_cases(cases: Iterable[Case], seed: int, *, jobs: int = 1, watch: Watch | None = None) -> Runs:
    """The results do not depend on `jobs`."""
    distinct = list(dict.fromkeys(cases))
    tell = watch or _nobody
    if jobs <= 1:
        runs: Runs = {}
        for case in distinct:
            runs[case] = run_case(case, seed)
            tell(len(runs), len(distinct))
        return runs
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        futures = {pool.submit(run_case, case, seed): case for case in distinct}
        found: Runs = {}
        for future in as_completed(futures):
            found[futures[future]] = future.result()
            tell(len(found), len(distinct))
    return {case: found[case] for case in distinct}


def _nobody(done: int, total: int) -> None:
    return None
