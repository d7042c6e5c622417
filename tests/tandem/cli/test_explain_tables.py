"""What `tandem explain` prints of one prompt."""

from io import StringIO
from typing import Any

from rich.console import Console, RenderableType

from tandem.cli.explain_tables import render, render_error


def printed(what: RenderableType) -> list[str]:
    console = Console(file=StringIO(), width=100)
    console.print(what)
    assert isinstance(console.file, StringIO)
    return [" ".join(line.split()) for line in console.file.getvalue().splitlines()]


def shown(look: dict[str, Any], likely_tokens: int = 300) -> list[str]:
    estimate = {"mean": 300.0, "p50": 250.0, "p90": 700.0, "p99": 900.0}
    head = {"request_id": "r", "klass": "default", "policy": "v1", "rule": "forecast", "age_s": 1.0}
    sizes = {"prompt_tokens": 4000, "answers": 1, "limit_tokens": 900}
    need = {"likely_tokens": likely_tokens, "growth_tokens": 900}
    answered = [{"tokens": 1, "finished_by": "stop"}]
    return printed(render({**head, **sizes, "estimate": estimate, "need": need, "looks": [look], "answered": answered}))


def test_the_ways_that_were_weighed_are_a_table_with_the_one_taken_first() -> None:
    prices = {"load": 0.5, "first_token_s": 0.2, "step_s": 0.0215, "room_share": 0.031}
    ways = [
        {"worker_id": "w1", "computed_by": "w0", "first_tokens": 1, **prices},
        {"worker_id": "w1", "computed_by": "w1", "first_tokens": 0, **prices, "load": 2.25},
    ]
    look = {"at_s": 0.001, "what": "placed", "worker_id": "w1", "why": "fluid", "numbers": {}, "candidates": []}
    lines = shown({**look, "ways": ways})
    assert "0.001 s placed w1 (fluid)" in lines
    at = lines.index("w0 w1 after 1 0.5 200 ms 21.5 ms 3.1 %")
    assert lines[at + 1] == "w1 w1 – 2.25 200 ms 21.5 ms 3.1 %"
    assert lines[at + 2].startswith("load: first token, step and room taken")


def test_a_gateway_that_weighs_no_ways_shows_none() -> None:
    look = {"at_s": 0.001, "what": "waits", "worker_id": "", "why": "", "numbers": {}, "candidates": []}
    assert not any("computed by" in line for line in shown(look))


def test_one_is_said_as_one() -> None:
    look = {"at_s": 0.001, "what": "placed", "worker_id": "w", "why": "", "numbers": {}, "candidates": []}
    text = " ".join(shown(look, likely_tokens=1))
    assert "prompt 4,000 tokens, 1 answer of at most 900" in text
    assert "its KV counts as the prompt and 1 token: at the worst step," in text
    assert "its KV is reserved in full: the prompt and 900 tokens" in " ".join(shown(look, likely_tokens=0))
    assert "answered with 1 token, ended by stop" in text


def test_a_refusal_before_the_policy_and_one_after_it_are_told_apart() -> None:
    error = {
        "status": 400,
        "code": "invalid_request",
        "message": "Too many.",
        "param": "n",
        "numbers": {"choices": 50.0, "max_choices": 16.0},
        "retry_after_s": None,
        "phase": "received",
        "age_s": 3.21,
    }
    assert printed(render_error("r", error)) == [
        "r: refused before the policy looked at it, 3.2 s ago",
        "400 invalid_request (`n`): Too many.",
        "choices 50, max_choices 16",
    ]
    later = {**error, "phase": "handed_off", "param": None, "numbers": {}}
    assert printed(render_error("r", later)) == [
        "r: ended while handed off, 3.2 s ago",
        "400 invalid_request: Too many.",
    ]
