"""Published beside simulated, as data: what the table, the JSON and the CSV are made from."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from loadgen.reproduce.batch import BatchRun
from loadgen.reproduce.gates import Gate
from loadgen.reproduce.pool import Runs
from loadgen.reproduce.published import Published
from loadgen.reproduce.studies import Comparison, Row, Study

SCHEMA = "loadgen-reproduction/1"
SOURCE = "arXiv 2605.19775; every published figure is second hand"


def document(
    studies: Sequence[Study], runs: Runs, gates: Sequence[Gate], seed: int, share: float, host_us: float = 0.0
) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "source": SOURCE,
        "figures": "model figures, nothing here was measured",
        "seed": seed,
        "share_of_batches": share,
        "host_us_per_sequence": host_us,
        "studies": [_study(study, runs) for study in studies],
        "gates": [asdict(gate) for gate in gates],
    }


def _study(study: Study, runs: Runs) -> dict[str, Any]:
    base = _base(study, runs)
    return {
        "name": study.name,
        "title": study.title,
        "note": study.note,
        "rows": [_row(row, runs[row.case], base) for row in study.rows],
        "comparisons": [_comparison(c, runs) for c in study.comparisons],
        "best_limit": _best_limit(study, runs),
    }


def _base(study: Study, runs: Runs) -> tuple[BatchRun, Row] | None:
    """The run on the fewest GPUs, where that is fewer than others have."""
    fitting = [(run, row) for row in study.rows if (run := runs[row.case]) is not None]
    least = min(fitting, key=lambda pair: pair[0].gpus, default=None)
    return least if least is not None and any(run.gpus > least[0].gpus for run, _ in fitting) else None


def _row(row: Row, run: BatchRun | None, base: tuple[BatchRun, Row] | None) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "label": row.label,
        "model": row.case.model,
        "published_s": None if row.published is None else row.published.value,
        "grade": _grade(row.published),
    }
    if run is None:
        return facts | {"fits": False}
    return facts | {
        "fits": True,
        **run.as_dict(),
        "tokens_per_s_per_gpu": run.tokens_per_s / run.gpus,
        "scaling_efficiency": _efficiency(row, run, base),
    }


def _efficiency(row: Row, run: BatchRun, base: tuple[BatchRun, Row] | None) -> float | None:
    """Speed per GPU over that of the smallest layout with the same requests."""
    if base is None or base[1].case.requests != row.case.requests or base[1].case.lengths != row.case.lengths:
        return None
    return base[0].makespan_s * base[0].gpus / (run.makespan_s * run.gpus)


def _comparison(comparison: Comparison, runs: Runs) -> dict[str, Any]:
    slower, faster = runs[comparison.slower], runs[comparison.faster]
    simulated = None if slower is None or faster is None else slower.makespan_s / faster.makespan_s
    published = None if comparison.published is None else comparison.published.value
    return {
        "label": comparison.label,
        "published": published,
        "grade": _grade(comparison.published),
        "simulated": simulated,
        "same_direction": None if published is None or simulated is None else (published > 1) == (simulated > 1),
    }


def _best_limit(study: Study, runs: Runs) -> dict[str, Any] | None:
    if study.best_limit is None:
        return None
    swept = [(run.makespan_s, run.max_num_seqs) for row in study.rows if (run := runs[row.case]) is not None]
    return {
        "published": study.best_limit.value,
        "grade": _grade(study.best_limit),
        "simulated": min(swept)[1],
    }


def _grade(published: Published | None) -> str:
    return "" if published is None else published.label


#: Columns of the CSV; `None` fields stay empty.
COLUMNS = (
    "study", "label", "model", "layout", "gpus", "requests", "max_num_seqs", "published_s", "grade", "makespan_s",
    "tokens_per_s_per_gpu", "ttft_mean_s", "ttft_p99_s", "tpot_mean_s", "tpot_p99_s", "preemptions", "recomputed_tokens",
    "recomputed_share", "stranded_share", "prefill_share", "decode_share", "collective_share", "scaling_efficiency",
    "failed",
)  # fmt: skip


def flat_rows(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One flat record per run."""
    rows = []
    for study in data["studies"]:
        for row in study["rows"]:
            flat = {"study": study["name"], **row}
            if row["fits"]:
                for name in ("ttft", "tpot"):
                    flat |= {f"{name}_mean_s": row[f"{name}_s"]["mean"], f"{name}_p99_s": row[f"{name}_s"]["p99"]}
            rows.append({column: flat.get(column) for column in COLUMNS})
    return rows
