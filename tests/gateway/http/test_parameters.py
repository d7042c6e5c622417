"""What clients ask for reaches the engine as it was asked for."""

from typing import Any

import pytest

from proto.sampling import StructuredKind
from tests.gateway.http.scripted import FakeCluster, says, site, worker_info


@pytest.mark.parametrize("chat", [True, False])
async def test_sampling_parameters_reach_the_engine(chat: bool) -> None:
    wanted: dict[str, Any] = {
        "max_tokens": 7,
        "min_tokens": 2,
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 40,
        "min_p": 0.1,
        "presence_penalty": 0.5,
        "frequency_penalty": -0.5,
        "repetition_penalty": 1.1,
        "seed": 11,
        "ignore_eos": True,
    }
    extra = {"n": 3, "stop_token_ids": [7], "logit_bias": {"5": -3}, "priority": 4, "user": "u"}
    async with site(says("a")) as at:
        reply = await (at.chat if chat else at.complete)(**wanted, **extra)
        assert reply.status_code == 200, reply.text
        sampling, intent = at.intent.sampling, at.intent
    assert {name: getattr(sampling, name) for name in wanted} == wanted
    assert (intent.n, intent.priority, intent.declared_max_tokens) == (3, 4, True)
    assert sampling.stop_token_ids == (7,)
    assert sampling.logit_bias == ((5, -3.0),)
    assert (sampling.logprobs, sampling.prompt_logprobs, sampling.structured) == (None, None, None)


async def test_zeros_are_values_and_nulls_are_defaults() -> None:
    async with site(says("a")) as at:
        await at.chat(temperature=0, top_p=None, n=None, stop=None, seed=0, top_k=-1, stream=None)
        sampling = at.intent.sampling
    assert (sampling.temperature, sampling.top_p, sampling.seed, sampling.top_k) == (0.0, 1.0, 0, 0)


async def test_b01_both_names_of_the_limit_mean_the_same() -> None:
    async with site(says("a")) as at:
        await at.chat(max_completion_tokens=9)
        assert at.intent.sampling.max_tokens == 9
        differing = await at.chat(max_completion_tokens=9, max_tokens=8)
    assert differing.status_code == 400


async def test_b71_without_a_limit_the_window_is_the_limit_and_it_was_not_declared() -> None:
    async with site(says("a"), cluster=FakeCluster(worker_info(100))) as at:
        await at.complete([97] * 40)
        assert (at.intent.sampling.max_tokens, at.intent.declared_max_tokens) == (60, False)
        await at.complete([[97] * 40, [97] * 90])
        assert at.intent.sampling.max_tokens == 10


@pytest.mark.parametrize(
    ("given", "kind", "schema"),
    [
        ({"type": "json_object"}, StructuredKind.JSON_OBJECT, ""),
        (
            {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}, "strict": True}},
            StructuredKind.JSON_SCHEMA,
            '{"type":"object"}',
        ),
    ],
)
async def test_response_formats_become_grammars(given: Any, kind: StructuredKind, schema: str) -> None:
    async with site(says("{}")) as at:
        assert (await at.chat(response_format=given)).status_code == 200
        structured = at.intent.sampling.structured
    assert structured is not None
    assert (structured.kind, structured.json_schema) == (kind, schema)


async def test_text_is_no_grammar() -> None:
    async with site(says("a")) as at:
        await at.chat(response_format={"type": "text"})
        assert at.intent.sampling.structured is None


async def test_text_parts_are_joined_and_developers_speak_as_the_system() -> None:
    async with site(says("a")) as at:
        parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
        messages = [{"role": "developer", "content": "be brief"}, {"role": "user", "content": parts}]
        await at.chat(messages=messages)
        prompt = bytes(at.intent.prompts[0]).decode()
        await at.chat(messages=messages, add_generation_prompt=False)
        bare = bytes(at.intent.prompts[0]).decode()
    assert prompt == "<system>\nbe brief\n<user>\none\ntwo\n<assistant>\n"
    assert bare == "<system>\nbe brief\n<user>\none\ntwo\n"


async def test_parameters_set_to_their_unused_value_are_let_through() -> None:
    unused: dict[str, Any] = {"tools": [], "tool_choice": "none", "functions": None, "metadata": {"a": "b"}}
    async with site(says("a")) as at:
        assert (await at.chat(**unused, store=False, parallel_tool_calls=True)).status_code == 200
        assert (await at.complete(best_of=1, suffix=None)).status_code == 200


async def test_the_salt_holds_the_tenant_unless_sharing_is_configured() -> None:
    keys = {"a": "key-a", "b": "key-b"}
    salts: dict[tuple[bool, str, str | None], str] = {}
    for share in (False, True):
        async with site(says("x"), settings={"share_prefix_cache": share, "api_keys": keys}) as at:
            for tenant in ("a", "b"):
                at.client.headers["authorization"] = f"Bearer key-{tenant}"
                for salt in (None, "s"):
                    await at.complete(cache_salt=salt)
                    salts[share, tenant, salt] = at.intent.cache_salt
                    assert at.intent.tenant == tenant
    assert len({value for (share, *_), value in salts.items() if not share}) == 4
    assert {value for (share, *_), value in salts.items() if share} == {"", "s"}


async def test_whole_numbers_may_be_written_with_a_fraction_of_nothing() -> None:
    """As vLLM takes them: JSON knows no difference, and some languages write every number so."""
    numbers = {"n": 2.0, "min_tokens": 1.0, "top_k": -1.0, "priority": -3.0, "stop_token_ids": [7.0]}
    async with site(says("a")) as at:
        chat = await at.chat(**numbers, max_completion_tokens=5.0, seed=-(2.0**63), logprobs=True, top_logprobs=2.0)
        assert chat.status_code == 200, chat.text
        sampling = at.intent.sampling
        plain = await at.complete([1.0, 2], **numbers, max_tokens=5.0, logprobs=1.0, prompt_logprobs=0.0)
        assert plain.status_code == 200, plain.text
        lists = await at.complete([[1.0], [2, 3.0]], n=1.0)
        assert (lists.status_code, at.intent.prompts) == (200, ((1,), (2, 3)))
        back = await at.client.post("/detokenize", json={"tokens": [104.0, 105]})
    assert (sampling.max_tokens, sampling.seed, sampling.stop_token_ids, sampling.top_k) == (5, -(2**63), (7,), 0)
    assert all(type(value) is int for value in (sampling.max_tokens, sampling.min_tokens, sampling.seed))
    assert back.json() == {"prompt": "hi"}


@pytest.mark.parametrize("value", [5.5, "5", True, 1e300, [5.0]])
async def test_what_is_no_whole_number_is_refused(value: Any) -> None:
    async with site(says("a")) as at:
        for name in ("max_tokens", "n", "seed", "top_k", "priority", "prompt_logprobs"):
            reply = await at.complete(**{name: value})
            assert (reply.status_code, reply.json()["error"]["param"].partition("[")[0]) == (400, name)
        for prompt in ([1.0, value], [[1], [value]]):
            assert (await at.complete(prompt)).status_code == 400
