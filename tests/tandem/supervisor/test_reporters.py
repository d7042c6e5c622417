import io
import time
from pathlib import Path

from rich.console import Console

from tandem.supervisor.child import Death
from tandem.supervisor.live import LiveReporter
from tandem.supervisor.plan import Plan
from tandem.supervisor.reporter import STARTING, STILL_S, PlainReporter, Reporter
from tests.tandem.supervisor.cluster import plan_of

DEATH = Death("decode-0", -9, 12.0, ("loading weights", "out of [memory]"))


def console(terminal: bool) -> tuple[Console, io.StringIO]:
    out = io.StringIO()
    return Console(file=out, force_terminal=terminal, width=120), out


def play(reporter: Reporter, plan: Plan) -> None:
    reporter.begin(plan)
    reporter.started("decode-0", 4711)
    for _ in range(3):
        reporter.state("decode-0", "warming", "")
    reporter.state("decode-0", "ready", "")
    reporter.ready(["it is ready"])
    reporter.died(DEATH, "decode-0.log", 2.0)
    reporter.note("bye")
    reporter.end()


def test_plain_lines_tell_each_change_once(tmp_path: Path) -> None:
    shown, out = console(terminal=False)
    play(PlainReporter(shown), plan_of(tmp_path))
    text = out.getvalue()
    assert text.count("warming") == 1
    assert "started, pid 4711" in text
    assert "it is ready" in text
    assert "killed by SIGKILL (often the kernel, out of memory)" in text
    assert "out of [memory]" in text  # brackets of a log are not markup
    assert "starting again in 2 s" in text
    assert "\x1b" not in text


def test_where_nothing_can_be_drawn_over_a_long_start_says_every_so_often_that_it_goes_on(tmp_path: Path) -> None:
    plan, now = plan_of(tmp_path), [100.0]
    name, log = plan.workers[0].name, plan.workers[0].log
    log.write_text("2026-11-30 18:00:00,123 loading weights [1/3]\n")
    shown, out = console(terminal=False)
    reporter = PlainReporter(shown, lambda: now[0])
    reporter.begin(plan)
    reporter.started(name, 4711)
    for _ in range(25):  # polled every second
        now[0] += 1
        reporter.state(name, STARTING, "")
    reporter.state(name, "ready", "")
    now[0] += 100
    reporter.state(name, "ready", "")
    told = [line for line in out.getvalue().splitlines() if "still" in line]
    assert len(told) == 25 // STILL_S == 2
    assert [line.partition("still ")[2] for line in told] == ["starting: loading weights [1/3]", "starting"]


def test_a_terminal_gets_a_table_with_the_end_of_each_log(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    plan.workers[0].log.write_text("first\nloading weights [1/3]\n")
    shown, out = console(terminal=True)
    reporter = LiveReporter(shown)
    reporter.begin(plan)
    reporter.started("prefill-0", 4711)
    reporter.state("decode-0", "ready", "")
    time.sleep(0.6)  # two redraws
    reporter.end()
    text = out.getvalue()
    assert "loading weights [1/3]" in text
    assert "✓" in text


def test_after_the_start_a_terminal_gets_plain_lines(tmp_path: Path) -> None:
    shown, out = console(terminal=True)
    play(LiveReporter(shown), plan_of(tmp_path))
    after = out.getvalue().split("it is ready")[1]
    assert "out of [memory]" in after
    assert "bye" in after


def test_a_failed_start_keeps_the_reason_on_the_screen(tmp_path: Path) -> None:
    shown, out = console(terminal=True)
    reporter = LiveReporter(shown)
    reporter.begin(plan_of(tmp_path))
    reporter.died(DEATH, "decode-0.log", None)
    assert out.getvalue().rstrip().endswith("out of [memory]\x1b[0m")
    reporter.end()
