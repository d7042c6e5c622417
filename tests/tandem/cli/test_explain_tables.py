"""What `tandem explain` prints of one prompt."""

from io import StringIO
from typing import Any

from rich.console import Console

from tandem.cli.explain_tables import render


def shown(look: dict[str, Any]) -> list[str]:
    console = Console(file=StringIO(), width=100)
    estimate = {"mean": 300.0, "p50": 250.0, "p90": 700.0, "p99": 900.0}
    head = {"request_id": "r", "klass": "default", "policy": "v1", "rule": "forecast", "age_s": 1.0}
    sizes = {"prompt_tokens": 4000, "answers": 1, "limit_tokens": 900}
    need = {"likely_tokens": 300, "growth_tokens": 900}
    console.print(render({**head, **sizes, "estimate": estimate, "need": need, "looks": [look], "answered": []}))
    assert isinstance(console.file, StringIO)
    return [" ".join(line.split()) for line in console.file.getvalue().splitlines()]


def test_the_ways_that_were_weighed_are_a_table_with_the_one_taken_first() -> None:
    prices = {"load": 0.5, "first_token_s": 0.2, "step_s": 0.0215, "kv_share": 0.031}
    ways = [
        {"worker_id": "w1", "computed_by": "w0", "first_tokens": 1, **prices},
        {"worker_id": "w1", "computed_by": "w1", "first_tokens": 0, **prices, "load": 2.25},
    ]
    look = {"at_s": 0.001, "what": "placed", "worker_id": "w1", "why": "fluid", "numbers": {}, "candidates": []}
    lines = shown({**look, "ways": ways})
    assert "0.001 s placed w1 (fluid)" in lines
    at = lines.index("w0 w1 after 1 0.5 200 ms 21.5 ms 3.1 %")
    assert lines[at + 1] == "w1 w1 – 2.25 200 ms 21.5 ms 3.1 %"


def test_a_gateway_that_weighs_no_ways_shows_none() -> None:
    look = {"at_s": 0.001, "what": "waits", "worker_id": "", "why": "", "numbers": {}, "candidates": []}
    assert not any("computed by" in line for line in shown(look))
