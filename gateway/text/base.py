"""What the gateway needs of a tokenizer."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

#: One chat message as templates see it: role, content and perhaps a name.
Message = Mapping[str, Any]


class Detokenizer(Protocol):
    """Turns one answer's tokens into text as they come. The pieces joined are exact, however the tokens were split."""

    def push(self, tokens: Sequence[int]) -> str:
        """Text that has become certain; an unfinished character waits for its missing bytes (B-20)."""
        ...

    def flush(self) -> str:
        """What was still waiting when the answer ended, as U+FFFD where bytes are missing."""
        ...


class ChatTemplate(Protocol):
    @property
    def shows_tools(self) -> bool:
        """Whether it would tell the model of tools at all."""
        ...

    def render(
        self,
        messages: Sequence[Message],
        *,
        add_generation_prompt: bool,
        tools: Sequence[Message] | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> str: ...


class Tokenizer(Protocol):
    """Safe to use from several threads. `encode` may take seconds and must not run on the event loop (B-58)."""

    @property
    def name(self) -> str: ...

    @property
    def vocab_size(self) -> int: ...

    @property
    def chat_template(self) -> ChatTemplate | None: ...

    def encode(self, text: str, *, add_special_tokens: bool) -> tuple[int, ...]: ...

    def decode(self, tokens: Iterable[int], *, skip_special_tokens: bool) -> str: ...

    def token_bytes(self, token: int) -> bytes:
        """The exact bytes of one token, special tokens included; empty for ids without a token."""
        ...

    def token_string(self, token: int) -> str:
        """The token as the vocabulary spells it."""
        ...

    def detokenizer(
        self, *, skip_special_tokens: bool, context: Sequence[int] = (), kept: frozenset[str] = frozenset()
    ) -> Detokenizer:
        """`context` is the prompt that the answer goes on from; only decoders that look back need it.

        `kept` are special tokens that are not skipped: marks that a parser looks for.
        """
        ...
