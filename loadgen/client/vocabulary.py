"""Words that are one token each under the target's tokenizer, so that text has exactly the tokens that were planned."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from string import ascii_lowercase, digits

import orjson

from loadgen.failure import LoadgenError

#: Tokens of a text as the target counts them, special tokens included.
Count = Callable[[str], int]

_LEAST = 64


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """`words[0]` begins every text; `separator` stands between words. `ids` are aligned with `words` where known.

    `overhead` is what the target adds to a plain text (a begin token, say) and `chat_overhead` what its chat
    template adds to one user message. `verified` tells whether a tokenizer confirmed the words.
    """

    words: tuple[str, ...]
    ids: tuple[int, ...] = ()
    overhead: int = 0
    chat_overhead: int = 0
    verified: bool = False
    separator: str = " "

    def join(self, words: Iterable[str]) -> str:
        return self.separator.join(words)


def candidates() -> tuple[str, ...]:
    """Common short English words."""
    return tuple(orjson.loads(files("loadgen.client").joinpath("words.json").read_bytes()))


def confirm(count: Count, words: Sequence[str]) -> Vocabulary:
    """The words that are one token each behind a space, and the overhead of a text.

    Byte-pair merges do not cross a space, so counts add up: whole lists are checked at once, and only a list
    with a wrong total is halved until the words at fault are found. A byte-level tokenizer has no words of one
    token; letters serve there.
    """
    start = words[0]
    overhead = count(start) - 1
    if overhead < 0 or count(f"{start} {start} {start}") != overhead + 3:
        return _letters(count)
    good: list[str] = []
    stack = [list(words)]
    while stack:
        part = stack.pop()
        if count(f"{start} {' '.join(part)}") == overhead + 1 + len(part):
            good += part
        elif len(part) > 1:
            half = len(part) // 2
            stack += [part[half:], part[:half]]
    if len(good) < _LEAST:
        raise LoadgenError(f"tokenizer: only {len(good)} known words are one token each; use --prompts ids")
    return Vocabulary(tuple(good), (), overhead, verified=True)


def _letters(count: Count) -> Vocabulary:
    letters = tuple(ascii_lowercase + digits)
    overhead = count("a") - 1
    if overhead < 0 or any(count(text) != overhead + len(text) for text in ("aaaa", "".join(letters), "then" * 9)):
        raise LoadgenError("tokenizer: neither words nor letters are one token each, so exact prompts cannot be built")
    return Vocabulary(letters, (), overhead, verified=True, separator="")


class LocalTokenizer:
    """A tokenizer.json on this machine."""

    def __init__(self, path: Path) -> None:
        # the import costs 50 ms, which every other command would pay
        from tokenizers import Tokenizer

        file = path / "tokenizer.json" if path.is_dir() else path
        if not file.exists():
            raise LoadgenError(f"{file}: no such tokenizer file")
        try:
            self._tokenizer = Tokenizer.from_file(str(file))
        except Exception as error:
            raise LoadgenError(f"{file}: not a tokenizer ({error})") from None

    def count(self, text: str) -> int:
        return len(self._tokenizer.encode(text).ids)

    def count_plain(self, text: str) -> int:
        return len(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def ids(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)


def local_vocabulary(tokenizer: LocalTokenizer) -> Vocabulary:
    vocabulary = confirm(tokenizer.count, candidates())
    return replace(vocabulary, ids=tuple(tokenizer.ids(probe_text(vocabulary))[1:]))


def probe_text(vocabulary: Vocabulary) -> str:
    """All words behind a first one: its last tokens are the ids of the words."""
    return vocabulary.join((vocabulary.words[0], *vocabulary.words))
