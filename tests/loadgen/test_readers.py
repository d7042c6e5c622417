"""Public trace formats, recognised and told; a malformed line is named."""

import gzip
import json
from pathlib import Path

import pytest

from loadgen.demand import Demand
from loadgen.failure import LoadgenError
from loadgen.workload.readers.reader import Format, Spread, read, recognise
from loadgen.workload.readers.ticks import spread, tick_of

AZURE_2023 = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:50.9951690,396,109
"""
AZURE_2024 = """TIMESTAMP,ContextTokens,GeneratedTokens
2024-05-10 00:00:00.009930+00:00,2162,5
2024-05-10 00:00:01+00:00,2399,6
"""
BURSTGPT = """Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
5,ChatGPT,472,18,490,Conversation log
45,ChatGPT,1087,0,1087,Conversation log
118,GPT-4,417,276,693,API log
"""
MOONCAKE = """{"timestamp": 0, "input_length": 600, "output_length": 52, "hash_ids": [0, 1]}
{"timestamp": 3000, "input_length": 1024, "output_length": 26, "hash_ids": [0, 2]}
"""
SERVEGEN = """{"request_id": 0, "timestamp": 0.5, "data": {"input_tokens": 63, "output_tokens": 508}, "client": 39}
{"request_id": 1, "timestamp": 1.5, "data": {"input_tokens": 406, "output_tokens": 399}}
"""
PLAIN = """arrival_s,input_tokens,output_tokens,client,session,think_s,class
1.0,10,20,7,s1,,chat
2.5,30,40,8,s1,1.5,chat
"""


def _write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("name", "text", "form", "rows"),
    [
        ("a.csv", AZURE_2023, Format.AZURE, [(374, 44, 0.0), (396, 109, 4.314579)]),
        ("b.csv", AZURE_2024, Format.AZURE, [(2162, 5, 0.0), (2399, 6, 0.99007)]),
        ("c.csv", BURSTGPT, Format.BURSTGPT, [(472, 18, 0.0), (417, 276, 113.0)]),
        ("d.jsonl", MOONCAKE, Format.MOONCAKE, [(600, 52, 0.0), (1024, 26, 3.0)]),
        ("e.jsonl", SERVEGEN, Format.SERVEGEN, [(63, 508, 0.0), (406, 399, 1.0)]),
        ("f.csv", PLAIN, Format.CSV, [(10, 20, 0.0), (30, 40, 1.5)]),
    ],
)
def test_formats_are_recognised_and_read(
    tmp_path: Path, name: str, text: str, form: Format, rows: list[tuple[int, int, float]]
) -> None:
    path = _write(tmp_path / name, text)
    assert recognise(path) is form
    demands, notes = read(path)
    assert [(d.prompt_tokens, d.output_tokens) for d in demands] == [r[:2] for r in rows]
    assert [d.at_s for d in demands] == pytest.approx([r[2] for r in rows], abs=1e-5)
    assert name in notes[0]


def test_labels_prefixes_and_sessions_survive(tmp_path: Path) -> None:
    demands, _ = read(_write(tmp_path / "f.csv", PLAIN))
    assert [(d.tenant, d.session, d.think_s, d.klass) for d in demands] == [
        ("7", "s1", 0.0, "chat"),
        ("8", "s1", 1.5, "chat"),
    ]
    demands, _ = read(_write(tmp_path / "d.jsonl", MOONCAKE))
    assert [d.prefix for d in demands] == [(0, 1), (0, 2)]
    demands, _ = read(_write(tmp_path / "c.csv", BURSTGPT))
    assert [d.klass for d in demands] == ["ChatGPT", "GPT-4"]


def test_gzip_and_byte_order_mark_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(("\ufeff" + AZURE_2023).encode()))
    assert len(read(path)[0]) == 2


def test_sharegpt_takes_the_first_exchange(tmp_path: Path) -> None:
    talks = [
        {"id": "x", "conversations": [{"from": "human", "value": "a b c d e"}, {"from": "gpt", "value": "f g h i"}]},
        {"id": "y", "conversations": [{"from": "human", "value": "only one side of it"}]},
        {"id": "z", "conversations": [{"from": "human", "value": "hi"}, {"from": "gpt", "value": "f g h i"}]},
    ]
    path = _write(tmp_path / "sharegpt.json", json.dumps(talks))
    demands, _ = read(path, count=lambda text: len(text.split()))
    assert [(d.prompt_tokens, d.output_tokens, d.text) for d in demands] == [(5, 4, "a b c d e")]
    with pytest.raises(LoadgenError, match="--tokenizer"):
        read(path)


@pytest.mark.parametrize(
    ("name", "text", "cause"),
    [
        ("a.csv", AZURE_2023 + "yesterday,1,1\n", r"a\.csv:4: TIMESTAMP is 'yesterday'"),
        ("a.csv", AZURE_2023 + "2023-11-16 18:15:46,1\n", r"a\.csv:4: 2 fields, the header has 3"),
        ("a.csv", AZURE_2023 + "2023-11-16 18:15:46,x,1\n", r"a\.csv:4: ContextTokens is 'x', not a whole"),
        ("d.jsonl", MOONCAKE + "{nope\n", r"d\.jsonl:3: not JSON"),
        ("d.jsonl", MOONCAKE + "[1]\n", r"d\.jsonl:3: not a JSON object"),
        (
            "d.jsonl",
            MOONCAKE + '{"timestamp": 1, "input_length": 5}\n',
            r"d\.jsonl:3: field 'output_length' is missing",
        ),
        (
            "d.jsonl",
            MOONCAKE + '{"timestamp": 1, "input_length": 5, "output_length": 1.5}\n',
            r"d\.jsonl:3: output_length is 1\.5",
        ),
        (
            "d.jsonl",
            MOONCAKE + '{"timestamp": 1, "input_length": 5, "output_length": 1, "hash_ids": [1, 2]}\n',
            r"d\.jsonl:3: 2 hash_ids",
        ),
        ("f.csv", PLAIN + "3,0,1,1,,,\n", r"f\.csv:4: input_tokens is 0, below 1"),
        ("f.csv", PLAIN + "-3,5,1,1,,,\n", r"f\.csv:4: arrival_s is -3, not a time"),
        ("g.csv", "a,b\n1,2\n", "format not recognised"),
        ("g.csv", "", "format not recognised"),
        ("h.csv", "input_tokens,output_tokens\n", "format not recognised|no usable request"),
    ],
)
def test_malformed_lines_are_named(tmp_path: Path, name: str, text: str, cause: str) -> None:
    with pytest.raises(LoadgenError, match=cause):
        read(_write(tmp_path / name, text))


def test_missing_and_binary_files_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(LoadgenError, match="no such file"):
        read(tmp_path / "none.csv")
    (tmp_path / "b.csv").write_bytes(b"\xff\xfe\x00\x01" * 10)
    with pytest.raises(LoadgenError, match="not readable"):
        read(tmp_path / "b.csv")


def _ticked() -> list[Demand]:
    return [Demand(i + 1, 1, at_s=3.0 * (i // 4)) for i in range(40)]


def test_ticks_are_found_and_spread_over_the_following_step() -> None:
    rows = _ticked()
    assert tick_of(rows) == 3.0
    for evenly in (True, False):
        moved = spread(rows, 3.0, evenly=evenly)
        assert [d.prompt_tokens for d in moved] == [d.prompt_tokens for d in rows]
        assert all(0 <= (m.at_s or 0) - (d.at_s or 0) < 3 for m, d in zip(moved, rows, strict=True))
        assert len({m.at_s for m in moved}) == 40
    assert [d.at_s for d in spread(rows, 3.0, evenly=True)][:5] == [0, 0.75, 1.5, 2.25, 3]


def test_fine_times_are_left_alone() -> None:
    assert tick_of([Demand(1, 1, at_s=0.001 * (i // 4)) for i in range(40)]) is None
    assert tick_of([Demand(1, 1, at_s=1.7 * i) for i in range(40)]) is None


def test_spreading_is_told(tmp_path: Path) -> None:
    lines = [json.dumps({"timestamp": 3000 * (i // 4), "input_length": 5, "output_length": 2}) for i in range(40)]
    path = _write(tmp_path / "m.jsonl", "\n".join(lines))
    assert "spread over it (random)" in read(path)[1][-1]
    kept, notes = read(path, spreading=Spread.NONE)
    assert "artefact" in notes[-1]
    assert len({d.at_s for d in kept}) == 10
