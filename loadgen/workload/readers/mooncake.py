"""Mooncake FAST'25 trace release: JSONL with milliseconds and prefix-block ids of 512 tokens."""

from collections.abc import Iterator
from pathlib import Path

from loadgen.demand import Demand
from loadgen.workload.readers.lines import Row, json_rows

BLOCK_TOKENS = 512


def read(path: Path) -> Iterator[Demand]:
    for number, fields in json_rows(path):
        row = Row(path, number, fields)
        prompt = row.tokens("input_length")
        ids = row.ids("hash_ids") if row.has("hash_ids") else ()
        if len(ids) > -(-prompt // BLOCK_TOKENS):
            raise row.fail(f"{len(ids)} hash_ids for a prompt of {prompt} tokens")
        yield Demand(
            prompt,
            row.tokens("output_length"),
            at_s=row.seconds("timestamp") / 1e3,
            prefix=ids,
            block_tokens=BLOCK_TOKENS,
        )
