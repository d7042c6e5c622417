"""Workloads by their text form: `azure-conv`, `fixed isl=512 osl=128`, `trace.jsonl max-total=8192 class=chat`."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from loadgen.failure import LoadgenError
from loadgen.workload.base import Workload
from loadgen.workload.family import fixed, shipped
from loadgen.workload.mix import Labels, Mix, Part
from loadgen.workload.readers import reader
from loadgen.workload.readers.sharegpt import CountTokens
from loadgen.workload.sessions import SESSIONS
from loadgen.workload.shape import Long, Shape, shaped
from loadgen.workload.storm import Storm
from loadgen.workload.trace import TraceWorkload

Value = TypeVar("Value")

#: Other names people use for the same family.
ALIASES = {"paper-mix": "natural-reasoning", "mooncake": "mooncake-like"}


class Options:
    """KEY=VALUE words, taken one by one; what is left over is an error."""

    def __init__(self, words: Sequence[str], what: str) -> None:
        self._what = what
        self._given: dict[str, str] = {}
        for word in words:
            key, equals, value = word.partition("=")
            if not equals or not value:
                raise LoadgenError(f"{what}: {word!r} is not KEY=VALUE")
            if key in self._given:
                raise LoadgenError(f"{what}: {key} is given twice")
            self._given[key] = value

    def take(self, key: str, to: Callable[[str], Value], default: Value) -> Value:
        if key not in self._given:
            return default
        text = self._given.pop(key)
        try:
            return to(text)
        except ValueError:
            raise LoadgenError(f"{self._what}: {key}={text} is not understood") from None

    def done(self) -> None:
        if self._given:
            raise LoadgenError(f"{self._what}: unknown option {', '.join(sorted(self._given))}")


@dataclass(frozen=True, slots=True)
class Catalogue:
    """What names can be used, and how text is measured (for ShareGPT)."""

    count_tokens: CountTokens | None = None

    def part(self, text: str) -> Part:
        """NAME or PATH, then KEY=VALUE words."""
        name, *words = text.split()
        options = Options(words, f"workload {name}")
        workload = self._body(name, options)
        workload = shaped(workload, _shape(options))
        labels = Labels(
            tenant=options.take("tenant", str, ""),
            klass=options.take("class", str, ""),
            tenants=options.take("tenants", int, 0),
            patience_s=options.take("patience", _maybe_float, None),
            leave_after_tokens=options.take("leave-after", _maybe_int, None),
            precision=options.take("precision", str, ""),
        )
        weight = options.take("weight", float, 1.0)
        options.done()
        return Part(workload, weight, labels)

    def mix(self, texts: Iterable[str]) -> Mix:
        parts = tuple(self.part(text) for text in texts if text.strip())
        if not parts:
            raise LoadgenError("workload: none given; `loadgen workload list` shows what there is")
        return Mix(parts)

    def storm(self, text: str) -> Storm:
        """`natural-reasoning requests=100 at=30 within=10 [independent=yes]`, and any option of a workload."""
        name, *words = text.split() or [""]
        own = {"requests", "at", "within", "independent"}
        mine = Options([w for w in words if w.partition("=")[0] in own], "storm")
        rest = [w for w in words if w.partition("=")[0] not in own]
        storm = Storm(
            Mix((self.part(" ".join([name, *rest, *([] if _labelled(rest) else ["class=storm"])])),)),
            count=mine.take("requests", int, 20),
            at_s=mine.take("at", float, 0.0),
            within_s=mine.take("within", float, 10.0),
            independent=mine.take("independent", _yes, False),
        )
        mine.done()
        return storm

    def _body(self, name: str, options: Options) -> Workload:
        name = ALIASES.get(name, name)
        if name == "fixed":
            return fixed(options.take("isl", int, 512), options.take("osl", int, 128))
        if name in SESSIONS:
            family = SESSIONS[name]
            think_s = options.take("think", float, family.think_s.median)
            return replace(
                family,
                turns=options.take("turns", float, family.turns),
                think_s=replace(family.think_s, median=think_s),
                max_context=options.take("max-context", int, family.max_context),
                nominal_tpot_s=options.take("nominal-tpot", float, family.nominal_tpot_s),
            )
        if name in shipped():
            return shipped()[name]
        return self._trace(name, options)

    def _trace(self, name: str, options: Options) -> Workload:
        path = Path(name)
        if not path.exists() and not path.suffix and "/" not in name:
            known = ", ".join(["fixed", *shipped(), *SESSIONS])
            raise LoadgenError(f"workload: {name!r} is neither a known name ({known}) nor a file")
        form = options.take("format", reader.Format, None)
        spreading = options.take("spread", reader.Spread, reader.Spread.RANDOM)
        shuffle = options.take("shuffle", _yes, False)
        rows, notes = reader.read(path, form, count=self.count_tokens, spreading=spreading)
        return TraceWorkload.of(path.name.partition(".")[0], rows, notes, shuffle=shuffle)


def _shape(options: Options) -> Shape:
    return Shape(
        max_input=options.take("max-input", int, 0),
        max_output=options.take("max-output", int, 0),
        max_total=options.take("max-total", int, 0),
        on_long=options.take("on-long", Long, Long.DROP),
        scale_input=options.take("scale-input", float, 1.0),
        scale_output=options.take("scale-output", float, 1.0),
    )


def _labelled(words: Sequence[str]) -> bool:
    return any(word.startswith("class=") for word in words)


def _yes(text: str) -> bool:
    if text in ("yes", "no"):
        return text == "yes"
    raise ValueError(text)


def _maybe_float(text: str) -> float | None:
    return float(text)


def _maybe_int(text: str) -> int | None:
    return int(text)
