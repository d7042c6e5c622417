"""Opening trace files, and errors that name the line."""

import csv
import gzip
import io
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TextIO, TypeVar

import orjson

from loadgen.failure import LoadgenError

Number = TypeVar("Number", int, float)


@contextmanager
def opened(path: Path) -> Iterator[TextIO]:
    """Text, gzipped or not; the usual troubles become one line."""
    try:
        with ExitStack() as stack:
            raw = stack.enter_context(path.open("rb"))
            plain = stack.enter_context(gzip.open(raw)) if path.suffix == ".gz" else raw
            yield stack.enter_context(io.TextIOWrapper(plain, encoding="utf-8-sig", newline=""))
    except FileNotFoundError:
        raise LoadgenError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise LoadgenError(f"{path}: is a directory") from None
    except (UnicodeDecodeError, gzip.BadGzipFile, EOFError) as error:
        raise LoadgenError(f"{path}: not readable as text ({error})") from None


def csv_rows(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """Line number and row. A row with another number of fields than the header is an error."""
    with opened(path) as text:
        reader = csv.reader(text)
        header = [name.strip() for name in next(reader, [])]
        for row in reader:
            if not row:
                continue
            if len(row) != len(header):
                raise LoadgenError(f"{path}:{reader.line_num}: {len(row)} fields, the header has {len(header)}")
            yield reader.line_num, dict(zip(header, row, strict=True))


def json_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Line number and object of a JSONL file."""
    with opened(path) as text:
        for number, line in enumerate(text, 1):
            if not line.strip():
                continue
            try:
                row = orjson.loads(line)
            except orjson.JSONDecodeError as error:
                raise LoadgenError(f"{path}:{number}: not JSON ({error})") from None
            if not isinstance(row, dict):
                raise LoadgenError(f"{path}:{number}: not a JSON object")
            yield number, row


class Row:
    """Typed access to one row; every complaint carries file and line."""

    def __init__(self, path: Path, number: int, fields: Mapping[str, Any]) -> None:
        self._where = f"{path}:{number}"
        self._fields = fields

    def fail(self, cause: str) -> LoadgenError:
        return LoadgenError(f"{self._where}: {cause}")

    def has(self, *names: str) -> bool:
        return any(name in self._fields for name in names)

    def raw(self, *names: str) -> Any:
        """The first of these fields that is there."""
        for name in names:
            if name in self._fields:
                return self._fields[name]
        raise self.fail(f"field {names[0]!r} is missing")

    def tokens(self, *names: str, least: int = 1) -> int:
        value = self._convert(names, int, "a whole number of tokens")
        if value < least:
            raise self.fail(f"{names[0]} is {value}, below {least}")
        return value

    def seconds(self, *names: str) -> float:
        value = self._convert(names, float, "a number of seconds")
        if not 0 <= value < float("inf"):
            raise self.fail(f"{names[0]} is {value:g}, not a time")
        return value

    def ids(self, *names: str) -> tuple[int, ...]:
        value = self.raw(*names)
        try:
            parts = value.split() if isinstance(value, str) else value
            return tuple(int(part) for part in parts)
        except (TypeError, ValueError):
            raise self.fail(f"{names[0]} is not a list of block ids") from None

    def label(self, *names: str) -> str:
        return str(self.raw(*names)) if self.has(*names) else ""

    def _convert(self, names: tuple[str, ...], to: Callable[[Any], Number], what: str) -> Number:
        value = self.raw(*names)
        try:
            converted = to(value)
        except (TypeError, ValueError):
            raise self.fail(f"{names[0]} is {value!r}, not {what}") from None
        if isinstance(value, float) and converted != value:
            raise self.fail(f"{names[0]} is {value!r}, not {what}")
        return converted
