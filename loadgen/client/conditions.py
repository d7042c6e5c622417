"""What tandem's gateway tells of the conditions that a benchmark must publish (R-65), and of the GPUs behind it; other
targets tell neither."""

from collections.abc import Sequence
from typing import Any


def conditions_of(status: Any) -> dict[str, str]:
    """Out of the document of `/tandem/v1/status`; {} for anything else."""
    try:
        limits, workers = status["limits"], status["workers"]
        return {
            "engine": _each(workers, "engine"),
            "engine_version": _each(workers, "engine_version"),
            "node": _each(workers, "device"),
            "admission_limit": f"KV reserved before prefill; at most {limits['max_queued']:d} wait, "
            f"for {limits['queue_s']:g} s",
            "preemption_policy": str(limits["preemption"]),
        }
    except (KeyError, TypeError, ValueError):
        return {}


def gpus_of(status: Any) -> int:
    """What the workers that are there stand on, by their degrees; 0 where the document does not tell."""
    try:
        there = [worker for worker in status["workers"] if worker["status"] != "gone"]
        return sum(int(worker["tp"]) * int(worker["pp"]) for worker in there)
    except (KeyError, TypeError, ValueError):
        return 0


def _each(workers: Sequence[Any], member: str) -> str:
    return ", ".join(sorted({str(worker[member]) for worker in workers if worker[member]}))
