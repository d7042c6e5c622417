"""A tokenizer without any files, for simulated fleets: one token a byte, and made-up words for the other ids."""

from collections.abc import Iterable, Sequence

from gateway.text.base import ChatTemplate
from gateway.text.detokenizer import ByteDetokenizer
from gateway.text.template import JinjaTemplate

_TEMPLATE = (
    "{% if tools %}<tools>\n{{ tools | tojson }}\n{% endif %}"
    "{% for message in messages %}<{{ message['role'] }}>\n{{ message['content'] }}\n"
    "{% if message.tool_calls %}{{ message.tool_calls | tojson }}\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>\n{% endif %}"
)


class _Words(dict[int, bytes]):
    """Ids beyond the bytes never come from text but from simulated engines; each gets a word of its own."""

    def __init__(self, special: frozenset[int]) -> None:
        super().__init__({i: bytes((i,)) for i in range(256)})
        self.update(dict.fromkeys(special, b""))

    def __missing__(self, token: int) -> bytes:
        word = b" w%d" % token
        self[token] = word
        return word


class ByteLevelTokenizer:
    """`special` ids (the engine's EOS) have no text unless asked for."""

    def __init__(self, vocab_size: int = 512, special: Iterable[int] = ()) -> None:
        self._vocab_size = max(vocab_size, 256)
        self._special = frozenset(token for token in special if token >= 256)
        self._shown = _Words(frozenset())
        self._skipping = _Words(self._special)
        self._template = JinjaTemplate(_TEMPLATE)

    @property
    def name(self) -> str:
        return "byte-level"

    @property
    def vocab_size(self) -> int:
        return self._vocab_size

    @property
    def chat_template(self) -> ChatTemplate | None:
        return self._template

    def encode(self, text: str, *, add_special_tokens: bool) -> tuple[int, ...]:
        return tuple(text.encode())

    def decode(self, tokens: Iterable[int], *, skip_special_tokens: bool) -> str:
        table = self._skipping if skip_special_tokens else self._shown
        return b"".join([table[token] for token in tokens]).decode(errors="replace")

    def token_bytes(self, token: int) -> bytes:
        return self._shown[token]

    def token_string(self, token: int) -> str:
        return self._shown[token].decode(errors="backslashreplace")

    def detokenizer(
        self, *, skip_special_tokens: bool, context: Sequence[int] = (), kept: frozenset[str] = frozenset()
    ) -> ByteDetokenizer:
        return ByteDetokenizer(self._skipping if skip_special_tokens else self._shown)
