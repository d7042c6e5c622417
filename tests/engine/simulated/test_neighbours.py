"""Engines on the same cores slow each other down while both compute, and only then."""

from pathlib import Path

from engine.simulated.cost.table import write_table
from engine.simulated.neighbours import Neighbours
from proto.sampling import Sampling
from tests.engine.simulated.cost.test_profile_pair import table
from tests.engine.simulated.fleet import Running, pair, text

LONG = Sampling(max_tokens=40, temperature=0.0, ignore_eos=True)


def test_each_busy_neighbour_stretches_a_step_by_as_much() -> None:
    neighbours = Neighbours({"decode": 1.5, "prefill": 1.2})
    assert (neighbours.stretch(prompts=False), neighbours.stretch(prompts=True)) == (1.0, 1.0)
    neighbours.heard("a", busy=True)
    neighbours.heard("a", busy=True)
    assert (neighbours.stretch(prompts=False), neighbours.stretch(prompts=True)) == (1.5, 1.2)
    neighbours.heard("b", busy=True)
    assert neighbours.stretch(prompts=False) == 2.0
    neighbours.heard("b", busy=False)
    neighbours.gone("a")
    neighbours.gone("a")
    assert neighbours.stretch(prompts=False) == 1.0


def test_engines_that_share_nothing_tell_each_other_nothing() -> None:
    assert not Neighbours({}).matter
    assert not Neighbours({"decode": 1.0}).matter
    assert Neighbours({"decode": 1.0, "prefill": 1.1}).matter


def _stretched(one: Running) -> bool:
    return one.engine._handoff.neighbours.stretch(prompts=False) > 1.0


async def test_both_hear_when_the_other_computes_and_forget_one_that_dies(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    write_table(table(), path)
    async with pair(profile=f"file:{path}") as (writer, reader):
        for busy, idle in ((writer, reader), (reader, writer)):
            busy.submit("a", text("something", "long"), LONG)
            await busy.until(lambda idle=idle: _stretched(idle))
            assert not _stretched(busy)
            await busy.end_of("a")
            await busy.until(lambda idle=idle: not _stretched(idle))
        for dies, lives in ((writer, reader),):
            dies.submit("b", text("cut", "short"), LONG)
            await lives.until(lambda lives=lives: _stretched(lives))
            await dies.engine.stop()
            await lives.until(lambda lives=lives: not _stretched(lives))
