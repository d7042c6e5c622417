"""Which bytes a token stands for, where that does not depend on its neighbours."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from tokenizers import Tokenizer as RustTokenizer

Spelling = Callable[[str], bytes]

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_METASPACE = "\u2581"


def _byte_alphabet() -> dict[str, int]:
    """The printable stand-ins that byte-level BPE vocabularies use for the 256 bytes."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    alphabet = {chr(byte): byte for byte in plain}
    rest = [byte for byte in range(256) if byte not in set(plain)]
    alphabet.update({chr(0x100 + i): byte for i, byte in enumerate(rest)})
    return alphabet


_ALPHABET = _byte_alphabet()


def byte_level(token: str) -> bytes:
    try:
        return bytes([_ALPHABET[char] for char in token])
    except KeyError:
        return token.encode()


def sentence_piece(token: str) -> bytes:
    found = _BYTE_TOKEN.fullmatch(token)
    return bytes((int(found[1], 16),)) if found else token.replace(_METASPACE, " ").encode()


def spelling_of(decoder: dict[str, Any] | None) -> Spelling | None:
    """How to spell tokens of a tokenizer.json `decoder`; None when its tokens have no fixed bytes.

    A SentencePiece decoder's last step takes one space off the very beginning of a text. An answer goes on
    from a prompt, so its first token keeps that space, and the step is left out here.
    """
    kinds = _flatten(decoder)
    if kinds == ["ByteLevel"]:
        return byte_level
    pieces = [kind for kind in kinds if kind not in ("Fuse", "Strip:start")]
    if pieces in (["Replace:metaspace", "ByteFallback"], ["ByteFallback", "Metaspace"], ["Metaspace"]):
        return sentence_piece
    return None


def _flatten(decoder: dict[str, Any] | None) -> list[str]:
    if not decoder:
        return []
    kind = decoder.get("type")
    if kind == "Sequence":
        return [name for inner in decoder.get("decoders", ()) for name in _flatten(inner)]
    if kind == "Replace":
        metaspace = decoder.get("pattern") == {"String": _METASPACE} and decoder.get("content") == " "
        return ["Replace:metaspace" if metaspace else "Replace"]
    if kind == "Strip":
        start_only = decoder.get("content") == " " and decoder.get("stop") == 0
        return ["Strip:start" if start_only else "Strip"]
    if kind == "Metaspace" and decoder.get("replacement") != _METASPACE:
        return ["Metaspace:other"]
    return [str(kind)]


class ByteTable(dict[int, bytes]):
    """Token id to bytes, filled on first use. Ids without a token (padded vocabularies) are empty."""

    def __init__(self, rust: RustTokenizer, spelling: Spelling | None, fixed: Mapping[int, bytes]) -> None:
        super().__init__(fixed)
        self._rust = rust
        self._spelling = spelling

    def __missing__(self, token: int) -> bytes:
        name = self._rust.id_to_token(token)
        if name is None:
            data = b""
        elif self._spelling is None:
            data = self._rust.decode([token], skip_special_tokens=False).encode()
        else:
            data = self._spelling(name)
        self[token] = data
        return data
