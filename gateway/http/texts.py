"""From a checked body to the tokens of its prompts. Everything here but `size_of` runs in the text pool's threads."""

from dataclasses import dataclass

from gateway.http.prompts import Tokens, chat_text, chat_tokens, completion_prompts, message_size
from gateway.http.schema import ChatRequest, CompletionRequest
from gateway.http.served import Served
from gateway.http.tools import Tool

#: So much of a conversation's end is kept: a mark there says where the answer begins.
ENDING = 256


@dataclass(frozen=True, slots=True)
class Texts:
    """`echoes` has one text a prompt that is to be repeated, else nothing; `ending` is the end of a conversation."""

    prompts: tuple[Tokens, ...]
    echoes: tuple[str, ...] = ()
    ending: str = ""


def size_of(body: ChatRequest | CompletionRequest) -> int | None:
    """Characters to render and tokenize; None where their number does not bound the work."""
    if isinstance(body, ChatRequest):
        if body.chat_template_kwargs or body.tools:
            return None
        return sum([message_size(message) for message in body.messages])
    if isinstance(body.prompt, str):
        return len(body.prompt)
    return None


def texts_of(body: ChatRequest | CompletionRequest, served: Served, tools: tuple[Tool, ...] = ()) -> Texts:
    return _chat(body, served, tools) if isinstance(body, ChatRequest) else _completion(body, served)


def _chat(body: ChatRequest, served: Served, tools: tuple[Tool, ...]) -> Texts:
    text = chat_text(
        served.tokenizer,
        body.messages,
        add_generation_prompt=body.add_generation_prompt is not False,
        extra=body.chat_template_kwargs,
        tools=tools,
    )
    return Texts((chat_tokens(served.tokenizer, text),), ending=text[-ENDING:])


def _completion(body: CompletionRequest, served: Served) -> Texts:
    tokenizer = served.tokenizer
    prompts = completion_prompts(
        tokenizer,
        body.prompt,
        add_special_tokens=body.add_special_tokens is not False,
        vocab_size=served.vocab_size,
    )
    if not body.echo:
        return Texts(prompts)
    given = [body.prompt] if len(prompts) == 1 and not isinstance(body.prompt, list) else body.prompt
    echoes = tuple(
        text if isinstance(text, str) else tokenizer.decode(tokens, skip_special_tokens=False)
        for text, tokens in zip(given if len(given) == len(prompts) else prompts, prompts, strict=True)
    )
    return Texts(prompts, echoes)
