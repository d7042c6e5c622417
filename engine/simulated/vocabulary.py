"""What the simulated model can say: token ids, ends of answers, and text to ids where that is possible."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

_LETTERS = b"etaoinshrdlucmfwypvbgkqjxz" * 2 + b"    ..,"

#: Characters of two, three and four bytes. Every byte but the last names its successor, so that the stream
#: stays a function of the tokens so far and still splits characters over tokens.
_WIDE = tuple(character.encode() for character in "é漢😀")


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """`drawable` are the tokens that answers are drawn from; `successors` forces what follows a token."""

    size: int
    eos: tuple[int, ...]
    drawable: Sequence[int]
    successors: Mapping[int, int] = field(default_factory=dict)
    tokenizer_path: Path | None = None

    def encode(self, text: str) -> tuple[int, ...]:
        """Token ids of a text, without special tokens."""
        if self.tokenizer_path is None:
            return tuple(text.encode())
        return tuple(_tokenizer(self.tokenizer_path).encode(text, add_special_tokens=False).ids)


def byte_level() -> Vocabulary:
    """One token a byte, and one that ends answers: what the gateway's own byte-level tokenizer reads."""
    successors = {one: next_one for character in _WIDE for one, next_one in pairwise(character)}
    return Vocabulary(257, (256,), _LETTERS + bytes(character[0] for character in _WIDE), successors)


def load_vocabulary(model: str, size: int, eos: tuple[int, ...]) -> Vocabulary:
    """The vocabulary of a model directory with a tokenizer; byte-level without one. Raises ValueError where its files are no
    model's."""
    directory = Path(model)
    if not model or not (directory / "tokenizer.json").is_file():
        return byte_level()
    try:
        return _of_files(directory, size, eos)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"the files in {directory} are no model's: {type(error).__name__}: {error}") from error


def _of_files(directory: Path, size: int, eos: tuple[int, ...]) -> Vocabulary:
    config = _read(directory / "config.json")
    tokenizer = _read(directory / "tokenizer.json")
    special = {int(token["id"]) for token in tokenizer.get("added_tokens", ()) if token.get("special")}
    drawable = [token for token in sorted(tokenizer["model"]["vocab"].values()) if token not in special]
    return Vocabulary(
        int(config.get("vocab_size", size)), _eos(directory, config, eos), drawable, {}, directory / "tokenizer.json"
    )


def _eos(directory: Path, config: Mapping[str, Any], default: tuple[int, ...]) -> tuple[int, ...]:
    declared = _read(directory / "generation_config.json").get("eos_token_id", config.get("eos_token_id"))
    if declared is None:
        return default
    return tuple(declared) if isinstance(declared, list) else (int(declared),)


def _read(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    content: dict[str, Any] = json.loads(path.read_text())
    return content


@lru_cache(maxsize=4)
def _tokenizer(path: Path) -> Any:
    from tokenizers import Tokenizer  # only structured output needs it

    return Tokenizer.from_file(str(path))
