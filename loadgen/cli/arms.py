"""Arms by their text form: `NAME=URL`, `NAME=up:ARGUMENTS OF TANDEM UP`, or `NAME=sim:` with the same arguments."""

import shlex
from collections.abc import Sequence
from itertools import pairwise

from loadgen.arms.base import Arm
from loadgen.arms.local import LocalArm
from loadgen.arms.url import ClientSettings, UrlArm
from loadgen.arms.virtual import VirtualArm
from loadgen.cli import build
from loadgen.cli.options import ClientOptions
from loadgen.client.target import base_url
from loadgen.failure import LoadgenError

_UP = "up:"
_SIMULATED = "sim:"


def arm(name: str, where: str, gpus: float | None, client: ClientOptions, settings: ClientSettings) -> Arm:
    if where.startswith(_UP):
        arguments = where[len(_UP) :].strip()
        count = gpus_of(arguments) if gpus is None else gpus
        return LocalArm(name, count, arguments, build.target(client, "http://127.0.0.1:0"), settings)
    if where.startswith(_SIMULATED):
        return virtual_arm(name, where[len(_SIMULATED) :].strip(), gpus, client.timeout)
    return UrlArm(name, gpus, build.target(client, base_url(where)), settings)


def virtual_arm(name: str, words: str, gpus: float | None, timeout_s: float) -> VirtualArm:
    """Raises LoadgenError."""
    from loadgen.simulate.words import parse_layout  # takes half a second, and is for simulations alone

    layout = parse_layout(words, timeout_s)
    return VirtualArm(name, layout, gpus, ", ".join(sorted({pool.profile.device for pool in layout.pools})))


def named(text: str) -> tuple[str, str]:
    """A URL may contain an equals sign, a name may not contain a slash or a colon."""
    name, equals, where = text.partition("=")
    if not equals or not where or not name or any(c in name for c in ":/ "):
        raise LoadgenError(f"arm {text!r} is not NAME=URL, NAME=up:ARGUMENTS or NAME=sim:ARGUMENTS")
    return name, where


def gpus_of(arguments: str) -> float:
    """Of a `tandem up` line: workers times tensor-parallel degree, one prefill and one decode worker by default."""
    try:
        words = shlex.split(arguments.replace("=", " "))
    except ValueError as error:
        raise LoadgenError(f"arm up:{arguments}: {error}") from None
    counts = {word: value for word, value in pairwise(words) if word.startswith("--")}

    def count(option: str, default: int) -> int:
        text = counts.get(option, str(default))
        if not text.isdigit():
            raise LoadgenError(f"arm up:{arguments}: {option} {text} is not a number")
        return int(text)

    colocated = count("--colocated", 0)
    default = 0 if colocated or "--config" in words or "-c" in words else 1
    total = (
        count("--prefill", default) * count("--prefill-tp", 1)
        + count("--decode", default) * count("--decode-tp", 1)
        + colocated * count("--colocated-tp", 1)
    )
    if total == 0:
        raise LoadgenError(f"arm up:{arguments}: say how many --gpus this layout has")
    return float(total)


def gpu_counts(texts: Sequence[str] | None, names: Sequence[str]) -> dict[str, float]:
    """`8` for all arms, or `NAME=8`."""
    found: dict[str, float] = {}
    for text in texts or ():
        name, equals, number = text.rpartition("=")
        try:
            value = float(number)
        except ValueError:
            raise LoadgenError(f"--gpus {text!r} is not a number or NAME=NUMBER") from None
        if not 0 < value < float("inf"):
            raise LoadgenError(f"--gpus {text!r} must be above 0")
        if equals and name not in names:
            raise LoadgenError(f"--gpus {text!r}: there is no arm {name!r}")
        found |= {name: value} if equals else dict.fromkeys(names, value)
    return found
