"""From a checked body to an Intent for the lifecycle and a Form for the answer."""

import time
from dataclasses import dataclass

from gateway.http.chat_form import CHAT_PREFIX, ChatForm
from gateway.http.choice import Choice, TextRules
from gateway.http.completion_form import CompletionForm
from gateway.http.exchange import Exchange
from gateway.http.form import Form, Head
from gateway.http.prompts import Tokens
from gateway.http.sampling import answer_logprobs, build_sampling, declared_limit, stop_strings
from gateway.http.schema import ChatRequest, CompletionRequest
from gateway.http.served import Served
from gateway.http.surface import Surface
from gateway.http.texts import Texts, size_of, texts_of
from gateway.http.tool_use import ToolUse, tool_use
from gateway.parsers.reader import Reader
from gateway.parsers.reasoning import Reasoning, ReasoningMarks
from gateway.request.errors import Reason, RequestError
from gateway.request.intent import Intent
from gateway.wording import counted

#: Longest `X-Tandem-Max-Wait`; the queue's own deadline is shorter anyway.
MAX_WAIT_S = 86_400.0


@dataclass(frozen=True, slots=True)
class Prepared:
    intent: Intent
    form: Form
    rules: TextRules
    stream: bool
    usage: bool
    running_usage: bool
    reasoning: bool  # counted apart from the rest of an answer

    def choices(self) -> list[Choice]:
        prompts, n = self.intent.prompts, self.intent.n
        return [Choice(index, prompts[index // n], self.rules) for index in range(self.intent.choices)]


async def prepare(surface: Surface, exchange: Exchange, body: ChatRequest | CompletionRequest) -> Prepared:
    """Raises RequestError for whatever is wrong with the request as such."""
    _check_choices(surface, body)
    served = await surface.served.get(body.model)
    began_s = surface.clock()
    use, texts = await surface.texts.run(lambda: _read(surface, body, served), size=size_of(body))
    surface.observer.tokenized(sum(map(len, texts.prompts)), surface.clock() - began_s)
    intent = _intent(surface, exchange, body, served, texts.prompts, use)
    marks = surface.config.reasoning_marks if isinstance(body, ChatRequest) else None
    options = body.stream_options if body.stream else None
    return Prepared(
        intent=intent,
        form=_form(body, intent, served, texts.echoes, usage_field=bool(options and options.include_usage)),
        rules=_rules(body, served, texts, use, marks if intent.sampling.structured is None else None),
        stream=bool(body.stream),
        usage=bool(options and options.include_usage),
        running_usage=bool(options and options.continuous_usage_stats),
        reasoning=marks is not None,
    )


def _read(surface: Surface, body: ChatRequest | CompletionRequest, served: Served) -> tuple[ToolUse, Texts]:
    """Not on the event loop: schemas of tools may be as large as a body, and are walked part by part (B-58)."""
    use = tool_use(body, surface.config.tool_parser) if isinstance(body, ChatRequest) else ToolUse()
    return use, texts_of(body, served, use.tools)


def _rules(
    body: ChatRequest | CompletionRequest, served: Served, texts: Texts, use: ToolUse, marks: ReasoningMarks | None
) -> TextRules:
    """`marks` is None where there is no reasoning: a grammar binds from the first token on."""

    parser, opened = use.parser, bool(marks and marks.opened(texts.ending))

    def reader() -> Reader:
        """Holds on to nothing else of the request: its tools may be as large as a body, and the answer takes its time."""
        return Reader(Reasoning(marks, opened=opened) if marks else None, parser() if parser else None)

    return TextRules(
        tokenizer=served.tokenizer,
        stops=stop_strings(body),
        include_stop=bool(body.include_stop_str_in_output),
        skip_special_tokens=body.skip_special_tokens is not False,
        min_tokens=body.min_tokens or 0,
        stop_token_ids=frozenset(body.stop_token_ids or ()),
        reader=reader if marks or parser else None,
        kept=use.marks.union((marks.start, marks.end) if marks else ()),
    )


def _check_choices(surface: Surface, body: ChatRequest | CompletionRequest) -> None:
    """Before anything is tokenized: a huge `n` costs nothing (B-06)."""
    if body.stream_options is not None and not body.stream:
        raise RequestError(
            Reason.INVALID_REQUEST, "`stream_options` needs `stream` to be true.", param="stream_options"
        )
    prompts = 1
    if isinstance(body, CompletionRequest) and not isinstance(body.prompt, str) and not isinstance(body.prompt[0], int):
        prompts = len(body.prompt)
    wanted, limit = prompts * (body.n or 1), surface.config.admission.max_choices
    if wanted > limit:
        raise RequestError(
            Reason.INVALID_REQUEST,
            f"Prompts ({prompts}) times `n` ({body.n or 1}) make {wanted} answers; at most {limit} a request are served "
            "(admission.max_choices). Send several requests.",
            param="n" if (body.n or 1) > 1 else "prompt",
            numbers={"choices": wanted, "max_choices": limit},
        )


def _intent(
    surface: Surface,
    exchange: Exchange,
    body: ChatRequest | CompletionRequest,
    served: Served,
    prompts: tuple[Tokens, ...],
    use: ToolUse,
) -> Intent:
    longest = max(map(len, prompts))
    room = served.window - longest
    if room < 1:
        raise RequestError(
            Reason.CONTEXT_LENGTH,
            f"The prompt has {counted(longest, 'token')}; with one token of answer it exceeds the model's window of "
            f"{counted(served.window, 'token')}. Shorten the prompt.",
            param="messages" if isinstance(body, ChatRequest) else "prompt",
            numbers={"window": served.window, "prompt_tokens": longest},
        )
    return Intent(
        request_id=exchange.request_id,
        model=served.name,
        prompts=prompts,
        n=body.n or 1,
        sampling=build_sampling(
            body, room=room, prompt_tokens=longest, vocab_size=served.vocab_size, call=use.structured
        ),
        declared_max_tokens=declared_limit(body) is not None,
        tenant=exchange.tenant,
        priority=body.priority or 0,
        cache_salt=surface.keys.cache_salt(exchange.tenant, body.cache_salt),
        effort=_effort(body),
        tools=bool(use.tools),
        deadline_s=_deadline_s(exchange),
    )


#: Words by which chat templates are told how long to think; whatever else a client writes makes no class of its own.
_EFFORTS = frozenset({"none", "minimal", "low", "medium", "high", "xhigh", "max"})


def _effort(body: ChatRequest | CompletionRequest) -> str:
    """As declared to the template: `reasoning_effort`, or a switch that turns thinking on or off."""
    extra = (body.chat_template_kwargs if isinstance(body, ChatRequest) else None) or {}
    effort = extra.get("reasoning_effort")
    if isinstance(effort, str) and effort in _EFFORTS:
        return effort
    switches = [extra[name] for name in ("enable_thinking", "thinking") if isinstance(extra.get(name), bool)]
    return ("thinking" if switches[0] else "none") if switches else ""


def _deadline_s(exchange: Exchange) -> float | None:
    """The moment until which the client is willing to wait for its turn."""
    if not exchange.max_wait:
        return None
    try:
        wait_s = float(exchange.max_wait)
    except ValueError:
        wait_s = -1.0
    if not 0 < wait_s <= MAX_WAIT_S:
        raise RequestError(
            Reason.INVALID_REQUEST,
            f"`X-Tandem-Max-Wait` must be seconds, above 0 and at most {MAX_WAIT_S:g}.",
            param="X-Tandem-Max-Wait",
        )
    return exchange.started_s + wait_s


def _form(
    body: ChatRequest | CompletionRequest, intent: Intent, served: Served, echoes: tuple[str, ...], *, usage_field: bool
) -> Form:
    prefix = CHAT_PREFIX if isinstance(body, ChatRequest) else "cmpl-"
    head = Head(prefix + intent.request_id, int(time.time()), served.name)
    token_ids = bool(body.return_token_ids)
    top = answer_logprobs(body)
    if isinstance(body, ChatRequest):
        return ChatForm(
            head, served.tokenizer, intent.prompts[0], top=top, usage_field=usage_field, token_ids=token_ids
        )
    return CompletionForm(
        head,
        served.tokenizer,
        intent.prompts,
        n=intent.n,
        echoes=echoes,
        top=top,
        prompt_logprobs=body.prompt_logprobs is not None,
        usage_field=usage_field,
        token_ids=token_ids,
    )
