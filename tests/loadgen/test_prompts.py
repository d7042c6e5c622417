"""Exact lengths, shared prefixes, and requests in the target's dialect."""

from pathlib import Path

import pytest
import tokenizers

from loadgen.client.prompts import PromptWriter
from loadgen.client.target import Output, Prompts, Surface
from loadgen.client.vocabulary import LocalTokenizer, Vocabulary, candidates, confirm, local_vocabulary
from loadgen.demand import Demand
from loadgen.failure import LoadgenError
from loadgen.result import Ending
from loadgen.schedule import Planned
from loadgen.scripted.script import steady
from loadgen.scripted.server import Behaviour, serving
from tests.loadgen.live import plan, prepared, run


def _words(text: str) -> list[str]:
    return text.split()


@pytest.mark.parametrize("length", [1, 2, 3, 5, 16, 17, 100, 511, 512, 513, 2000])
@pytest.mark.parametrize("prefix", [(), (3, 4), tuple(range(8))])
def test_prompts_have_exact_lengths_and_are_the_same_as_ids(length: int, prefix: tuple[int, ...]) -> None:
    words = candidates()
    writer = PromptWriter(Vocabulary(words, tuple(range(1000, 1000 + len(words)))))
    demand = Demand(length, 1, prefix=prefix)
    text = _words(writer.text(demand, 7))
    assert len(text) == length
    assert [words.index(w) + 1000 for w in text] == writer.ids(demand, 7)
    with_overhead = PromptWriter(Vocabulary(words, (), overhead=1, chat_overhead=9))
    assert len(_words(with_overhead.text(demand, 7))) == max(1, length - 1)
    assert len(_words(with_overhead.text(demand, 7, chat=True))) == max(1, length - 9)


def test_equal_block_ids_are_equal_text_and_nothing_else_is_shared() -> None:
    writer = PromptWriter(Vocabulary(candidates()))
    a = _words(writer.text(Demand(1200, 1, prefix=(5, 6, 7)), 0))
    b = _words(writer.text(Demand(1300, 1, prefix=(5, 6, 8)), 1))
    assert a[:1024] == b[:1024]
    assert a[1024:1040] != b[1024:1040]
    unique = {tuple(_words(writer.text(Demand(64, 1), i))[:16]) for i in range(3000)}
    assert len(unique) == 3000
    other = PromptWriter(Vocabulary(candidates()), salt=1)
    assert _words(other.text(Demand(1200, 1, prefix=(5, 6, 7)), 0))[:16] != a[:16]
    assert writer.text(Demand(900, 1), 3) == PromptWriter(Vocabulary(candidates())).text(Demand(900, 1), 3)


def test_words_of_several_tokens_are_weeded_out() -> None:
    words = candidates()
    bad = set(words[3::7])
    asked = []

    def count(text: str) -> int:
        asked.append(text)
        return 1 + sum(2 if w in bad else 1 for w in text.split())

    confirmed = confirm(count, words)
    assert confirmed.words == tuple(w for w in words if w not in bad)
    assert confirmed.overhead == 1
    with pytest.raises(LoadgenError, match="known words"):
        confirm(lambda text: 1 + sum(1 if w == words[0] else 2 for w in text.split()), words)


@pytest.mark.parametrize(("surface", "prompts"), [("chat", "text"), ("completions", "text"), ("completions", "ids")])
async def test_the_targets_own_count_of_the_prompt_is_the_planned_one(surface: str, prompts: str) -> None:
    behaviour = Behaviour(steady(0.0, 0.0), pieces=lambda w: 2 if w.endswith("e") else 1)
    requests = [Planned(i, 0.01 * i, Demand(n, 1)) for i, n in enumerate((20, 64, 65, 1000))]
    results = await run(behaviour, requests, surface=Surface(surface), prompts=Prompts(prompts))
    assert [r.prompt_tokens for r in results] == [20, 64, 65, 1000]


async def test_exact_outputs_ask_for_exactly_that() -> None:
    behaviour = Behaviour(steady(0.0, 0.0))
    await run(behaviour, plan(0.0, output_tokens=5, tenant="acme"), extra={"top_k": 1})
    (body,) = behaviour.seen
    assert (body["max_tokens"], body["min_tokens"], body["ignore_eos"], body["user"], body["top_k"]) == (
        5,
        5,
        True,
        "acme",
        1,
    )
    assert body["stream_options"] == {"include_usage": True, "continuous_usage_stats": True}
    await run(behaviour, plan(0.0), output=Output.CAP)
    assert "ignore_eos" not in behaviour.seen[0]


async def test_strict_targets_get_plain_requests() -> None:
    behaviour = Behaviour(steady(0.0, 0.005), strict=True, tokenize=False, running_usage=False)
    async with serving(behaviour) as url:
        ready = await prepared(url)
    assert not ready.target.dialect.ignore_eos
    assert any("running token counts" in note for note in ready.notes)
    assert any("ignore_eos" in note for note in ready.notes)
    (r,) = await run(behaviour, plan(0.0, output_tokens=4))
    assert (r.ending, r.output_tokens, r.tokens_from) == (Ending.COMPLETED, 4, "chunks")


def test_byte_level_tokenizers_get_letters() -> None:
    vocabulary = confirm(lambda text: 1 + len(text.encode()), candidates())
    writer = PromptWriter(vocabulary)
    texts = [writer.text(Demand(50, 1), i) for i in range(2000)]
    assert {len(t) for t in texts} == {49}
    assert len({t[:16] for t in texts}) == 2000
    with pytest.raises(LoadgenError, match="neither words nor letters"):
        confirm(lambda text: 2 * len(text), candidates())


def test_a_local_tokenizer_gives_exact_prompts(tmp_path: Path) -> None:
    words = candidates()
    vocab = {"[UNK]": 0, **{w: i + 1 for i, w in enumerate(words[:300])}}
    model = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocab, unk_token="[UNK]"))
    model.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    model.save(str(tmp_path / "tokenizer.json"))
    tokenizer = LocalTokenizer(tmp_path)
    vocabulary = local_vocabulary(tokenizer)
    writer = PromptWriter(vocabulary)
    for n in (1, 2, 17, 600):
        demand = Demand(n, 1)
        assert tokenizer.count(writer.text(demand, n)) == n
        assert tokenizer.ids(writer.text(demand, n)) == writer.ids(demand, n)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(LoadgenError, match="not a tokenizer"):
        LocalTokenizer(tmp_path)
