"""Layouts in the words of `tandem up`, and what is wrong with them."""

import pytest

from gateway.policy.roles import Aims
from loadgen.failure import LoadgenError
from loadgen.simulate import Addition, Declared, Failure, RoleChange, parse_layout
from loadgen.simulate.fleet import SimFleet
from proto.worker import Role

LLAMA = "--profile h200-sxm/llama-3.1-8b"


def test_words_of_tandem_up() -> None:
    one = parse_layout(
        f"{LLAMA} --prefill 2 --decode 1 --decode-tp 4 --set gateway.routing.local_prefill_below_tokens=99"
    )
    assert [(pool.role, pool.workers, pool.profile.tp) for pool in one.pools] == [
        (Role.PREFILL, 2, 1),
        (Role.DECODE, 1, 4),
    ]
    assert one.gpus == 6
    assert one.gateway.routing.local_prefill_below_tokens == 99
    assert one.model == "llama-3.1-8b"


def test_no_layout_is_one_prefill_and_one_decode_worker() -> None:
    assert [pool.role for pool in parse_layout("--profile toy").pools] == [Role.PREFILL, Role.DECODE]


def test_words_of_a_simulation() -> None:
    one = parse_layout(
        f"{LLAMA} --colocated 2 --fail colocated-0@5:10 --role colocated-1=decode@3 --add colocated=1@4 --start 7 "
        "--declared none --no-admission --overhead-ms 2 --gpus-per-node 4 --fluid 800:40"
    )
    assert one.changes == (
        Failure("colocated-0", 5, 10),
        RoleChange("colocated-1", Role.DECODE, 3),
        Addition(Role.BOTH, 1, 4),
    )
    assert (one.start_s, one.declared, one.admission, one.gpus_per_node) == (7, Declared.NONE, False, 4)
    assert one.overheads.prefill_s == 0.002
    assert one.roles is not None
    assert one.roles(float).aims == Aims(0.8, 0.04)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("--nonsense 3", "No such option: --nonsense"),
        ("--prefill two", "two"),
        ("--profile nope", "no profile 'nope'"),
        ("--prefill 0 --decode 0", "no worker at all"),
        ("--fail decode-0", "WORKER@AT_S:DOWN_S"),
        ("--fail decode-0@1.2.3:4", "WORKER@AT_S:DOWN_S"),
        ("--role decode-0=both@.", "WORKER=ROLE@AT_S"),
        ("--add decode=1@1..2", "POOL=COUNT@AT_S"),
        ("--add colocated=1@1", "no both pool"),
        ("--start -5", "--start -5 is not a time"),
        ("--start nan", "--start nan is not a time"),
        ("--overhead-ms inf", "--overhead-ms inf is not a time"),
        ("--set gateway.routing.fluid.ttft_ms=9 --set gateway.routing.fluid.tpot_ms=9", "with --fluid TTFT:TPOT"),
        ("--fluid 800", "--fluid 800 is not TTFT:TPOT"),
        ("--fluid 800:0", "is not TTFT:TPOT"),
        ("--set gateway.nonsense=1", "nonsense"),
        ("--set gateway.routing.handoff_after_tokens=8", "after the first token only"),
        ("--profile 'toy", "quot"),
        ("--profile file:/nowhere/at.all", "No such file"),
        (f"--profile file:{__file__}", "not JSON"),
    ],
)
def test_mistakes_are_named(words: str, complaint: str) -> None:
    with pytest.raises(LoadgenError, match=complaint):
        parse_layout(words)


def test_workers_fill_nodes_and_links_leave_them_over_rdma() -> None:
    fleet = SimFleet(parse_layout(f"{LLAMA} --prefill 6 --decode 2 --decode-tp 4"))
    assert {name: worker.node for name, worker in fleet.workers.items() if worker.role.decodes} == {
        "decode-0": 1,  # four GPUs do not fit in what six leave of the first node
        "decode-1": 1,
    }
    assert fleet.links_of("decode-0")["prefill-0"].transport == "rdma"
    assert fleet.links_of("decode-0")["decode-1"].transport == "nvlink"
