"""The Engine contract, in real time."""

import asyncio
import json
import subprocess
import sys
import time

import pytest

from engine.base import Engine, EngineDeadError, WorkerIdentity
from engine.config import EngineConfig
from engine.simulated import SimulatedEngine
from proto.fault import FaultError, FaultKind
from proto.sampling import Sampling, StructuredKind, StructuredOutput
from proto.work import FinishReason, Work
from proto.worker import Role
from tests.engine.simulated.fleet import engine, text, tokens

PROMPT = text("what", "is", "the", "capital", "of", "France")
GREEDY = Sampling(max_tokens=24, temperature=0.0, ignore_eos=True)


def test_satisfies_the_protocol() -> None:
    built: Engine = SimulatedEngine(EngineConfig(), WorkerIdentity("w", "e", Role.BOTH))
    assert built is not None


@pytest.mark.slow
def test_imports_neither_torch_nor_vllm() -> None:
    code = "import engine.simulated, sys; print([m for m in ('torch', 'vllm', 'nixl', 'transformers') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


async def test_equal_requests_get_equal_answers_and_others_do_not() -> None:
    async with engine() as one, engine("other") as other:
        first = await one.run("a", PROMPT, GREEDY)
        assert len(first) == 24
        assert await one.run("b", PROMPT, GREEDY) == first
        assert await other.run("c", PROMPT, GREEDY) == first
        assert await one.run("d", (*PROMPT[:-1], 33), GREEDY) != first
        assert one.finish_of("a") is FinishReason.LENGTH


@pytest.mark.parametrize("cut", [1, 2, 7, 23])
async def test_a_continued_answer_goes_on_where_it_stopped(cut: int) -> None:
    async with engine() as one, engine("other") as other:
        whole = await one.run("a", PROMPT, GREEDY)
        rest = await other.run(
            "b", PROMPT + whole[:cut], Sampling(max_tokens=24 - cut, temperature=0.0, ignore_eos=True)
        )
        assert whole[:cut] + rest == whole


async def test_a_lost_or_doubled_token_shows() -> None:
    async with engine() as one:
        whole = await one.run("a", PROMPT, GREEDY)
        lost = await one.run("b", PROMPT + whole[1:3], GREEDY)
        doubled = await one.run("c", PROMPT + whole[:1] * 2, GREEDY)
        assert lost[:8] != whole[3:11]
        assert doubled[:8] != whole[1:9]


async def test_seed_matters_only_when_sampling() -> None:
    async with engine() as one:
        greedy = await one.run("a", PROMPT, GREEDY)
        assert await one.run("b", PROMPT, Sampling(max_tokens=24, temperature=0.0, ignore_eos=True, seed=7)) == greedy
        seven = await one.run("s7", PROMPT, Sampling(max_tokens=24, ignore_eos=True, seed=7))
        again = await one.run("s7b", PROMPT, Sampling(max_tokens=24, ignore_eos=True, seed=7))
        eight = await one.run("s8", PROMPT, Sampling(max_tokens=24, ignore_eos=True, seed=8))
        assert seven == again
        assert len({greedy, seven, eight}) == 3


@pytest.mark.parametrize("more", [{"seed": 3}, {"presence_penalty": 0.5}, {"frequency_penalty": 0.5}])
async def test_what_counts_the_answer_alone_does_not_survive_a_carried_token(more: dict[str, float]) -> None:
    """Real engines count draws and penalties from the start of a leg, so the gateway must replay, not carry."""
    async with engine() as one:
        sampling = {"ignore_eos": True, **more}
        whole = await one.run("a", PROMPT, Sampling(max_tokens=24, **sampling))  # type: ignore[arg-type]  # keywords of several types in one dict
        carried = await one.run("b", PROMPT + whole[:1], Sampling(max_tokens=23, **sampling))  # type: ignore[arg-type]  # keywords of several types in one dict
        replayed = await one.run("c", PROMPT, Sampling(max_tokens=24, **sampling))  # type: ignore[arg-type]  # keywords of several types in one dict
        assert replayed == whole
        assert whole[:1] + carried != whole


async def test_answers_end_by_eos_unless_it_is_ignored_or_too_early() -> None:
    async with engine() as one:
        eos = one.info.eos_token_ids[0]
        lengths = []
        for index in range(20):
            name = f"r{index}"
            answer = await one.run(name, text("question", str(index)), Sampling(max_tokens=4000))
            if one.finish_of(name) is FinishReason.STOP:
                assert answer[-1] == eos
                assert eos not in answer[:-1]
                lengths.append(len(answer))
        assert len(lengths) >= 18
        assert 80 < sum(lengths) / len(lengths) < 800
        shortest = min(range(20), key=lambda i: len(one.outputs[f"r{i}"]))
        prompt, short = text("question", str(shortest)), len(one.outputs[f"r{shortest}"])
        later = await one.run("later", prompt, Sampling(max_tokens=short + 5, min_tokens=short + 5))
        assert len(later) == short + 5
        assert eos not in later
        ignored = await one.run("ignored", prompt, Sampling(max_tokens=short + 5, ignore_eos=True))
        assert len(ignored) == short + 5
        assert ignored[short - 1] == eos


async def test_stop_token_ids_end_an_answer() -> None:
    async with engine() as one:
        whole = await one.run("a", PROMPT, GREEDY)
        stop = whole[9]
        at = whole.index(stop)
        stopped = await one.run(
            "b", PROMPT, Sampling(max_tokens=24, temperature=0.0, ignore_eos=True, stop_token_ids=(stop,))
        )
        assert stopped == whole[: at + 1]
        assert one.finish_of("b") is FinishReason.STOP


async def test_logit_bias_forces_and_bans() -> None:
    async with engine() as one:
        whole = await one.run("a", PROMPT, GREEDY)
        forced = await one.run("b", PROMPT, Sampling(max_tokens=5, logit_bias=((77, 100.0),)))
        banned = await one.run("c", PROMPT, Sampling(max_tokens=24, ignore_eos=True, logit_bias=((whole[0], -100.0),)))
        assert forced == (77,) * 5
        assert whole[0] not in banned


async def test_the_window_ends_an_answer_by_length() -> None:
    async with engine(max_model_len=64) as one:
        answer = await one.run("a", PROMPT, Sampling(max_tokens=1000, ignore_eos=True))
        assert len(answer) == 64 - len(PROMPT)
        assert one.finish_of("a") is FinishReason.LENGTH


async def test_logprobs_are_aligned_and_begin_with_the_token() -> None:
    async with engine() as one:
        one.submit("a", PROMPT, Sampling(max_tokens=5, ignore_eos=True, logprobs=3, prompt_logprobs=2))
        outputs = await one.end_of("a")
        for output in outputs:
            (entry,) = output.delta.logprobs
            assert entry.token_ids[0] == output.delta.tokens[0]
            assert len(entry.token_ids) == len(entry.logprobs) == len(entry.ranks) == 4
            assert list(entry.logprobs[1:]) == sorted(entry.logprobs[1:], reverse=True)
        prompt = outputs[0].delta.prompt_logprobs
        assert len(prompt) == len(PROMPT)
        assert prompt[0] is None
        assert [entry.token_ids[0] for entry in prompt[1:] if entry is not None] == list(PROMPT[1:])
        assert not outputs[1].delta.prompt_logprobs


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "object", "properties": {"name": {"type": "string", "minLength": 3}, "age": {"type": "integer", "minimum": 18}},
         "required": ["name", "age"]},
        {"type": "array", "items": {"enum": ["x", "y"]}, "minItems": 2},
        {"$ref": "#/$defs/a", "$defs": {"a": {"type": "object", "properties": {"b": {"anyOf": [{"type": "null"}, {"type": "boolean"}]}}}}},
    ],
)  # fmt: skip
async def test_structured_output_is_valid_json(schema: dict[str, object]) -> None:
    wanted = StructuredOutput(StructuredKind.JSON_SCHEMA, json.dumps(schema))
    if not schema:
        wanted = StructuredOutput(StructuredKind.JSON_OBJECT)
    async with engine() as one:
        answer = await one.run("a", PROMPT, Sampling(max_tokens=200, structured=wanted))
        assert one.finish_of("a") is FinishReason.STOP
        value = json.loads(bytes(answer[:-1]))
        if "properties" in schema:
            assert value == {"name": "xxx", "age": 18}
        if schema.get("type") == "array":
            assert value == ["x", "x"]


async def test_a_schema_that_cannot_be_met_is_refused() -> None:
    wanted = StructuredOutput(StructuredKind.JSON_SCHEMA, json.dumps({"type": "string", "pattern": "^a+$"}))
    async with engine() as one:
        with pytest.raises(FaultError) as caught:
            one.submit("a", PROMPT, Sampling(max_tokens=9, structured=wanted))
        assert caught.value.fault.kind is FaultKind.INVALID_REQUEST
        assert "pattern" in caught.value.fault.message


async def test_wide_characters_are_split_over_tokens_and_whole_in_the_end() -> None:
    async with engine() as one:
        answer = await one.run("a", PROMPT, Sampling(max_tokens=2000, ignore_eos=True))
        said = bytes(token for token in answer if token < 256)[:1990].decode(errors="ignore")
        assert any(ord(character) > 0xFFFF for character in said)
        assert any(0x80 < ord(character) < 0x800 for character in said)


async def test_impossible_requests_are_refused_at_once() -> None:
    async with engine(max_model_len=128, kv_blocks=4) as one:
        for prompt, kind in (
            ((), FaultKind.INVALID_REQUEST),
            ((1,) * 128, FaultKind.CONTEXT_LENGTH),
            ((1,) * 100, FaultKind.KV_CAPACITY),
            ((9999,), FaultKind.INVALID_REQUEST),
        ):
            with pytest.raises(FaultError) as caught:
                one.submit("a", prompt, GREEDY)
            assert caught.value.fault.kind is kind
        assert len(await one.run("a", PROMPT, Sampling(max_tokens=3, ignore_eos=True))) == 3


async def test_b55_an_answer_that_outgrows_the_kv_space_ends_with_a_fault() -> None:
    async with engine(kv_blocks=4, max_model_len=1000) as one:
        one.submit("a", (1,) * 40, Sampling(max_tokens=500, ignore_eos=True))
        one.submit("b", (2,) * 10, Sampling(max_tokens=5, ignore_eos=True))
        outputs = await one.end_of("a")
        assert outputs[-1].delta.fault is not None
        assert outputs[-1].delta.fault.kind is FaultKind.KV_CAPACITY
        await one.end_of("b")
        assert one.used == 0


async def test_abort_in_any_state_frees_everything_and_silences_the_request() -> None:
    async with engine(profile="toy", max_num_seqs=2) as one:
        for name in ("a", "b", "c"):
            one.submit(name, PROMPT, Sampling(max_tokens=2000, ignore_eos=True))
        await one.until(lambda: len(one.outputs.get("b", ())) > 2)
        assert "c" not in one.outputs
        await one.engine.abort("c")
        await one.engine.abort("a")
        await one.engine.abort("a")  # B-32: twice, and unknown ids
        await one.engine.abort("nobody")
        seen = len(one.outputs["a"])
        await asyncio.sleep(0.02)
        assert len(one.outputs["a"]) == seen
        await one.engine.abort("b")
        assert one.used == 0
        assert (one.engine.stats().running, one.engine.stats().waiting) == (0, 0)


async def test_preempted_answers_are_the_same_and_counted() -> None:
    async with engine(kv_blocks=12) as small, engine("big") as big:
        prompts = [text("prompt", str(index), "x" * 20) for index in range(4)]
        for index, prompt in enumerate(prompts):
            small.submit(f"r{index}", prompt, Sampling(max_tokens=60, ignore_eos=True))
        for index, prompt in enumerate(prompts):
            answer = tokens(await small.end_of(f"r{index}"))
            assert answer == await big.run(f"r{index}", prompt, Sampling(max_tokens=60, ignore_eos=True))
        stats = small.engine.stats()
        assert stats.preemptions > 0
        assert stats.recomputed_tokens > 0
        assert stats.generated_tokens == 240
        assert stats.blocks_used == 0


async def test_the_prefix_cache_is_reported_and_salted() -> None:
    async with engine() as one:
        prompt = (7,) * 70
        for name, salt, cached in (("a", "", 0), ("b", "", 64), ("c", "x", 0), ("d", "x", 64)):
            one.submit(name, prompt, Sampling(max_tokens=2, ignore_eos=True), cache_salt=salt)
            outputs = await one.end_of(name)
            assert outputs[0].delta.cached_tokens == cached
        assert one.engine.stats().cached_prompt_tokens == 128
        assert one.engine.stats().prompt_tokens == 280


async def test_step_times_are_kept_in_real_time_and_scaled_by_speedup() -> None:
    """Never faster than the profile says; and what the engine says a step took is what it meant it to take."""
    for speedup, least in ((1.0, 0.2), (10.0, 0.02)):
        async with engine(profile="toy", speedup=speedup) as one:
            started = time.monotonic()
            await one.run("a", PROMPT, Sampling(max_tokens=100, ignore_eos=True))
            assert time.monotonic() - started >= least
            assert one.engine.stats().step_time_s == pytest.approx(0.002 / speedup, rel=0.2)


async def test_a_slow_consumer_holds_the_engine_back() -> None:
    built = SimulatedEngine(EngineConfig(profile="instant"), WorkerIdentity("w", "e", Role.BOTH))
    await built.start()
    built.submit(Work("a", PROMPT, Sampling(max_tokens=5000, ignore_eos=True)))
    await asyncio.sleep(0.1)
    assert built.stats().generated_tokens < 200
    await built.stop()


async def test_a_stopped_engine_is_dead() -> None:
    async with engine() as one:
        await one.engine.stop()
        await one.engine.stop()
        with pytest.raises(EngineDeadError):
            one.submit("a", PROMPT, GREEDY)
        with pytest.raises(EngineDeadError):
            one.engine.stats()


async def test_a_defect_inside_is_a_dead_engine_not_a_silent_one(monkeypatch: pytest.MonkeyPatch) -> None:
    async with engine() as one:
        monkeypatch.setattr(one.engine._scheduler, "complete_each", lambda step: 1 / 0)
        one.submit("a", PROMPT, GREEDY)
        with pytest.raises(EngineDeadError, match="ZeroDivisionError"):
            await one.end_of("a")
