"""Timers in virtual time, and deadlines of which most are met."""

from functools import partial
from random import Random

from engine.simulated.timers import Timers


def test_timers_and_deadlines_that_nobody_met_fire_in_order_of_time_and_of_asking() -> None:
    random, timers, fired = Random(1), Timers(), list[tuple[float, int]]()
    wanted, now_s = [], 0.0
    for number in range(500):
        now_s += random.choice((0.0, 0.25, 1.0))
        delay_s = random.choice((0.5, 3.0, 40.0))
        action = partial(fired.append, (now_s + delay_s, number))
        if random.random() < 0.5:
            timers.at(now_s + delay_s, action)
        else:
            timers.deadline(now_s, delay_s, action, lambda: False)
        wanted.append((now_s + delay_s, number))
    while (next_s := timers.next_s) < float("inf"):
        timers.fire()
        assert fired[-1][0] == next_s
    assert fired == sorted(wanted)


def test_a_deadline_that_is_met_when_its_turn_comes_is_left_out() -> None:
    timers, fired, met = Timers(), list[int](), set[int]()
    for number in range(4):
        timers.deadline(float(number), 10.0, partial(fired.append, number), partial(met.__contains__, number))
    met |= {1, 2}
    timers.fire()
    assert (fired, timers.next_s) == ([0], 13.0)
    timers.fire()
    assert (fired, timers.next_s) == ([0, 3], float("inf"))
    timers.deadline(20.0, 10.0, partial(fired.append, 4), lambda: False)
    assert timers.next_s == 30.0


def test_an_action_may_ask_for_another_deadline_of_the_same_delay() -> None:
    timers, fired = Timers(), list[float]()

    def again() -> None:
        fired.append(timers_now := 10.0 * (len(fired) + 1))
        if len(fired) < 3:
            timers.deadline(timers_now, 10.0, again, lambda: False)

    timers.deadline(0.0, 10.0, again, lambda: False)
    while timers.next_s < float("inf"):
        timers.fire()
    assert fired == [10.0, 20.0, 30.0]
