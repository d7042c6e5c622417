"""ShareGPT JSON: real conversations, measured with the target's tokenizer."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson

from loadgen.demand import Demand
from loadgen.failure import LoadgenError
from loadgen.workload.readers.lines import Row, opened

CountTokens = Callable[[str], int]


def read(path: Path, count: CountTokens) -> Iterator[Demand]:
    """First human turn as prompt, length of the first answer as output, as the usual benchmarks take it.

    Conversations without such a pair, and pairs where one side has fewer than 4 tokens, are left out.
    """
    with opened(path) as text:
        try:
            conversations = orjson.loads(text.read())
        except orjson.JSONDecodeError as error:
            raise LoadgenError(f"{path}: not JSON ({error})") from None
    if not isinstance(conversations, list):
        raise LoadgenError(f"{path}: not a list of conversations")
    for number, conversation in enumerate(conversations, 1):
        if not isinstance(conversation, dict):
            raise LoadgenError(f"{path}: conversation {number} is not an object")
        pair = _first_pair(Row(path, number, conversation))
        if pair is None:
            continue
        prompt, output = count(pair[0]), count(pair[1])
        if min(prompt, output) >= 4:
            yield Demand(prompt, output, text=pair[0])


def _first_pair(row: Row) -> tuple[str, str] | None:
    turns: Any = row.raw("conversations", "conversation")
    if not isinstance(turns, list) or not all(isinstance(t, dict) for t in turns):
        raise row.fail("conversations is not a list of turns")
    if len(turns) < 2:
        return None
    texts = [t.get("value") for t in turns[:2]]
    return (texts[0], texts[1]) if all(isinstance(t, str) for t in texts) else None
