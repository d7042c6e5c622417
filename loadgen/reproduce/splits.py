"""Published comparisons of split and colocated pools, and the contests that stand for them here.

DistServe and Splitwise used GPUs and models that no table here has, so they are compared in shape. The planner of
aiconfigurator used the same tables that ours come from, so its ratios are compared in sign and size.
"""

from loadgen.plan.candidate import Candidate
from loadgen.reproduce.contest import Contest, colocated, split

QWEN, R14, L70 = "h200-sxm/qwen3-32b", "h200-sxm/deepseek-r1-distill-qwen-14b", "h200-sxm/llama-3.1-70b"


def _planner(
    isl: int,
    osl: int,
    limits: tuple[int, int],
    rates: tuple[float, float],
    together: tuple[Candidate, ...],
    apart: tuple[Candidate, ...],
) -> Contest:
    goodput = f"ttft:{limits[0]} tpot:{limits[1]}"
    name, workload = f"{isl} in, {osl} out", f"fixed isl={isl} osl={osl}"
    return Contest(name, workload, goodput, together, apart, rates[1] / rates[0])


def planner_contests() -> list[Contest]:
    """Qwen3-32B on vLLM's tables, 8 H200s: the layouts that its search found best, and its tokens/s per GPU."""
    return [
        _planner(4000, 1000, (2000, 30), (890.8, 902.0), colocated(QWEN, 2, 4), split(QWEN, (4, 1), (1, 4))),
        _planner(8000, 200, (2000, 30), (118.0, 145.7), colocated(QWEN, 2, 4), split(QWEN, (6, 1), (1, 2))),
        _planner(12000, 350, (3000, 25), (116.3, 148.8), colocated(QWEN, 2, 4), split(QWEN, (6, 1), (1, 2))),
        _planner(1000, 6000, (500, 20), (1887.6, 968.8), colocated(QWEN, 2, 4), split(QWEN, (2, 1), (3, 2))),
        _planner(500, 8000, (1000, 15), (1606.0, 645.8), colocated(QWEN, 1, 8), split(QWEN, (4, 1), (1, 4))),
    ]  # fmt: skip


def shape_contests() -> list[Contest]:
    """14B on three GPUs, as many as in DistServe's example: prompts, answers and limits around the one that it has."""
    together = colocated(R14, 3)
    apart = (*split(R14, (2, 1), (1, 1)), *split(R14, (1, 1), (2, 1)))
    return [
        Contest(
            f"{isl} in, {osl} out, TPOT {tpot} ms", f"fixed isl={isl} osl={osl}", f"ttft:{ttft} tpot:{tpot}", together, apart
        )
        for isl, osl, ttft in ((512, 64, 250), (4096, 64, 1000), (4096, 1000, 1000), (128, 4000, 250))
        for tpot in (15, 25, 100)
    ]  # fmt: skip


#: DistServe's example in its parts: 13B on A100s, requests/s; here 14B on H200s, 512 in and 64 out.
EXAMPLE = {"colocated": 1.6, "prefill_only": 5.6, "decode_only": 10.0, "split_of_three": 10.0}


def example_contests() -> dict[str, tuple[Contest, tuple[Candidate, ...]]]:
    """What one GPU serves colocated, prompts alone (answers of one token), and decode alone (prefill workers to spare);
    then two prefill workers with one decode worker."""
    whole = Contest("512 in, 64 out", "fixed isl=512 osl=64", "ttft:250 tpot:25", (), ())
    first = Contest("512 in, 1 out", "fixed isl=512 osl=1", "ttft:250", (), ())
    return {
        "colocated": (whole, colocated(R14, 1)),
        "prefill_only": (first, colocated(R14, 1, budgets=(2048, 8192))),
        "decode_only": (whole, split(R14, (7, 1), (1, 1), (8192,))),
        "split_of_three": (whole, split(R14, (2, 1), (1, 1))),
    }


#: Splitwise's best pools at equal power, 40 machines: prompt machines of all.
SPLITWISE = {"azure-code": 35 / 40, "azure-conv": 25 / 40}
#: Engines of 70B on four GPUs, where Splitwise had machines of eight A100 or H100.
MACHINES, TP = 8, 4


def machine_splits(workload: str) -> list[tuple[int, Contest, tuple[Candidate, ...]]]:
    contest = Contest(workload, workload, "ttft:1000 tpot:60", (), ())
    return [(n, contest, split(L70, (n, TP), (MACHINES - n, TP), (8192,))) for n in range(1, MACHINES)]
