"""The name of a profile, taken apart: device/model?tp=2&pp=1&ep=1&util=0.9&gib=141&tokens=8192&seqs=256&link=450, and what its
table must hold for: weights=bfloat16&kv=bfloat16&attention=gqa-8x128 and so on."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qsl

_WHOLE = {"tp", "pp", "ep", "tokens", "seqs", "expert-seed"}
_BROKEN = {"util", "gib", "link", "expert-skew"}
#: Fields that a table holds for, and the digest of all of it.
_HELD = {"model", "device", "weights", "kv", "attention", "compression", "speculation", "digest"}
#: What is asked of the hardware and not of the layout.
_HARDWARE = ("gib", "util", "link", "expert-skew", "expert-seed")


@dataclass(frozen=True, slots=True)
class ProfileRequest:
    """What a name asks for; None leaves the choice to the profile. `link` is what the ranks of a group exchange over, in GB/s
    of one GPU, `expert_skew` the Gini coefficient of how often experts are chosen. `held`: what the table must hold for, but for fields in `accept`."""

    name: str
    tp: int | None = None
    pp: int | None = None
    ep: int | None = None
    tokens: int | None = None
    seqs: int | None = None
    util: float | None = None
    gib: float | None = None
    link: float | None = None
    expert_skew: float | None = None
    expert_seed: int | None = None
    held: Mapping[str, str] = field(default_factory=dict)
    accept: frozenset[str] = frozenset()

    @property
    def hardware(self) -> dict[str, float]:
        """What every engine of a layout shares, as far as it was said."""
        said = {name: getattr(self, name.replace("-", "_")) for name in _HARDWARE}
        return {name: value for name, value in said.items() if value is not None}

    @property
    def kept(self) -> list[str]:
        """What names that are made of this one must repeat: the hardware, and what was accepted of the table."""
        accepted = [f"accept={','.join(sorted(self.accept))}"] if self.accept else []
        return [*(f"{name}={value:.12g}" for name, value in self.hardware.items()), *accepted]

    @property
    def file(self) -> Path | None:
        """The table of `file:/path.json`; None for a name of the catalogue."""
        if not self.name.startswith("file:"):
            return None
        return Path(self.name.removeprefix("file:").removeprefix("//"))


def parse_request(text: str) -> ProfileRequest:
    """Raises ValueError for a key that does not exist or a number that is none."""
    name, _, query = text.partition("?")
    values: dict[str, int | float] = {}
    held: dict[str, str] = {}
    accept: set[str] = set()
    for key, value in parse_qsl(query, keep_blank_values=True):
        if key in _HELD:
            held[key] = value
            continue
        if key == "accept":
            accept |= set(value.split(","))
            continue
        if key not in _WHOLE | _BROKEN:
            known = ", ".join(sorted(_WHOLE | _BROKEN | _HELD | {"accept"}))
            raise ValueError(f"profile {text!r}: no option {key!r}; known: {known}")
        try:
            number = int(value) if key in _WHOLE else float(value)
        except ValueError:
            raise ValueError(f"profile {text!r}: {key} is not a number: {value!r}") from None
        if not number > 0:
            raise ValueError(f"profile {text!r}: {key} must be positive")
        if key == "expert-skew" and not number < 1:
            raise ValueError(f"profile {text!r}: expert-skew is a Gini coefficient, below 1")
        values[key.replace("-", "_")] = number
    if unknown := accept - _HELD:
        raise ValueError(f"profile {text!r}: accept takes {', '.join(sorted(_HELD))}, not {', '.join(sorted(unknown))}")
    return ProfileRequest(name, held=held, accept=frozenset(accept), **values)  # type: ignore[arg-type]  # whole numbers by _WHOLE, checked above
