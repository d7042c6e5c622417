"""The name of a profile, taken apart: device/model?tp=2&pp=1&ep=1&util=0.9&gib=141&tokens=8192&seqs=256&link=450."""

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl

_WHOLE = {"tp", "pp", "ep", "tokens", "seqs"}
_BROKEN = {"util", "gib", "link"}


@dataclass(frozen=True, slots=True)
class ProfileRequest:
    """What a name asks for; None leaves the choice to the profile. `link` is what the ranks of a group exchange over, in GB/s
    of one GPU."""

    name: str
    tp: int | None = None
    pp: int | None = None
    ep: int | None = None
    tokens: int | None = None
    seqs: int | None = None
    util: float | None = None
    gib: float | None = None
    link: float | None = None

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
    for key, value in parse_qsl(query, keep_blank_values=True):
        if key not in _WHOLE | _BROKEN:
            raise ValueError(f"profile {text!r}: no option {key!r}; known: {', '.join(sorted(_WHOLE | _BROKEN))}")
        try:
            values[key] = int(value) if key in _WHOLE else float(value)
        except ValueError:
            raise ValueError(f"profile {text!r}: {key} is not a number: {value!r}") from None
        if not values[key] > 0:
            raise ValueError(f"profile {text!r}: {key} must be positive")
    return ProfileRequest(name, **values)  # type: ignore[arg-type]  # whole numbers by _WHOLE, checked above
