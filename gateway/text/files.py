"""A tokenizer read from a model directory: tokenizer.json and the small files around it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
from tokenizers import Tokenizer as RustTokenizer

from gateway.text.base import ChatTemplate, Detokenizer
from gateway.text.detokenizer import ByteDetokenizer, ContextDetokenizer
from gateway.text.template import JinjaTemplate
from gateway.text.vocabulary import ByteTable, spelling_of

_SPECIAL_NAMES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


class TokenizerError(Exception):
    """A directory that cannot be used as a tokenizer; the message says which file and why."""


class FileTokenizer:
    """Tokens, text and chat template of one model directory."""

    def __init__(self, directory: Path) -> None:
        path = directory / "tokenizer.json"
        try:
            self._rust = RustTokenizer.from_file(str(path))
        except Exception as error:  # the library raises bare Exception
            raise TokenizerError(f"cannot load {path}: {error}") from error
        # Serving never truncates or pads; some published files ask for it.
        self._rust.no_truncation()
        self._rust.no_padding()
        self._name = str(directory)
        self._vocab_size = self._rust.get_vocab_size(with_added_tokens=True)
        added = self._rust.get_added_tokens_decoder()
        self._special = {token: form.content for token, form in added.items() if form.special}
        self._spelling = spelling_of(orjson.loads(self._rust.to_str()).get("decoder"))
        self._exact = self._spelling is not None
        self._added = {token: form.content.encode() for token, form in added.items()}
        self._shown = ByteTable(self._rust, self._spelling, self._added)
        self._skipped: dict[frozenset[str], _Skipped] = {}
        self._template = _load_template(directory)

    @property
    def name(self) -> str:
        return self._name

    @property
    def vocab_size(self) -> int:
        return self._vocab_size

    @property
    def chat_template(self) -> ChatTemplate | None:
        return self._template

    def encode(self, text: str, *, add_special_tokens: bool) -> tuple[int, ...]:
        # The batch call releases the GIL and skips offsets; the plain one holds the GIL for as long as it takes.
        return tuple(self._rust.encode_batch_fast([text], add_special_tokens=add_special_tokens)[0].ids)

    def decode(self, tokens: Iterable[int], *, skip_special_tokens: bool) -> str:
        # The batch call releases the GIL here, too.
        return self._rust.decode_batch([list(tokens)], skip_special_tokens=skip_special_tokens)[0]

    def token_bytes(self, token: int) -> bytes:
        return self._shown[token]

    def token_string(self, token: int) -> str:
        return self._rust.id_to_token(token) or ""

    def detokenizer(
        self, *, skip_special_tokens: bool, context: Sequence[int] = (), kept: frozenset[str] = frozenset()
    ) -> Detokenizer:
        skipped = self._skip(kept) if skip_special_tokens else None
        if self._exact:
            return ByteDetokenizer(skipped.table if skipped else self._shown)
        hidden = skipped.tokens if skipped else frozenset()

        def decode(tokens: list[int]) -> str:
            shown = [token for token in tokens if token not in hidden]
            return self._rust.decode(shown, skip_special_tokens=False)

        return ContextDetokenizer(decode, context)

    def _skip(self, kept: frozenset[str]) -> "_Skipped":
        """Made once for each set that is asked for: none, or the marks of the parsers that are configured."""
        skipped = self._skipped.get(kept)
        if skipped is None:
            tokens = frozenset(token for token, text in self._special.items() if text not in kept)
            table = ByteTable(self._rust, self._spelling, {**self._added, **dict.fromkeys(tokens, b"")})
            skipped = self._skipped[kept] = _Skipped(tokens, table)
        return skipped


@dataclass(frozen=True, slots=True)
class _Skipped:
    """Special tokens that are not shown, and what all tokens look like without them."""

    tokens: frozenset[int]
    table: ByteTable


def _load_template(directory: Path) -> ChatTemplate | None:
    config = _read_json(directory / "tokenizer_config.json")
    source = _template_source(directory, config)
    if source is None:
        return None
    special = {name: text for name in _SPECIAL_NAMES if (text := _content(config.get(name)))}
    for name, value in _read_json(directory / "special_tokens_map.json").items():
        if text := _content(value):
            special.setdefault(name, text)
    try:
        return JinjaTemplate(source, special)
    except Exception as error:
        raise TokenizerError(f"cannot compile the chat template of {directory}: {error}") from error


def _template_source(directory: Path, config: dict[str, Any]) -> str | None:
    path = directory / "chat_template.jinja"
    if path.is_file():
        return path.read_text(encoding="utf-8")
    found = _read_json(directory / "chat_template.json").get("chat_template") or config.get("chat_template")
    if isinstance(found, list):
        named = {entry.get("name"): entry.get("template") for entry in found if isinstance(entry, dict)}
        found = named.get("default") or next(iter(named.values()), None)
    return found if isinstance(found, str) else None


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        value = orjson.loads(path.read_bytes())
    except orjson.JSONDecodeError as error:
        raise TokenizerError(f"{path} is not JSON: {error}") from error
    return value if isinstance(value, dict) else {}


def _content(value: object) -> str | None:
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else None
