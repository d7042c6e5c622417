"""From a client's parameters to what engines are told."""

from gateway.http.grammar import grammar
from gateway.http.prompts import known_tokens
from gateway.http.schema import ChatRequest, Common, CompletionRequest
from gateway.request.errors import Reason, RequestError
from gateway.wording import counted
from proto.sampling import Sampling, StructuredKind, StructuredOutput


def build_sampling(
    body: ChatRequest | CompletionRequest,
    *,
    room: int,
    prompt_tokens: int,
    vocab_size: int,
    call: StructuredOutput | None = None,
) -> Sampling:
    """`room` is what the window leaves for the answer to the longest prompt, of `prompt_tokens` tokens.

    `call` is the grammar of an answer that must be a tool call.
    """
    limit = declared_limit(body)
    if limit is not None and limit > room:
        name = "max_tokens" if body.max_tokens is not None else "max_completion_tokens"
        raise RequestError(
            Reason.CONTEXT_LENGTH,
            f"`{name}` {limit} and a prompt of {counted(prompt_tokens, 'token')} exceed the model's window of "
            f"{counted(room + prompt_tokens, 'token')}. Ask for at most {counted(room, 'token')} or shorten the prompt.",
            param=name,
            numbers={"window": room + prompt_tokens, "prompt_tokens": prompt_tokens, "max_tokens": limit},
        )
    max_tokens = limit if limit is not None else room
    min_tokens = body.min_tokens or 0
    if min_tokens > max_tokens:
        raise RequestError(
            Reason.INVALID_REQUEST,
            f"`min_tokens` {min_tokens} is larger than the limit of {counted(max_tokens, 'token')}.",
            param="min_tokens",
        )
    return Sampling(
        max_tokens=max_tokens,
        min_tokens=min_tokens,
        temperature=_or(body.temperature, 1.0),
        top_p=_or(body.top_p, 1.0),
        top_k=max(body.top_k or 0, 0),
        min_p=body.min_p or 0.0,
        presence_penalty=body.presence_penalty or 0.0,
        frequency_penalty=body.frequency_penalty or 0.0,
        repetition_penalty=_or(body.repetition_penalty, 1.0),
        seed=body.seed,
        stop_token_ids=known_tokens(body.stop_token_ids or [], vocab_size, "stop_token_ids"),
        ignore_eos=bool(body.ignore_eos),
        logit_bias=_logit_bias(body, vocab_size),
        logprobs=answer_logprobs(body),
        prompt_logprobs=_prompt_logprobs(body),
        structured=call or _structured(body),
    )


def declared_limit(body: Common) -> int | None:
    newer = body.max_completion_tokens if isinstance(body, ChatRequest) else None
    if newer is not None and body.max_tokens is not None and newer != body.max_tokens:
        raise RequestError(
            Reason.INVALID_REQUEST,
            "`max_tokens` and `max_completion_tokens` differ. They mean the same; send one of them.",
            param="max_tokens",
        )
    return newer if newer is not None else body.max_tokens


def answer_logprobs(body: ChatRequest | CompletionRequest) -> int | None:
    if isinstance(body, CompletionRequest):
        return body.logprobs
    if body.top_logprobs and not body.logprobs:
        raise RequestError(Reason.INVALID_REQUEST, "`top_logprobs` needs `logprobs` to be true.", param="top_logprobs")
    return (body.top_logprobs or 0) if body.logprobs else None


def _prompt_logprobs(body: ChatRequest | CompletionRequest) -> int | None:
    """An echoed prompt shows its own logprobs, in the same number."""
    if body.prompt_logprobs is not None and body.stream:
        raise RequestError(
            Reason.UNSUPPORTED,
            "`prompt_logprobs` cannot be streamed. Leave out `stream`.",
            param="prompt_logprobs",
        )
    echoed = body.logprobs if isinstance(body, CompletionRequest) and body.echo else None
    wanted = [count for count in (body.prompt_logprobs, echoed) if count is not None]
    return max(wanted) if wanted else None


def _logit_bias(body: Common, vocab_size: int) -> tuple[tuple[int, float], ...]:
    pairs = []
    for name, bias in (body.logit_bias or {}).items():
        if not (name.isascii() and name.isdecimal() and len(name) < 10 and int(name) < vocab_size):
            raise RequestError(
                Reason.INVALID_REQUEST,
                f"`logit_bias` names a token that is not an id from 0 to {vocab_size - 1}.",
                param="logit_bias",
            )
        pairs.append((int(name), bias))
    return tuple(pairs)


def _structured(body: Common) -> StructuredOutput | None:
    wanted = body.response_format
    if wanted is None or wanted.type == "text":
        return None
    if wanted.type == "json_object":
        return StructuredOutput(StructuredKind.JSON_OBJECT)
    if wanted.json_schema is None:
        raise RequestError(
            Reason.INVALID_REQUEST,
            "`response_format` of type 'json_schema' needs `json_schema` with a `schema`.",
            param="response_format.json_schema",
        )
    return grammar(wanted.json_schema.schema_, "response_format")


def stop_strings(body: Common) -> tuple[str, ...]:
    stops = [body.stop] if isinstance(body.stop, str) else body.stop or []
    if len(stops) > 64 or any(not 0 < len(stop) <= 1024 for stop in stops):
        raise RequestError(
            Reason.INVALID_REQUEST,
            "`stop` takes up to 64 strings of 1 to 1024 characters. Use `stop_token_ids` for tokens.",
            param="stop",
        )
    return tuple(stops)


def _or(value: float | None, default: float) -> float:
    return default if value is None else value
