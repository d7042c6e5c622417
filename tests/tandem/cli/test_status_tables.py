"""What the tables say, and what they must not pretend to know."""

from io import StringIO

import pytest
from rich.console import Console

from gateway.cluster.snapshot import ClusterSnapshot, PairSnapshot
from gateway.cluster.states import PairState, WorkerStatus
from gateway.policy.control.rows import BucketRow, EarlyRow, MoveRow, PolicySnapshot, RolesRow
from tandem.cli.status_tables import render
from tandem.client import policy_of, snapshot_of
from tests.tandem.cli.fake_gateway import STATUS


def shown(snapshot: ClusterSnapshot, policy: PolicySnapshot | None = None) -> str:
    console = Console(file=StringIO(), width=80)
    console.print(render(snapshot, policy))
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_a_pairs_link_is_called_inferred_on_one_line() -> None:
    pair = PairSnapshot("p0", "d0", PairState.USABLE, "", "rdma", 1e9, 0.1, 5, 500, 0.5, 0)
    lines = shown(ClusterSnapshot("g", "disaggregated", "", (), (pair,), {}, 0)).splitlines()
    assert any("p0 → d0" in line and "rdma" in line for line in lines)
    assert sum("inferred" in line and "measured" in line for line in lines) == 1
    assert "inferred" not in shown(ClusterSnapshot("g", "colocated", "", (), (), {}, 0))


def test_answers_by_length_and_early_refusals_in_hindsight_are_shown() -> None:
    policy = PolicySnapshot(
        "v1",
        "forecast",
        buckets=(BucketRow("toy", "257-1024", 1234, 1, 20, 3000, 900, 45_000, 700_000),),
        early=(EarlyRow("ttft_unreachable", 90, 10, 3, 0), EarlyRow("decode_overloaded", 0, 0, 0, 2)),
    )
    lines = shown(ClusterSnapshot("g", "colocated", "", (), (), {}, 0), policy).splitlines()
    assert any(line.split() == ["toy", "257-1024", "1,234", "20", "3,000", "900", "45,000"] for line in lines)
    assert "Refused early as ttft_unreachable: 90 % of 100 rightly (3 not to be judged)" in lines
    assert "Refused early as decode_overloaded: none judged yet (2 open)" in lines


def test_of_a_worker_that_is_gone_nothing_is_shown_that_looks_current() -> None:
    last = {"role": "decode", "tp": 1, "block_size_tokens": 16, "blocks_total": 200, "blocks_used": 77}
    last |= {"blocks_reserved": 55, "running": 33, "step_time_s": 0.099, "pool_blocks": 9, "lease_reservations": 2}
    workers = [
        last | {"worker_id": "d0", "status": WorkerStatus.GONE.value, "reason": "connection lost"},
        last | {"worker_id": "d1", "status": WorkerStatus.READY.value, "blocks_used": 20, "running": 4},
    ]
    lines = shown(snapshot_of({"gateway_id": "g", "mode": "colocated", "workers": workers})).splitlines()
    (gone,) = [line for line in lines if line.startswith("d0 ")]
    assert "gone" in gone
    assert gone.split()[-4:] == ["–", "2", "–", "–"]  # leases are this gateway's own
    (pool,) = [line for line in lines if line.startswith("decode ")]
    assert pool.split()[1:] == ["2", "1", "3,200", "10", "%", "28", "%", "4", "0", "0"]
    assert sum(line.startswith("d1 ") for line in lines) == 2


def test_every_column_whose_name_does_not_say_what_it_counts_is_explained() -> None:
    text = " ".join(shown(snapshot_of(STATUS), policy_of(STATUS)).split())
    for name in (
        "tickets:",
        "blocks: used + reserved / all",
        "leases:",
        "over: inferred",
        "promised:",
        "risk:",
        "under, over:",
    ):
        assert name in text
    bare = " ".join(shown(ClusterSnapshot("g", "colocated", "", (), (), {}, 0)).split())
    assert "promised:" not in bare
    assert "under, over:" not in bare


def test_fluid_roles_are_one_sentence() -> None:
    row = RolesRow({"together": 1200, "handed": 3, "handed_later": 0}, ("b0",), 0.0215, 98e-6, 4.2e-8)
    policy = PolicySnapshot("v1", "forecast", roles=row)
    text = " ".join(shown(ClusterSnapshot("g", "mixed", "", (), (), {}, 0), policy).split())
    assert "Fluid roles: 1,200 together, 3 handed, 0 handed later; leaning to prefill: b0;" in text
    assert "a step takes 21.5 ms, 98 µs a token, 42 ns a KV token" in text
    assert "steps of" not in text


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"b0": 512, "b1": 1152, "b2": 640}, "steps of 512 to 1,152 tokens at 3 workers"),
        ({"b0": 512, "b1": 512}, "steps of 512 tokens at 2 workers"),
    ],
)
def test_limits_of_steps_are_told_as_a_range(told: dict[str, int], said: str) -> None:
    row = RolesRow({"together": 1}, (), 0.02, 1e-4, 0.0, told)
    policy = PolicySnapshot("v1", "forecast", roles=row)
    assert said in " ".join(shown(ClusterSnapshot("g", "mixed", "", (), (), {}, 0), policy).split())


def test_moves_are_one_sentence() -> None:
    moves = (MoveRow("balance", "moved", 1200), MoveRow("overrun", "refused", 3))
    policy = PolicySnapshot("v1", "forecast", moves=moves)
    text = " ".join(shown(ClusterSnapshot("g", "mixed", "", (), (), {}, 0), policy).split())
    assert "Running answers that were to move: 1,200 moved (balance), 3 refused (overrun)" in text


def test_of_very_many_pairs_those_in_trouble_and_those_in_use_are_shown() -> None:
    pairs = [
        PairSnapshot(f"w{a}", f"w{b}", PairState.USABLE, "", "nvlink", 1e9, 0.1, 0, 0, 0.0, 0)
        for a in range(8)
        for b in range(8)
        if a != b
    ]
    pairs[40] = PairSnapshot("w5", "w6", PairState.QUARANTINED, "no answer", "nvlink", 0.0, 0.0, 0, 0, 0.0, 3)
    pairs[50] = PairSnapshot("w7", "w1", PairState.USABLE, "", "nvlink", 1e9, 0.1, 9, 10**9, 0.5, 0)
    lines = shown(ClusterSnapshot("g", "mixed", "", (), tuple(pairs), {}, 0)).splitlines()
    rows = [line for line in lines if "→" in line and "nvlink" in line]
    assert len(rows) == 24
    assert rows[0].startswith("w5 → w6")
    assert rows[1].startswith("w7 → w1")
    assert "w5 → w6: no answer" in lines
    assert "32 more; of all 56 pairs 55 are usable (--json has each)" in lines
    few = shown(ClusterSnapshot("g", "mixed", "", (), tuple(pairs[:24]), {}, 0))
    assert "more; of all" not in few


def test_a_long_name_of_an_engine_cuts_no_figure() -> None:
    worker = {
        "worker_id": "colocated-10", "role": "both", "status": "draining", "engine": "simulated", "tp": 1,
        "engine_version": "1 (h200-sxm/deepseek-r1-distill-llama-70b)", "blocks_total": 15616, "blocks_used": 1234,
        "blocks_reserved": 1456, "running": 128, "step_time_s": 0.021, "lease_reservations": 33,
    }  # fmt: skip
    lines = shown(snapshot_of({"gateway_id": "g", "mode": "colocated", "workers": [worker]})).splitlines()
    (line,) = [line for line in lines if line.startswith("colocated-10")]
    assert line.split()[:2] == ["colocated-10", "draining"]
    assert line.split()[-5:] == ["1234+1456/15616", "33", "128", "21", "ms"]


@pytest.mark.parametrize("host", ["prefill-10", "gpu-node-017.rack-3.example-31337"])
def test_long_names_of_a_pair_break_and_no_figure_is_cut(host: str) -> None:
    pair = PairSnapshot(host, host, PairState.QUARANTINED, "", "nvlink", 271.3e9, 0.1, 12_345, 10**13, 123.4, 1234)
    lines = shown(ClusterSnapshot("g", "mixed", "", (), (pair,), {}, 0)).splitlines()
    at = next(i for i, line in enumerate(lines) if "nvlink" in line)
    end = next(i for i, line in enumerate(lines) if "inferred" in line)
    for figure in ("quarantined", "271.3 GB/s", "10.0 TB in 12345", "81.0 GB/s", "1234"):
        assert figure in lines[at]
    # with what broke put together again, both names are whole
    width = lines[at - 1].index("state")
    assert "".join(line[:width].strip() for line in lines[at:end]).replace(" ", "") == f"{host}→{host}"


def test_what_is_under_way_is_counted_in_words() -> None:
    empty = ClusterSnapshot("g", "mixed", "", (), (), {}, 0)
    assert "Policy v1: forecast, 0 requests under way" in shown(empty, PolicySnapshot("v1", "forecast"))
    assert "Policy v1: forecast, 1 request under way" in shown(empty, PolicySnapshot("v1", "forecast", admitted=1))


def test_where_workers_stand_is_told_where_they_say_it_and_how_far_their_pairs_are_apart() -> None:
    workers = [
        {"worker_id": name, "role": role, "status": "ready", "node": node, "rack": "A", "nvlink_domain": node}
        for name, role, node in (("p0", "prefill", "n1"), ("d0", "decode", "n1"), ("d1", "decode", "n2"))
    ]
    pairs = [
        {"prefill_worker": "p0", "decode_worker": name, "state": "usable", "transport": over, "distance": distance}
        for name, over, distance in (("d0", "nvlink", "domain"), ("d1", "rdma", "rack"))
    ]
    told = shown(snapshot_of({"gateway_id": "g", "mode": "disaggregated", "workers": workers, "pairs": pairs}))
    assert "rack A, node n1, NVLink domain n1: p0, d0" in told
    assert "rack A, node n2, NVLink domain n2: d1" in told
    assert "nvlink (domain)" in told
    assert "rdma (rack)" in told
    assert "the narrowest place that both ends share" in " ".join(told.split())
    silent = shown(snapshot_of(STATUS))
    assert "in brackets" not in silent
    assert "rack" not in silent
