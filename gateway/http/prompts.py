"""From messages and prompts to tokens. Everything here runs in the text pool's threads."""

import json
from collections.abc import Sequence
from typing import Any

from gateway.http.messages import ChatMessage, ToolCall
from gateway.http.schema import Prompt
from gateway.http.tools import Tool
from gateway.parsers.call_json import is_text
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
        if message.tool_calls:
            entry["tool_calls"] = [_call(call) for call in message.tool_calls]
        if message.tool_call_id is not None:
            entry["tool_call_id"] = message.tool_call_id
        rendered.append(entry)
    return rendered


def _call(call: ToolCall) -> dict[str, Any]:
    """Templates write arguments as JSON themselves; what is no JSON object they get as the model wrote it."""
    function = call.function
    try:
        arguments = json.loads(function.arguments) if function.arguments else {}
    except (ValueError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict) or not is_text(json.dumps(arguments, ensure_ascii=False)):
        arguments = function.arguments
    return {"id": call.id, "type": "function", "function": {"name": function.name, "arguments": arguments}}


def template_tools(tools: Sequence[Tool]) -> list[dict[str, Any]]:
    """As the client wrote them."""
    return [tool.model_dump(exclude_unset=True) for tool in tools]


def message_size(message: ChatMessage) -> int:
    """Characters of a message, those that a template adds guessed."""
    content = message.content or ""
    size = len(content) if isinstance(content, str) else sum([len(part.text) for part in content])
    calls = sum([len(call.function.name) + len(call.function.arguments) + 64 for call in message.tool_calls or ()])
    return size + len(message.thoughts or "") + calls + 32


def chat_text(
    tokenizer: Tokenizer,
    messages: Sequence[ChatMessage],
    *,
    add_generation_prompt: bool,
    extra: dict[str, Any] | None,
    tools: Sequence[Tool] = (),
) -> str:
    """The conversation as the model's template writes it."""
    template = tokenizer.chat_template
    if template is None:
        raise RequestError(
            Reason.UNSUPPORTED,
            "This model has no chat template. Render the prompt yourself and send it to /v1/completions.",
            param="messages",
        )
    if tools and not template.shows_tools:
        raise RequestError(
            Reason.UNSUPPORTED,
            "This model's chat template has no place for tools, so that the model would not know of them. "
            "Leave out `tools`.",
            param="tools",
        )
    return template.render(
        template_messages(messages),
        add_generation_prompt=add_generation_prompt,
        tools=template_tools(tools) or None,
        extra=extra,
    )


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
