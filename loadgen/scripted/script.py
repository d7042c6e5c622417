"""What a scripted target does with one request: an exact list of beats."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Act(StrEnum):
    ROLE = "role"  # the empty delta that opens a chat stream
    CONTENT = "content"
    EMPTY = "empty"  # a chunk without text
    ERROR = "error"  # an error event; the stream breaks after it
    RESET = "reset"  # the connection is dropped
    FINISH = "finish"  # finish reason, usage, [DONE]
    CUT = "cut"  # the response ends without finish reason and [DONE]


@dataclass(frozen=True, slots=True)
class Beat:
    """`at_s` counts from the arrival of the request. `tokens` of an EMPTY chunk show in the running count only."""

    at_s: float
    act: Act
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class Script:
    """A status other than 200 answers at once with an error object; beats are for streams.

    A script whose last beat does not end the response hangs.
    """

    beats: tuple[Beat, ...] = ()
    status: int = 200
    code: str = ""
    delay_s: float = 0.0

    @property
    def tokens(self) -> int:
        return sum(b.tokens for b in self.beats)


#: Body of the request and its number in order of arrival.
Book = Callable[[dict[str, Any], int], Script]


def answer(
    ttft_s: float,
    gaps_s: Sequence[float] = (),
    tokens: Sequence[int] | None = None,
    *,
    tail_s: float = 0.0,
    role_s: float | None = None,
    end: Act = Act.FINISH,
) -> Script:
    """Content at `ttft_s` and after each gap, `tokens` of them at a time, then the end `tail_s` later."""
    counts = list(tokens) if tokens is not None else [1] * (len(gaps_s) + 1)
    beats = [] if role_s is None else [Beat(role_s, Act.ROLE)]
    at = ttft_s
    for i, count in enumerate(counts):
        at += gaps_s[i - 1] if i else 0.0
        beats.append(Beat(at, Act.CONTENT, count))
    return Script((*beats, Beat(at + tail_s, end)))


def steady(ttft_s: float, itl_s: float) -> Book:
    """As many tokens as asked for, one at a time."""

    def book(body: dict[str, Any], number: int) -> Script:
        return answer(ttft_s, [itl_s] * (int(body.get("max_tokens") or 16) - 1), role_s=0.0)

    return book


def refusal(status: int, code: str = "", delay_s: float = 0.0) -> Script:
    return Script(status=status, code=code, delay_s=delay_s)
