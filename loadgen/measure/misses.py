"""What the bad requests of a run missed, and where they spent their time."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from loadgen.measure.verdict import Judged, Verdict


def missed_by(bad: Sequence[Judged]) -> Counter[str]:
    """Bad requests by the limits they broke, or by their verdict where they were not served."""
    return Counter(name for judged in bad for name in (judged.missed or (judged.verdict.value,)))


def unserved(missed: Mapping[str, int]) -> int:
    """Of what `missed_by` counts: those that got no whole answer."""
    return sum(missed.get(verdict.value, 0) for verdict in Verdict if verdict is not Verdict.SLO_MISSED)


def spent_s(bad: Sequence[Judged]) -> dict[str, float]:
    """Seconds by stage, all together. Who was turned away has no stages: all its time was a wait for a place."""
    sums: defaultdict[str, float] = defaultdict(float)
    for judged in bad:
        for name, seconds in judged.result.stages_s or (("queue", judged.result.e2e_s),):
            sums[name] += seconds
    return dict(sums)
