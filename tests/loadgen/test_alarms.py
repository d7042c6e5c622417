"""What a report says before any figure."""

from typing import Any

from loadgen.report.alarms import alarms


def _run(arm: str, rate: float | None, repetition: int = 0, **more: Any) -> dict[str, Any]:
    return {"arm": arm, "rate": rate, "repetition": repetition, "invalid": [], "warnings": [], **more}


def test_a_warning_of_many_runs_is_said_once_with_where() -> None:
    runs = [
        *(_run("pd", rate, n, warnings=[f"short run: {rate * 10 + n:.1f} s"]) for rate in (2, 4) for n in range(3)),
        _run("dp", 4, warnings=["short run: 9.0 s"]),
        _run("dp", 2),
    ]
    page = alarms(runs)
    assert page.count("<li") == 1
    assert "short run: 20.0 s (pd 2/s, to take one); so in 7 of 8 runs: pd at 2, 4/s; dp at 4/s" in page


def test_other_words_are_other_warnings_and_what_is_invalid_comes_first() -> None:
    runs = [_run("pd", 2, warnings=["a"]), _run("pd", 4, warnings=["b"], invalid=["late"])]
    page = alarms(runs)
    assert page.count("<li") == 3
    assert page.index("INVALID, late") < page.index("pd 2/s: a") < page.index("pd 4/s: b")


def test_runs_without_a_rate_and_texts_from_outside() -> None:
    page = alarms([_run("<x>", None, n, warnings=["same"]) for n in range(2)])
    assert "same (&lt;x&gt;); so in 2 of 2 runs: &lt;x&gt;" in page
    assert alarms([_run("pd", 2)]) == ""
