"""Who prefills what is handed off."""

from gateway.policy.prefill_choice import choose_prefill
from gateway.policy.routing import Link
from tests.gateway.policy.test_routing import prefill


def test_the_least_busy_prefill_worker_wins_and_the_faster_link_breaks_ties() -> None:
    links = {"p0": Link("tcp"), "p1": Link("shm"), "p2": Link("nvlink")}
    busy = [prefill("p0", 100), prefill("p1", 50), prefill("p2", 5000)]
    assert choose_prefill(100, 1000, busy, links) == "p1"
    idle = [prefill("p0"), prefill("p1"), prefill("p2")]
    assert choose_prefill(100, 1000, idle, links) == "p2"


def test_a_slow_link_costs_what_it_costs() -> None:
    links = {"p0": Link("tcp", 1e6), "p1": Link("shm", 1e10)}
    assert choose_prefill(1000, 100_000, [prefill("p0"), prefill("p1", 5000)], links) == "p1"


def test_a_bad_first_measurement_does_not_bar_a_worker() -> None:
    links = {"p0": Link("shm"), "p1": Link("shm")}
    assert choose_prefill(1000, 10, [prefill("p0", 0, speed=100), prefill("p1", 2000, speed=10_000)], links) == "p0"


def test_the_faster_prefill_is_the_more_the_link_counts() -> None:
    links = {"p0": Link("tcp", 1e8), "p1": Link("shm", 1e10)}
    for speed, chosen in ((1_000.0, "p0"), (1_000_000.0, "p1")):
        workers = [prefill("p0", 0, speed=speed), prefill("p1", 1000, speed=speed)]
        assert choose_prefill(1000, 10_000, workers, links) == chosen


def test_unlinked_prefill_workers_are_never_chosen() -> None:
    assert choose_prefill(10, 10, [prefill("p0")], {}) is None
    assert choose_prefill(10, 10, [prefill("p0"), prefill("p1")], {"p1": Link("tcp")}, avoid={"p1"}) == "p1"
