"""What serving adds to the steps of two engines on the same cores.

`tandem profile --pair` measures two engines and nothing else. A served pair has its workers' processes, a gateway and a
client on the same cores. A request pays for its way through them; steps take longer than between measurements; and a step
that has the cores to itself lets the others run beside it, where a step beside a busy neighbour does not. So all three are
taken from a served pair of the same layout: the same requests one at a time and two at a time, with another seed than those
that the simulation is judged by.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations, pairwise
from pathlib import Path
from statistics import fmean, median

from benchmarks.fidelity import alone, say
from benchmarks.validity.paced import paced
from benchmarks.validity.virtual import Virtual
from engine.simulated.cost import StepCost, load_profile
from engine.simulated.cost.profile_pair import DECODE, PREFILL
from engine.simulated.cost.table import read_table, write_table
from loadgen.arms.local import LocalArm
from loadgen.arrivals.process import Arrivals, Kind
from loadgen.experiment import Experiment
from loadgen.result import Result

#: Requests that each of both runs asks for, and what is long enough for its time to be that of its steps.
_REQUESTS, _PROMPT_TOKENS, _GAPS = 40, 32, 8
#: How far two prompts must be apart for a slope.
_APART_S = 0.02
#: The second token of an answer that is handed over waits for that; gaps count from here.
_HANDED = 1


@dataclass(frozen=True, slots=True)
class Served:
    """`overhead_s`: until a first token, whatever the prompt. By kind of step: `pace`, its time one at a time over the
    table's; `sharing`, its time beside a serving neighbour over that, never below 1."""

    overhead_s: float
    pace: Mapping[str, float]
    sharing: Mapping[str, float]

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)) + "\n")

    @classmethod
    def read(cls, path: Path) -> "Served":
        return cls(**json.loads(path.read_text()))

    def virtual(self, measured: Path, out: Path) -> Virtual:
        """Engines with the table of a pair, `measured`, as they are served. Their table goes to `out`."""
        table = read_table(measured)
        layouts = tuple(paced(one, prefill=self.pace[PREFILL], decode=self.pace[DECODE]) for one in table.layouts)
        write_table(replace(table, layouts=layouts, sharing=self.sharing), out)
        # A first token has two of the simulator's overheads behind it: that of asking for KV, and that of its leg.
        return Virtual(f"file:{out}", overhead_ms=round(self.overhead_s / 2 * 1e3, 3))


async def measure_served(words: str, options: str, experiment: Experiment, measured: Path) -> Served:
    """`words` start the two engines, one way or the other; `measured` is their table."""
    single = alone(replace(experiment, count=_REQUESTS).schedule(), _REQUESTS)
    double = replace(single, arrivals=Arrivals(Kind.CLOSED, concurrency=2))
    async with LocalArm("a served pair", 1, f"{words} {options}") as arm:
        say(f"a served pair, {words}: {_REQUESTS} requests one at a time")
        one = (await arm.observe(single, experiment.words_salt(0.0, 1))).results
        say(f"a served pair, {words}: {_REQUESTS} requests two at a time")
        two = (await arm.observe(double, experiment.words_salt(0.0, 2))).results
    table = f"file:{measured}"
    overhead_s, prefill = prompt_line(one, Virtual(table, overhead_ms=0.0).results(words, single))
    decode = decode_pace(one, load_profile(table).cost)
    sharing = slowdown(one, two, split="--prefill" in words, overhead_s=overhead_s)
    served = Served(overhead_s, {PREFILL: prefill, DECODE: decode}, sharing)
    before = {kind: round(factor, 2) for kind, factor in read_table(measured).sharing.items()}
    say(f"{served}; beside a neighbour without a gateway: {before}")
    return served


def prompt_line(live: Sequence[Result], virtual: Sequence[Result]) -> tuple[float, float]:
    """First tokens of requests alone as a line over those of virtual time without overheads: what comes on top, never below
    0, and how many times as long. The median slope between two requests (Theil and Sen): one that was held up bends nothing."""
    steps = {each.index: _ttft_s(each) for each in virtual if each.first_s is not None}
    points = [(steps[each.index], _ttft_s(each)) for each in live if each.first_s is not None and each.index in steps]
    slopes = [(y - v) / (x - u) for (u, v), (x, y) in combinations(points, 2) if abs(x - u) > _APART_S]
    if not slopes:
        raise ValueError("the prompts are too much alike to tell what depends on their length")
    factor = median(slopes)
    overhead_s = median(y - factor * x for x, y in points)
    return (overhead_s, factor) if overhead_s >= 0.0 else (0.0, median(y / x for x, y in points))


def decode_pace(live: Sequence[Result], cost: StepCost) -> float:
    """How many times as long as by the table the steps of an answer alone took: the median over answers."""
    ratios = [
        fmean(steps) / cost.step_s(1, each.prompt_tokens + each.output_tokens // 2)
        for each in live
        if len(steps := _steps_s(each)) > _GAPS
    ]
    if not ratios:
        raise ValueError("no answer is long enough to time its steps")
    return median(ratios)


def slowdown(
    one: Sequence[Result], two: Sequence[Result], *, split: bool = False, overhead_s: float = 0.0
) -> dict[str, float]:
    """Medians over what is long enough, each request held against itself; an answer that came all at once has no gaps.
    ValueError where there is none.

    Of the run of two only what is beside a neighbour at work counts. With engines that do the same, all of it is. Where they
    are `split`, one to prefill and one to decode, a prompt is that has its engine to itself (it would wait for another), and
    an answer is while the other request's prompt is computed: then it decodes alone, as in the run of one.
    """
    before = {each.index: each for each in one if each.first_s is not None}
    pairs = [(before[each.index], each) for each in two if each.first_s is not None and each.index in before]
    long = [both for both in pairs if both[0].prompt_tokens >= _PROMPT_TOKENS]
    if split:
        long = [both for both in long if not any(_prompts_meet(both[1], other) for other in two)]
    ratios = {
        PREFILL: [(_ttft_s(b) - overhead_s) / (_ttft_s(a) - overhead_s) for a, b in long if _ttft_s(a) > overhead_s],
        DECODE: list(_beside_prompts(pairs, two) if split else _gaps(pairs)),
    }
    if not all(ratios.values()):
        raise ValueError("no request of both runs is long enough to compare")
    return {kind: max(1.0, median(found)) for kind, found in ratios.items()}


def _gaps(pairs: Iterable[tuple[Result, Result]]) -> Iterator[float]:
    """How many times as long the steps of whole answers took."""
    for a, b in pairs:
        if min(a.output_tokens, b.output_tokens) > _GAPS and _gap_s(a) > 0.0:
            yield _gap_s(b) / _gap_s(a)


def _beside_prompts(pairs: Iterable[tuple[Result, Result]], two: Sequence[Result]) -> Iterator[float]:
    """How many times as long each step took during which another request waited for its first token."""
    for a, b in pairs:
        alone_s = _steps_s(a)
        if len(alone_s) > _GAPS:
            for begin_s, end_s in pairwise(b.chunk_s[_HANDED:]):
                if any(other is not b and _waits(other, begin_s, end_s) for other in two):
                    yield (end_s - begin_s) / fmean(alone_s)


def _waits(result: Result, begin_s: float, end_s: float) -> bool:
    """Whether it waited for its first token all that time."""
    return result.first_s is not None and result.sent_s <= begin_s and end_s <= result.first_s


def _prompts_meet(result: Result, other: Result) -> bool:
    """Whether both waited for their first tokens at the same time."""
    assert result.first_s is not None
    if other is result or other.first_s is None:
        return False
    return other.sent_s < result.first_s and result.sent_s < other.first_s


def _steps_s(result: Result) -> list[float]:
    return [end_s - begin_s for begin_s, end_s in pairwise(result.chunk_s[_HANDED:])]


def _ttft_s(result: Result) -> float:
    assert result.first_s is not None
    return result.first_s - result.sent_s


def _gap_s(result: Result) -> float:
    assert result.first_s is not None
    return (result.end_s - result.first_s) / (result.output_tokens - 1)
