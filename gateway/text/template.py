"""Chat templates: Jinja in its sandbox, with the helpers that published templates expect."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import jinja2
import jinja2.ext
import jinja2.meta
import jinja2.nodes
import jinja2.parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from gateway.request.errors import Reason, RequestError
from gateway.text.base import Message

#: What the gateway itself passes to a template; a client may not override it.
RESERVED = frozenset({"messages", "add_generation_prompt", "tools", "documents"})


class _Generation(jinja2.ext.Extension):
    """`{% generation %}` marks assistant text for training; in serving it only wraps its body."""

    tags = {"generation"}  # noqa: RUF012 - jinja declares it as an instance attribute

    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _tojson(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # Jinja's own filter escapes HTML, which no model was trained on.
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _refuse(message: str) -> None:
    raise jinja2.TemplateError(message)


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols, _Generation]
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return environment


class JinjaTemplate:
    """One compiled template with the tokenizer's special tokens. Raises RequestError when the template refuses."""

    def __init__(self, source: str, special: Mapping[str, str] | None = None) -> None:
        environment = _environment()
        self._template = environment.from_string(source)
        self._special = dict(special or {})
        self._shows_tools = "tools" in jinja2.meta.find_undeclared_variables(environment.parse(source))

    @property
    def shows_tools(self) -> bool:
        return self._shows_tools

    def render(
        self,
        messages: Sequence[Message],
        *,
        add_generation_prompt: bool,
        tools: Sequence[Message] | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> str:
        clash = RESERVED.intersection(extra or ())
        if clash:
            raise RequestError(
                Reason.INVALID_REQUEST,
                f"chat_template_kwargs may not set {', '.join(sorted(clash))}: the gateway passes these itself.",
                param="chat_template_kwargs",
            )
        values: dict[str, Any] = {"tools": tools, "documents": None, **self._special, **(extra or {})}
        try:
            return self._template.render(messages=messages, add_generation_prompt=add_generation_prompt, **values)
        except jinja2.TemplateError as error:
            raise RequestError(
                Reason.INVALID_REQUEST,
                f"The model's chat template refused these messages: {error.message or type(error).__name__}.",
                param="messages",
            ) from error
        except (TypeError, ValueError, KeyError, AttributeError, ArithmeticError, RecursionError) as error:
            raise RequestError(
                Reason.INVALID_REQUEST,
                f"The model's chat template failed on these messages ({type(error).__name__}: {error}). "
                "Check roles, content and chat_template_kwargs.",
                param="messages",
            ) from error
