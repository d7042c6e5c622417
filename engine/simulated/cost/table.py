"""Step times as data: the nouns of a table file, and reading and writing it. docs/cost-model.md describes the format."""

import gzip
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from engine.simulated.cost.validity import NONE, Validity, digest_of

FORMAT = "tandem-step-times/1"


class TableError(ValueError):
    """A file that is not a table of this format; the message names the field."""


@dataclass(frozen=True, slots=True)
class TokenTimes:
    """Seconds by number of tokens in a step, attention left out; the parts are included in the total."""

    tokens: tuple[int, ...]
    total_s: tuple[float, ...]
    memory_s: tuple[float, ...] = ()
    collective_s: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class LengthTimes:
    """Seconds of attention by prompt length."""

    tokens: tuple[int, ...]
    s: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class GridTimes:
    """Seconds of attention by two amounts: s[i][j] belongs to rows[i] and columns[j]."""

    rows: tuple[int, ...]
    columns: tuple[int, ...]
    s: tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Bytes on one GPU that are not KV. Activations grow with the token budget of a step, down to a floor."""

    weights_bytes: int
    activation_bytes_per_token: float
    activation_floor_bytes: int
    comm_bytes: int
    runtime_bytes: int


@dataclass(frozen=True, slots=True)
class Layout:
    """One way to spread the model over GPUs.

    decode_attention: rows are batch sizes, columns mean contexts. prompt_context: rows are new tokens, columns
    the tokens already cached. The batched ones: what one more such prompt adds to a step full of them.
    attention_with_step: prompt attention is known only as one block that also covers decoding tokens.
    """

    tp: int
    ep: int
    step: TokenTimes
    decode: TokenTimes
    decode_attention: GridTimes
    prompt: LengthTimes
    prompt_batched: LengthTimes
    prompt_context: GridTimes
    prompt_context_batched: GridTimes
    attention_with_step: bool = False
    memory: MemoryUse | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """What a measured engine said of itself; built-in tables have a model shape instead."""

    model: str
    dtype: str
    pp: int
    block_size_tokens: int
    blocks_total: int
    kv_bytes_per_token: int
    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    vocab_size: int
    eos_token_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """`links` maps a transport to (bytes a second of one GPU, seconds of latency). `fit` tells how good it is.

    `sharing`: by kind of step ("decode", "prefill"), how many times as long it takes while one other engine on the
    same cores is at work; empty where engines share nothing. `valid_for`: what it must be asked for.
    """

    device: str
    model: str
    source: Mapping[str, str]
    layouts: tuple[Layout, ...]
    links: Mapping[str, tuple[float, float]]
    gpu_bytes: int = 0
    facts: Facts | None = None
    fit: Mapping[str, float] = field(default_factory=dict)
    sharing: Mapping[str, float] = field(default_factory=dict)
    valid_for: Validity | None = None

    @property
    def validity(self) -> Validity:
        """As it says; tables of before it was kept say less."""
        if self.valid_for is not None:
            return self.valid_for
        dtype = self.facts.dtype if self.facts is not None else ""
        kept = NONE if self.facts is not None else ""
        return Validity(
            model=self.model, device=self.device, weights=dtype, kv=dtype, compression=kept, speculation=kept
        )

    @property
    def digest(self) -> str:
        return digest_of(asdict(self))


def write_table(table: Table, path: Path) -> None:
    """Compact JSON, compressed when the name ends in .gz (with no time stamp, so that builds compare equal)."""
    text = json.dumps({"format": FORMAT, **asdict(table)}, separators=(",", ":")).encode()
    path.write_bytes(gzip.compress(text, mtime=0) if path.suffix == ".gz" else text + b"\n")


def read_table(path: Path) -> Table:
    """Raises TableError for anything that is not a table."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise TableError(f"{path}: {error.strerror}") from None
    try:
        document = json.loads(gzip.decompress(raw) if path.suffix == ".gz" else raw)
    except (ValueError, OSError, EOFError) as error:
        raise TableError(f"{path}: not JSON: {error}") from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise TableError(f"{path}: not a table of format {FORMAT}")
    try:
        return _table(document)
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise TableError(f"{path}: {error!r}") from None


def _table(document: dict[str, Any]) -> Table:
    facts, links, valid_for = document.get("facts"), document["links"], document.get("valid_for")
    return Table(
        device=str(document["device"]),
        model=str(document["model"]),
        source={str(key): str(value) for key, value in document["source"].items()},
        layouts=tuple(_layout(layout) for layout in document["layouts"]),
        links={str(name): (float(link[0]), float(link[1])) for name, link in links.items()},
        gpu_bytes=int(document.get("gpu_bytes", 0)),
        facts=None if facts is None else Facts(**{**facts, "eos_token_ids": tuple(facts["eos_token_ids"])}),
        fit={str(key): float(value) for key, value in document.get("fit", {}).items()},
        sharing={str(key): float(value) for key, value in document.get("sharing", {}).items()},
        valid_for=None if valid_for is None else Validity(**{key: str(value) for key, value in valid_for.items()}),
    )


def _layout(layout: dict[str, Any]) -> Layout:
    memory = layout.get("memory")
    return Layout(
        tp=int(layout["tp"]),
        ep=int(layout["ep"]),
        step=_token_times(layout["step"]),
        decode=_token_times(layout["decode"]),
        decode_attention=_grid(layout["decode_attention"]),
        prompt=_length_times(layout["prompt"]),
        prompt_batched=_length_times(layout["prompt_batched"]),
        prompt_context=_grid(layout["prompt_context"]),
        prompt_context_batched=_grid(layout["prompt_context_batched"]),
        attention_with_step=bool(layout.get("attention_with_step", False)),
        memory=None if memory is None else MemoryUse(**memory),
    )


def _token_times(times: dict[str, Any]) -> TokenTimes:
    tokens = _numbers(times["tokens"])
    parts = (_numbers(times[key], tokens) if times[key] else () for key in ("memory_s", "collective_s"))
    return TokenTimes(tokens, _numbers(times["total_s"], tokens), *parts)


def _length_times(times: dict[str, Any]) -> LengthTimes:
    tokens = _numbers(times["tokens"])
    return LengthTimes(tokens, _numbers(times["s"], tokens))


def _grid(grid: dict[str, Any]) -> GridTimes:
    rows, columns = _numbers(grid["rows"]), _numbers(grid["columns"])
    if len(grid["s"]) != len(rows):
        raise ValueError(f"{len(grid['s'])} lines for {len(rows)} rows")
    return GridTimes(rows, columns, tuple(_numbers(line, columns) for line in grid["s"]))


def _numbers(values: Any, places: Sequence[float] | None = None) -> tuple[Any, ...]:
    """As they are written, whole or not: a table's digest is of its content. `places`: where they belong, one each."""
    numbers = tuple(values)
    if not numbers or not all(isinstance(each, int | float) and math.isfinite(each) for each in numbers):
        raise ValueError(f"not a list of numbers: {str(values)[:40]}")
    if places is not None and len(numbers) != len(places):
        raise ValueError(f"{len(numbers)} numbers for {len(places)} places")
    return numbers
