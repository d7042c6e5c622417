"""What a request's tools ask of the prompt, of the sampling, and of whoever reads the answer."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from gateway.http.schema import ChatRequest
from gateway.http.tool_schema import arguments_schema, check_parameters, list_schema
from gateway.http.tools import NamedChoice, Tool
from gateway.parsers.calls import CallParser
from gateway.parsers.named_call import NamedCall
from gateway.parsers.tool_parser import ToolParser, required_calls
from gateway.request.errors import Reason, RequestError
from proto.sampling import StructuredOutput


@dataclass(frozen=True, slots=True)
class ToolUse:
    """`tools` are shown to the model; `structured` is the grammar of an answer that must be a call."""

    tools: tuple[Tool, ...] = ()
    parser: Callable[[], CallParser] | None = None
    structured: StructuredOutput | None = None
    marks: frozenset[str] = frozenset()


def tool_use(body: ChatRequest, parser: ToolParser | None) -> ToolUse:
    """Raises RequestError for tools that cannot be used as asked."""
    tools = tuple(body.tools or ())
    choice = body.tool_choice or "auto"
    if not tools:
        if choice not in ("none", "auto"):
            raise _bad("`tool_choice` asks for a call, but there are no `tools`.", "tool_choice")
        return ToolUse()
    names = _checked(tools)
    if choice == "none":
        return ToolUse()
    if body.response_format is not None and body.response_format.type != "text":
        raise RequestError(
            Reason.UNSUPPORTED,
            "`response_format` and `tools` together are not supported: the grammar of the one forbids the other. "
            "Set `tool_choice` to 'none' for an answer in that format.",
            param="response_format",
        )
    single = body.parallel_tool_calls is False
    if isinstance(choice, NamedChoice):
        if choice.name not in names:
            raise _bad("`tool_choice` names a function that is not among `tools`.", "tool_choice")
        tool = tools[names.index(choice.name)]
        return ToolUse(tools, partial(NamedCall, choice.name), arguments_schema(tool))
    if choice == "required":
        return ToolUse(tools, partial(required_calls, names, single=single), list_schema(tools, single=single))
    if parser is None:
        raise RequestError(
            Reason.UNSUPPORTED,
            "How this model writes tool calls is not set (gateway.tool_parser), so that its own choice of a tool cannot be "
            "read. Set `tool_choice` to 'required', to one function or to 'none', or leave out `tools`.",
            param="tools",
        )
    return ToolUse(tools, partial(parser.calls, names, single=single), marks=parser.marks)


def _checked(tools: tuple[Tool, ...]) -> tuple[str, ...]:
    names: dict[str, None] = {}
    for at, tool in enumerate(tools):
        where = f"tools[{at}].function"
        if tool.function.name in names:
            raise _bad("Two tools have the same name.", f"{where}.name")
        names[tool.function.name] = None
        if fault := check_parameters(tool.function.parameters):
            raise _bad(f"`{where}.parameters` {fault}.", f"{where}.parameters")
    return tuple(names)


def _bad(message: str, param: str) -> RequestError:
    return RequestError(Reason.INVALID_REQUEST, message, param=param)
