"""From messages and prompts to tokens. Everything here runs in the text pool's threads."""

from collections.abc import Sequence
from typing import Any

from gateway.http.schema import ChatMessage, Prompt
from gateway.request.errors import Reason, RequestError
from gateway.text.base import Tokenizer

Tokens = tuple[int, ...]


def template_messages(messages: Sequence[ChatMessage]) -> list[dict[str, Any]]:
    """Messages as templates know them: text parts joined, developer as the system role it took over."""
    rendered = []
    for message in messages:
        role = "system" if message.role == "developer" else message.role
        entry: dict[str, Any] = {"role": role, "content": message.text}
        if message.name is not None:
            entry["name"] = message.name
        if message.thoughts is not None:
            entry["reasoning_content"] = entry["reasoning"] = message.thoughts
        rendered.append(entry)
    return rendered


def message_size(message: ChatMessage) -> int:
    """Characters of a message, those that a template adds guessed."""
    content = message.content or ""
    size = len(content) if isinstance(content, str) else sum([len(part.text) for part in content])
    return size + len(message.thoughts or "") + 32


def chat_text(
    tokenizer: Tokenizer,
    messages: Sequence[ChatMessage],
    *,
    add_generation_prompt: bool,
    extra: dict[str, Any] | None,
) -> str:
    """The conversation as the model's template writes it."""
    template = tokenizer.chat_template
    if template is None:
        raise RequestError(
            Reason.UNSUPPORTED,
            "This model has no chat template. Render the prompt yourself and send it to /v1/completions.",
            param="messages",
        )
    return template.render(template_messages(messages), add_generation_prompt=add_generation_prompt, extra=extra)


def chat_tokens(tokenizer: Tokenizer, text: str, *, add_special_tokens: bool = False) -> Tokens:
    """Templates write their own special tokens, so by default none are added."""
    return _checked(tokenizer.encode(text, add_special_tokens=add_special_tokens), "messages")


def completion_prompts(
    tokenizer: Tokenizer, prompt: Prompt, *, add_special_tokens: bool, vocab_size: int
) -> tuple[Tokens, ...]:
    entries: list[Any] = [prompt] if isinstance(prompt, str) or isinstance(prompt[0], int) else list(prompt)
    prompts = []
    for at, entry in enumerate(entries):
        where = "prompt" if len(entries) == 1 else f"prompt[{at}]"
        if isinstance(entry, str):
            prompts.append(_checked(tokenizer.encode(entry, add_special_tokens=add_special_tokens), where))
        else:
            prompts.append(_checked(known_tokens(entry, vocab_size, where), where))
    return tuple(prompts)


def known_tokens(tokens: list[int], vocab_size: int, where: str) -> Tokens:
    if tokens and not (min(tokens) >= 0 and max(tokens) < vocab_size):
        raise RequestError(
            Reason.INVALID_REQUEST,
            f"`{where}` holds a token that is not an id from 0 to {vocab_size - 1}.",
            param=where,
        )
    return tuple(tokens)


def _checked(tokens: Tokens, where: str) -> Tokens:
    if not tokens:
        raise RequestError(Reason.INVALID_REQUEST, f"`{where}` has no tokens. Send at least one.", param=where)
    return tokens
