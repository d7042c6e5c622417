"""How much two engines on the same cores slow each other down while they serve.

`tandem profile --pair` measures two engines and nothing else. A served pair has its workers' processes, a gateway and a
client on the same cores, which a step that has them to itself lets run beside it, and a step beside a busy neighbour does
not. So the slowdown is taken from a served pair: the same requests one at a time and two at a time, with another seed
than those that the simulation is judged by.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

from benchmarks.fidelity import alone, say
from engine.simulated.cost.profile_pair import DECODE, PREFILL
from engine.simulated.cost.table import read_table, write_table
from loadgen.arms.local import LocalArm
from loadgen.arrivals.process import Arrivals, Kind
from loadgen.experiment import Experiment
from loadgen.result import Result

#: Requests that each of both runs asks for, and what is long enough for its time to be that of its steps.
_REQUESTS, _PROMPT_TOKENS, _GAPS = 40, 32, 8


async def measure_served(words: str, experiment: Experiment) -> dict[str, float]:
    """By kind of step: its time beside a serving neighbour over its time alone, never below 1.

    `words` start two engines that do the same, each of which serves one of two requests at a time.
    """
    single = alone(replace(experiment, count=_REQUESTS).schedule(), _REQUESTS)
    double = replace(single, arrivals=Arrivals(Kind.CLOSED, concurrency=2))
    async with LocalArm("a served pair", 1, words) as arm:
        say(f"a served pair: {_REQUESTS} requests one at a time")
        one = await arm.observe(single, experiment.words_salt(0.0, 1))
        say(f"a served pair: {_REQUESTS} requests two at a time")
        two = await arm.observe(double, experiment.words_salt(0.0, 2))
    return slowdown(one.results, two.results)


def slowdown(one: Sequence[Result], two: Sequence[Result]) -> dict[str, float]:
    """Medians over the requests that are long enough, each held against itself; an answer that came all at once has no gaps.
    ValueError where there is none."""
    before = {each.index: each for each in one if each.first_s is not None}
    pairs = [(before[each.index], each) for each in two if each.first_s is not None and each.index in before]
    ratios = {
        PREFILL: [_ttft_s(b) / _ttft_s(a) for a, b in pairs if a.prompt_tokens >= _PROMPT_TOKENS],
        DECODE: [
            _gap_s(b) / _gap_s(a) for a, b in pairs if min(a.output_tokens, b.output_tokens) > _GAPS and _gap_s(a) > 0.0
        ],
    }
    if not all(ratios.values()):
        raise ValueError("no request of both runs is long enough to compare")
    return {kind: max(1.0, median(found)) for kind, found in ratios.items()}


async def write_served(measured: Path, words: str, experiment: Experiment, out: Path) -> None:
    """The table of a pair, with the slowdown of a served pair in the place of its own."""
    sharing = await measure_served(words, experiment)
    table = read_table(measured)
    told = {kind: f"{table.sharing.get(kind, 1.0):.2f} -> {factor:.2f}" for kind, factor in sharing.items()}
    say(f"beside a neighbour, as measured without and with a gateway: {told}")
    write_table(replace(table, sharing=sharing), out)


def _ttft_s(result: Result) -> float:
    assert result.first_s is not None
    return result.first_s - result.sent_s


def _gap_s(result: Result) -> float:
    assert result.first_s is not None
    return (result.end_s - result.first_s) / (result.output_tokens - 1)
