"""The length model: classes in a hierarchy, each leaning on its parent while it is thin (R-01, R-03)."""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import inf
from typing import Any, Self

from gateway.policy.estimate.bins import bins_of
from gateway.policy.estimate.drift import Drift
from gateway.policy.estimate.estimate import Estimate
from gateway.policy.estimate.features import ClassKey, Features, FinishedBy
from gateway.policy.estimate.knobs import Knobs
from gateway.policy.estimate.ledger import Ledger
from gateway.policy.estimate.length_class import LengthClass, Table, table_of
from gateway.policy.estimate.predictor import Predictor

SCHEMA = "tandem-length-model/1"
_MODEL, _KIND, _TENANT = 1, 2, 3


@dataclass(frozen=True, slots=True)
class ClassView:
    """One class as an operator sees it. `worth` is its effective count."""

    key: ClassKey
    observations: int
    worth: float
    drifts: int
    estimate: Estimate


class LengthModel:
    """Reads `clock` (seconds, monotonic or virtual) and nothing else; not thread-safe."""

    def __init__(self, knobs: Knobs, clock: Callable[[], float], predictor: Predictor | None = None) -> None:
        self.knobs = knobs
        self.ledger = Ledger(knobs)
        self._clock = clock
        self.predictor = predictor
        self._bins = bins_of(knobs.accuracy, knobs.longest_tokens)
        self._told_s = -inf
        self._prior = table_of(knobs.prior, self._bins)
        self._priors = self._tables(knobs)
        # Least recently observed first; a parent is always later than its children, so they are evicted first.
        self._classes: OrderedDict[ClassKey, LengthClass] = OrderedDict()

    def adopt(self, knobs: Knobs) -> None:
        """Other knobs from the next estimate on; everything learnt stays. ValueError where that cannot be."""
        if (knobs.accuracy, knobs.longest_tokens) != (self.knobs.accuracy, self.knobs.longest_tokens):
            raise ValueError("what was learnt is kept in bins; accuracy and longest_tokens stay as they are")
        now_s = self._clock()
        self.knobs = knobs
        self._prior = table_of(knobs.prior, self._bins)
        self._priors = self._tables(knobs)
        for member in self._classes.values():
            member.adopt(knobs, now_s)
        self.ledger.adopt(knobs, now_s)

    def estimate(self, features: Features, max_tokens: int | None = None, window_tokens: int | None = None) -> Estimate:
        """The whole answer to come: capped by the thinking budget, `max_tokens` and what the window leaves."""
        found = self.predictor.predict(features) if self.predictor else None
        if found is None:
            found = self._from_classes(features)
        if window_tokens is not None:
            room = max(0, window_tokens - features.prompt_tokens)
            max_tokens = room if max_tokens is None else min(max_tokens, room)
        return found.capped(max_tokens)

    def observe(
        self, features: Features, output_tokens: int, finished_by: FinishedBy, estimate: Estimate | None = None
    ) -> tuple[Drift, ...]:
        """One answer is over. `estimate` is what was given for it at admission, for the ledger; answers that were cut
        or left count as lower bounds. The drifts it completes come back, widest class first.
        """
        if finished_by.left_early and output_tokens < 1:
            return ()
        now_s = self._clock()
        path = features.path(self.knobs.prompt_edges)
        given = estimate if estimate is not None else self.estimate(features)
        self.ledger.record(path[_TENANT], given, output_tokens, finished_by, now_s)
        key, cut = self._bins.key(output_tokens), finished_by.censored
        drifts = []
        table = self._prior
        for depth, name in enumerate(path):
            table = self._base(table, depth, features.model)
            member = self._member(name, table, now_s)
            table = member.refresh(table, now_s)
            member.add(key, cut, now_s)
            # Everything together is not judged: its alarms would only repeat those of its models.
            if depth and (found := member.drifted(key, cut, now_s)):
                drifts.append(Drift(name, found[0], now_s, found[1]))
        self._touch(path, now_s)
        self._from_classes(features)  # tables that are due are made now, and not while a request waits for its estimate
        return tuple(drifts)

    def running(self, answers: Iterable[tuple[Features, int]]) -> None:
        """All answers under way, with the tokens each has: every few seconds, in place of those told before.

        They are known to be longer. Without them a class that has just begun, or just become longer, has seen only the
        short ones end.
        """
        reached: dict[ClassKey, list[int]] = {}
        for features, tokens in answers:
            key = self._bins.key(tokens)
            path = features.path(self.knobs.prompt_edges)
            for name in path:
                reached.setdefault(name, []).append(key)
            if path[-1] not in self._classes:
                self._begin(path, features.model)
        now_s = self._clock()
        for name in sorted(self._classes, key=len):  # the wider ones first
            above = (self._classes.get(name[:depth]) for depth in range(1, len(name)))
            alert = any(each is not None and each.quick for each in above)
            self._classes[name].run(reached.get(name), now_s, judge=bool(name), alert=alert)
        self._told_s = now_s

    @property
    def untold(self) -> bool:
        """Whether what was said of the answers under way is too old to go by."""
        return self._clock() - self._told_s >= self.knobs.refresh_s

    def headroom(self, features: Features) -> float:
        """Factor on a reservation at the target quantile, from recent errors of this class (R-04)."""
        return self.ledger.headroom(self.class_of(features), self._clock())

    def class_of(self, features: Features) -> ClassKey:
        """The class under which the ledger counts: model, kind, tenant."""
        return features.path(self.knobs.prompt_edges)[_TENANT]

    def number(self, features: Features) -> int:
        """Of the class whose lengths it is given, the same for all its answers while this process lives. 0: a predictor
        tells every request its own."""
        if self.predictor is not None:
            return 0
        return hash((features.path(self.knobs.prompt_edges)[-1], features.thinking_budget)) % (1 << 63)

    def classes(self) -> list[ClassView]:
        """All classes, in the order of their names."""
        return [
            ClassView(key, each.observations, each.worth, each.drifts, each.table.estimate)
            for key, each in sorted(self._classes.items())
        ]

    def document(self) -> dict[str, Any]:
        """Everything learnt, as plain JSON values."""
        now_s = self._clock()
        return {
            "schema": SCHEMA,
            "accuracy": self.knobs.accuracy,
            "classes": [{"key": list(key), **each.document(now_s)} for key, each in self._classes.items()],
            "ledger": self.ledger.document(now_s),
        }

    @classmethod
    def restore(
        cls,
        document: dict[str, Any],
        knobs: Knobs,
        clock: Callable[[], float],
        predictor: Predictor | None = None,
    ) -> Self:
        """From `document()`; the time between does not count as age. ValueError if it is of another kind or accuracy."""
        if document.get("schema") != SCHEMA:
            raise ValueError(f"not a {SCHEMA} document: {document.get('schema')!r}")
        if document["accuracy"] != knobs.accuracy:
            raise ValueError(f"saved with accuracy {document['accuracy']}, not {knobs.accuracy}")
        model, now_s = cls(knobs, clock, predictor), clock()
        for row in document["classes"]:
            member = LengthClass(model._bins, knobs, model._prior, now_s)
            member.load(row, now_s)
            model._classes[tuple(row["key"])] = member
        model.ledger.load(document["ledger"], now_s)
        return model

    def _tables(self, knobs: Knobs) -> dict[str, Table]:
        return {model: table_of(prior, self._bins) for model, prior in knobs.model_priors}

    def _from_classes(self, features: Features) -> Estimate:
        now_s = self._clock()
        table, known = self._prior, 0.0
        for depth, name in enumerate(features.path(self.knobs.prompt_edges)):
            table = self._base(table, depth, features.model)
            member = self._classes.get(name)
            if member is not None:
                table = member.refresh(table, now_s)
                known = member.worth if depth == _KIND else known
            elif depth:
                break
        # A class of its own has learnt what the budget does; its parents have not.
        if features.thinking_budget is None or known >= self.knobs.shrink_observations:
            return table.estimate
        return table.estimate.thinking_capped(features.thinking_budget, self.knobs.reasoning_share)

    def _begin(self, path: tuple[ClassKey, ...], model: str) -> None:
        """Classes of which no answer has ended yet: that those under way go on is already known of them."""
        now_s, table = self._clock(), self._prior
        for depth, name in enumerate(path):
            table = self._member(name, self._base(table, depth, model), now_s).table
        self._touch(path, now_s)

    def _member(self, name: ClassKey, table: Table, now_s: float) -> LengthClass:
        member = self._classes.get(name)
        if member is None:
            member = self._classes[name] = LengthClass(self._bins, self.knobs, table, now_s)
        return member

    def _base(self, parent: Table, depth: int, model: str) -> Table:
        """What a class leans on: its parent, or the prior declared for its model."""
        return self._priors.get(model, parent) if depth == _MODEL else parent

    def _touch(self, path: tuple[ClassKey, ...], now_s: float) -> None:
        for name in reversed(path):
            self._classes.move_to_end(name)
        oldest_s = now_s - self.knobs.idle_s
        while len(self._classes) > self.knobs.max_classes or next(iter(self._classes.values())).touched_s < oldest_s:
            self._classes.popitem(last=False)
