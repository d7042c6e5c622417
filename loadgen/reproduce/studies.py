"""The published studies as cases to run and quotients to compare.

Where the source does not say the size of a batch or the limit of an engine, the choice is stated in the study's `note`.
No constant is fitted to any row: cost tables, KV capacity and workload are the same for all of them.
"""

from dataclasses import dataclass, replace

from loadgen.reproduce.case import Case
from loadgen.reproduce.layout import Layout, parse_layout
from loadgen.reproduce.lengths import Reasoning
from loadgen.reproduce.published import Published, quotient, secondary, seed

M8 = "deepseek-r1-distill-llama-8b"
M14 = "deepseek-r1-distill-qwen-14b"
M32 = "deepseek-r1-distill-qwen-32b"
M70 = "deepseek-r1-distill-llama-70b"
M405 = "llama-3.1-405b"
M671 = "deepseek-r1"

#: Limits of one engine around the knee, then the published range.
CAPS = (50, 100, 150, 200, 250, 300, 500, 1000, 1500, 2000, 3000, 4000, 5000, 7500, 10_000)


@dataclass(frozen=True, slots=True)
class Row:
    """One run; `published` is seconds end to end, where known."""

    label: str
    case: Case
    published: Published | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    """Seconds of one run over seconds of another: how many times slower it is."""

    label: str
    slower: Case
    faster: Case
    published: Published | None = None


@dataclass(frozen=True, slots=True)
class Study:
    name: str
    title: str
    note: str
    rows: tuple[Row, ...]
    comparisons: tuple[Comparison, ...] = ()
    #: The published limit of sequences at which a sweep of it is fastest.
    best_limit: Published | None = None

    def scaled(self, share: float, host_us: float = 0.0) -> "Study":
        return replace(
            self,
            rows=tuple(replace(row, case=row.case.scaled(share, host_us)) for row in self.rows),
            comparisons=tuple(
                replace(c, slower=c.slower.scaled(share, host_us), faster=c.faster.scaled(share, host_us))
                for c in self.comparisons
            ),
        )


def studies() -> tuple[Study, ...]:
    return (
        concurrency(), scaling(), batch_sizes(), small("14b", M14, secondary(332)), small("8b", M8, None), medium(),
        dense(), moe(), lengths(),
    )  # fmt: skip


def case(model: str, layout: str, requests: int = 2000, cap: int = 2000, scale: float = 1.0) -> Case:
    return Case(model, Layout() if layout == "1 GPU" else parse_layout(layout), requests, cap, Reasoning(scale))


def concurrency() -> Study:
    rows = tuple(Row(f"max_num_seqs {cap:,}", case(M8, "1 GPU", 10_000, cap)) for cap in CAPS)
    return Study(
        "8b-concurrency",
        "8B on one H200, 10,000 sequences, limit of sequences swept",
        "",
        rows,
        best_limit=secondary(2000),
    )


def scaling() -> Study:
    runs = {dp: case(M8, f"DP{dp}", 10_000, 1024) for dp in (1, 2, 4, 8)}
    return Study(
        "8b-scaling",
        "8B, replicas from 1 to 8",
        "batch not published: 10,000, so that the longest answer does not decide; vLLM's default limit of 1,024",
        tuple(Row(str(run.layout), run) for run in runs.values()),
        (Comparison("DP2 over DP8 (4 is linear)", runs[2], runs[8], seed(4.0)),),
    )


def batch_sizes() -> Study:
    known = {500: secondary(61), 5000: secondary(165)}
    runs = {n: case(M8, "DP8", n, 5000) for n in (500, 1000, 2000, 3000, 4000, 5000)}
    return Study(
        "8b-batch",
        "8B, DP8, batch from 500 to 5,000",
        "the notes do not name the model; 8B is assumed",
        tuple(Row(f"batch {n:,}", run, known.get(n)) for n, run in runs.items()),
        (Comparison("batch 5,000 over 500", runs[5000], runs[500], quotient(165, 61)),),
    )


def small(name: str, model: str, best: Published | None) -> Study:
    layouts = ("DP8", "DP4×TP2", "TP8", "PP2×TP4")
    runs = {layout: case(model, layout) for layout in layouts}
    return Study(
        name,
        f"{name.upper()}, batch of 2,000",
        "",
        tuple(Row(layout, run, best if layout == "DP8" else None) for layout, run in runs.items()),
        (Comparison("PP2×TP4 over DP8", runs["PP2×TP4"], runs["DP8"], secondary(3.5)),),
    )


def medium() -> Study:
    layouts = ("1 GPU", "DP8", "DP4×TP2", "DP2×TP4", "TP8")
    runs = {layout: case(M32, layout) for layout in layouts}
    return Study(
        "32b",
        "32B, batch of 2,000",
        "the base of the published speed-ups is not stated; one GPU is assumed",
        tuple(Row(layout, run, secondary(484) if layout == "DP4×TP2" else None) for layout, run in runs.items()),
        (
            Comparison("1 GPU over DP8 (8 is linear)", runs["1 GPU"], runs["DP8"], secondary(4.9)),
            Comparison("1 GPU over TP8", runs["1 GPU"], runs["TP8"], secondary(6.15)),
            Comparison("DP8 over TP8", runs["DP8"], runs["TP8"], quotient(6.15, 4.9)),
            Comparison("DP8 over DP4×TP2", runs["DP8"], runs["DP4×TP2"]),
            Comparison("DP8 over DP2×TP4", runs["DP8"], runs["DP2×TP4"]),
        ),
    )


def dense() -> Study:
    known = {"TP8": secondary(986), "PP8": secondary(7537)}
    runs = {layout: case(M405, layout) for layout in ("TP8", "PP8", "PP4×TP2", "PP2×TP4")}
    short = {layout: case(M405, layout, scale=0.3) for layout in ("TP8", "PP8")}
    return Study(
        "405b",
        "405B, batch of 2,000",
        "no reasoning model: its outputs are unknown, so also with outputs of 0.3 times the length",
        (
            *(Row(layout, run, known.get(layout)) for layout, run in runs.items()),
            *(Row(f"{layout}, outputs × 0.3", run) for layout, run in short.items()),
        ),
        (
            Comparison("PP8 over TP8", runs["PP8"], runs["TP8"], quotient(7537, 986)),
            Comparison("PP8 over TP8, outputs × 0.3", short["PP8"], short["TP8"], quotient(7537, 986)),
        ),
    )


def moe() -> Study:
    known = {"PP4×TP2": secondary(1663), "TP8": secondary(2047)}
    runs = {layout: case(M671, layout) for layout in ("TP8", "PP4×TP2", "PP2×TP4")}
    return Study(
        "671b",
        "671B (R1), batch of 2,000",
        "experts split like everything else (no expert parallelism)",
        tuple(Row(layout, run, known.get(layout)) for layout, run in runs.items()),
        (Comparison("TP8 over PP4×TP2", runs["TP8"], runs["PP4×TP2"], quotient(2047, 1663)),),
    )


def lengths() -> Study:
    """The output length is the unknown that decides the order at 32B, so it is shown and not chosen."""
    scales = (0.1, 0.25, 0.5, 1.0, 1.5)
    pairs = [(s, case(M32, "DP8", scale=s), case(M32, "DP4×TP2", scale=s), case(M32, "TP8", scale=s)) for s in scales]
    return Study(
        "32b-lengths",
        "32B, batch of 2,000, outputs of other lengths (mean 5,770 × factor)",
        "nothing published",
        tuple(Row(f"{c.layout}, outputs × {s:g}", c) for s, *cases in pairs for c in cases),
        tuple(Comparison(f"DP8 over TP8, outputs × {s:g}", dp, tp) for s, dp, _, tp in pairs),
    )
