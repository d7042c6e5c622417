"""Progress without a terminal."""

import threading

from loadgen.plan.lines import Lines


def test_the_stage_under_way_is_told_with_the_time_since_the_beginning() -> None:
    said: list[str] = []
    now_s = 100.0
    lines = Lines(said.append, lambda: now_s)
    lines.tell()
    lines("screening", 3, 40)
    lines("screening", 4, 40)
    now_s = 131.4
    lines.tell()
    lines("finals", 0, 2)
    lines.tell()
    assert said == ["screening: 4 of 40, 31 s", "finals: 0 of 2, 31 s"]


def test_it_is_told_again_and_again_until_the_work_is_done() -> None:
    thrice = threading.Semaphore(0)
    lines = Lines(lambda _: thrice.release())
    lines("screening", 1, 2)
    before = threading.active_count()
    with lines.again_and_again(0.001):
        for _ in range(3):
            thrice.acquire()
    assert threading.active_count() == before
