"""Parameters that exist elsewhere and not here: each is refused by name, with what to do instead."""

from collections.abc import Callable, Container, Mapping
from typing import Any

from gateway.request.errors import Reason, RequestError


def _empty(value: object) -> bool:
    return value is None or value == [] or value == {} or value == ""


def _null(value: object) -> bool:
    return value is None


#: name -> (values that mean "not used" and are let through, what to do instead)
_UNSUPPORTED: dict[str, tuple[Callable[[object], bool], str]] = {
    "tools": (_empty, "Only conversations call tools: send one to /v1/chat/completions."),
    "tool_choice": (
        lambda value: value in (None, "none", "auto"),
        "Only conversations call tools: send one to /v1/chat/completions.",
    ),
    "functions": (_empty, "Functions are not supported in this older form. Use `tools`."),
    "function_call": (
        lambda value: value in (None, "none", "auto"),
        "Functions are not supported in this older form. Use `tool_choice`.",
    ),
    "best_of": (lambda value: value in (None, 1), "Choosing the best of several answers is not supported. Use `n`."),
    "suffix": (_empty, "Filling in the middle is not supported. Leave out `suffix`."),
    "audio": (_null, "Audio output is not supported. Leave out `audio`."),
    "prediction": (_null, "Predicted outputs are not supported. Leave out `prediction`."),
    "web_search_options": (_null, "Web search is not supported. Leave out `web_search_options`."),
    "reasoning_effort": (
        _null,
        "Not a parameter here. If the model's chat template has such a switch, set it in `chat_template_kwargs`.",
    ),
    "verbosity": (_null, "Not supported. Say in a system message how long answers should be."),
    "use_beam_search": (lambda value: value in (None, False), "Beam search is not supported. Use `n` with sampling."),
    "chat_template": (_null, "Clients may not bring a chat template. The model's own is used."),
    "continue_final_message": (
        lambda value: value in (None, False),
        "Not supported. Render the prompt yourself and send it to /v1/completions.",
    ),
    "documents": (_empty, "Not supported. Put the documents into a message."),
    "truncate_prompt_tokens": (_null, "Not supported. Shorten the prompt; /tokenize counts its tokens."),
    "bad_words": (_empty, "Not supported. Use `logit_bias`."),
    "guided_json": (_null, "Use `response_format` with type 'json_schema'."),
    "structured_outputs": (_null, "Use `response_format` with type 'json_schema'."),
}

#: Hand-off fields name hosts and memory of the fleet. No client may bring any, whatever the value (B-60).
_HANDOFF_PREFIXES = ("kv_transfer", "remote_", "do_remote_", "disagg")

_PARTS = {
    "image_url": "Images are not supported: this gateway serves text models.",
    "input_image": "Images are not supported: this gateway serves text models.",
    "input_audio": "Audio is not supported: this gateway serves text models.",
    "audio_url": "Audio is not supported: this gateway serves text models.",
    "video_url": "Video is not supported: this gateway serves text models.",
    "file": "Files are not supported. Put their text into a text part.",
    "refusal": "Refusal parts are not supported. Send them as text.",
}


def refuse_unsupported(body: dict[str, Any], known: Container[str]) -> dict[str, Any]:
    """Returns the body without unsupported parameters set to "not used"; raises for any that is used.

    `known` are those that this endpoint does take.
    """
    for name in body:
        if name.startswith(_HANDOFF_PREFIXES):
            raise RequestError(
                Reason.INVALID_REQUEST,
                f"`{name[:64]}` is internal to the fleet and never accepted from a client. Leave it out.",
                param=name[:64],
            )
    found = {name for name in _UNSUPPORTED.keys() & body.keys() if name not in known}
    for name in sorted(found):
        unused, advice = _UNSUPPORTED[name]
        if not unused(body[name]):
            raise RequestError(Reason.UNSUPPORTED, advice, param=name)
    messages = body.get("messages")
    if isinstance(messages, list):
        for at, message in enumerate(messages):
            if isinstance(message, dict):
                _refuse_in_message(f"messages[{at}]", message)
    return {name: value for name, value in body.items() if name not in found} if found else body


def _refuse_in_message(where: str, message: Mapping[str, Any]) -> None:
    older = "Functions are not supported in this older form. Use "
    if message.get("role") == "function":
        raise RequestError(Reason.UNSUPPORTED, f"{older}a `tool` message.", param=f"{where}.role")
    if not _empty(message.get("function_call")):
        raise RequestError(Reason.UNSUPPORTED, f"{older}`tool_calls`.", param=f"{where}.function_call")
    content = message.get("content")
    if isinstance(content, list):
        for at, part in enumerate(content):
            kind = part.get("type") if isinstance(part, dict) else None
            if isinstance(kind, str) and kind in _PARTS:
                raise RequestError(Reason.UNSUPPORTED, _PARTS[kind], param=f"{where}.content[{at}].type")
