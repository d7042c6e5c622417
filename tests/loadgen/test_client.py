"""The client against a target with a known script."""

from dataclasses import replace

import pytest

from loadgen.client.processes import Execution
from loadgen.client.prompts import PromptWriter
from loadgen.client.runner import Job, slices
from loadgen.client.target import Surface
from loadgen.demand import Demand
from loadgen.result import Ending, Result
from loadgen.schedule import Planned
from loadgen.scripted.script import Act, Beat, Script, answer, refusal, steady
from loadgen.scripted.server import Behaviour, serving
from tests.loadgen.live import near, plan, prepared, run, scripts, slack_s
from tests.waiting import HANG_S


@pytest.mark.parametrize("surface", Surface)
async def test_known_timings_are_reported(surface: Surface) -> None:
    script = answer(0.2, [0.05, 0.1, 0.05], [1, 3, 1, 2], tail_s=0.05, role_s=0.05)
    (r,) = await run(Behaviour(scripts(script)), plan(0.1, output_tokens=7), surface=surface)
    assert r.ending is Ending.COMPLETED
    assert near(r.ttft_s, 0.2)
    assert near(r.e2e_s, 0.45)
    assert r.output_tokens == 7
    assert list(r.chunk_tokens) == [1, 3, 1, 2]
    assert r.tokens_from == "continuous"
    assert r.token_gaps_s().tolist() == pytest.approx([0.05, 0, 0, 0.1, 0.05, 0], abs=slack_s())
    assert r.tpot_s is not None
    assert r.tpot_s == pytest.approx((r.e2e_s - (r.ttft_s or 0)) / 6)
    assert r.prompt_tokens == r.planned_prompt_tokens == 12


@pytest.mark.slow
async def test_every_way_to_end_is_told_apart() -> None:
    cases: list[tuple[Script, Ending, str]] = [
        (answer(0.01, [0.01] * 2), Ending.COMPLETED, ""),
        (refusal(429, "queue_full"), Ending.REJECTED, "queue_full"),
        (refusal(500), Ending.FAILED, "scripted"),
        (Script((Beat(0.01, Act.ROLE), Beat(0.02, Act.FINISH))), Ending.FAILED, "no_tokens"),
        (answer(0.01, [0.01], end=Act.CUT), Ending.FAILED, "stream_cut"),
        (replace(answer(0.01, [0.01], end=Act.ERROR), code="decode_failed"), Ending.FAILED, "decode_failed"),
        (answer(0.01, [0.01], end=Act.RESET), Ending.FAILED, "connection"),
        (Script((Beat(0.01, Act.CONTENT, 1),)), Ending.TIMED_OUT, "timeout"),
        (Script((Beat(0.01, Act.EMPTY, 0), Beat(0.05, Act.CONTENT, 1), Beat(0.06, Act.FINISH))), Ending.COMPLETED, ""),
    ]
    times = [0.05 * i for i in range(len(cases))]
    results = await run(Behaviour(scripts(*(c[0] for c in cases))), plan(*times), timeout_s=3)
    for r, (_, ending, reason) in zip(results, cases, strict=True):
        assert r.ending is ending
        assert r.reason.startswith(reason)
    assert near(results[7].e2e_s, 3.0)
    assert near(results[8].ttft_s, 0.05)


async def test_open_loop_sends_on_time_whatever_the_target_does() -> None:
    hang = Script((Beat(0.5, Act.CONTENT, 1), Beat(0.51, Act.FINISH)))
    results = await run(Behaviour(scripts(hang)), plan(*(0.02 * i for i in range(20))))
    assert [r.intended_s for r in results] == pytest.approx([0.02 * i for i in range(20)])
    assert all(0 <= r.send_lag_s < slack_s() for r in results)
    assert max(r.sent_s for r in results) < min(r.first_s or 0 for r in results) + slack_s()


async def test_closed_loop_keeps_its_concurrency() -> None:
    behaviour = Behaviour(scripts(answer(0.02, [0.02])))
    results = await run(behaviour, plan(*[0.0] * 12), concurrency=3)
    assert behaviour.peak_streams == 3
    assert len(results) == 12
    assert all(r.send_lag_s < slack_s() for r in results)


@pytest.mark.slow
async def test_impatient_client_leaves_before_the_first_token_and_the_target_sees_it() -> None:
    behaviour = Behaviour(scripts(answer(10 * HANG_S), answer(0.05)))
    slow, fast = await run(behaviour, plan(0.0, 0.2, patience_s=3.0))
    assert (slow.ending, slow.reason) == (Ending.ABANDONED, "patience")
    assert near(slow.e2e_s, 3.0)
    assert fast.ending is Ending.COMPLETED
    assert behaviour.open_streams == 0


async def test_planned_leave_after_tokens_is_not_judged() -> None:
    behaviour = Behaviour(scripts(answer(0.01, [0.2] * 50)))
    (r,) = await run(behaviour, plan(0.0, leave_after_tokens=3))
    assert r.ending is Ending.CANCELLED
    assert 3 <= len(r.chunk_s) < 15
    assert behaviour.open_streams == 0


async def test_paced_turns_follow_the_answer_before_them() -> None:
    first = Planned(0, 0.0, Demand(10, 3, session="s"))
    second = Planned(1, 0.0, Demand(20, 3, session="s", turn=1, think_s=0.1), after=0)
    results = await run(Behaviour(scripts(answer(0.1, [0.05, 0.05]))), [first, second])
    assert near(results[1].intended_s - results[0].end_s, 0.1)
    assert results[1].send_lag_s < slack_s()


async def test_stop_ends_early_with_what_there_is() -> None:
    behaviour = Behaviour(scripts(answer(0.05), answer(10 * HANG_S)))
    async with serving(behaviour) as url:
        ready = await prepared(url)
        job = Job(
            ready.target, PromptWriter(ready.vocabulary), tuple(plan(0, 0.1, 10 * HANG_S)), 0.0
        )  # the last is not waited for
        execution = Execution(
            job, lead_s=0.1, watch=lambda progress, done: execution.stop() if (progress.sent, done) == (2, 1) else None
        )
        gathered = await execution.run()
    assert not gathered.complete
    assert [(r.index, r.ending) for r in gathered.results] == [(0, Ending.COMPLETED), (1, Ending.CANCELLED)]


@pytest.mark.slow
async def test_several_processes_share_one_schedule_and_one_clock() -> None:
    behaviour = Behaviour(scripts(answer(0.05, [0.01] * 4)))
    times = [0.02 * i for i in range(40)]
    results = await run(behaviour, plan(*times, output_tokens=5), processes=2)
    assert [r.index for r in results] == list(range(40))
    assert [r.intended_s for r in results] == pytest.approx(times)
    assert all((r.ttft_s or 0) > 0.048 for r in results)
    assert all(r.send_lag_s >= 0 for r in results)  # the stalls of the other processes are not known here


@pytest.mark.slow
async def test_several_processes_stop_together() -> None:
    behaviour = Behaviour(scripts(answer(10 * HANG_S)))
    async with serving(behaviour) as url:
        ready = await prepared(url)
        job = Job(ready.target, PromptWriter(ready.vocabulary), tuple(plan(*[0.0] * 6)), 0.0)
        execution = Execution(
            job, processes=2, lead_s=0.1, watch=lambda progress, _: execution.stop() if progress.sent == 6 else None
        )
        gathered = await execution.run()
    assert [r.ending for r in gathered.results] == [Ending.CANCELLED] * 6


def test_sessions_are_never_split_over_processes() -> None:
    d = Demand(1, 1)
    requests = [Planned(0, 0, d), Planned(1, 0, d), Planned(2, 1, d, after=0), Planned(3, 2, d, after=2)]
    assert [[p.index for p in part] for part in slices(requests, 2)] == [[0, 2, 3], [1]]


async def test_a_kept_connection_that_the_target_closed_is_replaced() -> None:
    behaviour = Behaviour(scripts(answer(0.0)))
    async with serving(behaviour) as url:
        ready = await prepared(url)
        job = Job(ready.target, PromptWriter(ready.vocabulary), tuple(plan(0.0)), 0.0)
        for _ in range(2):
            gathered = await Execution(job, lead_s=0.1).run()
            assert gathered.results[0].ending is Ending.COMPLETED


def _check_all(results: list[Result]) -> None:
    assert all(r.ending is Ending.COMPLETED for r in results)


@pytest.mark.slow
async def test_many_short_streams_at_once() -> None:
    behaviour = Behaviour(steady(2.0, 0.02), keep_bodies=False)
    _check_all(await run(behaviour, plan(*(0.002 * i for i in range(300)), output_tokens=5)))
    assert behaviour.peak_streams > 100
