"""A learned predictor: boosted stumps on the logarithm of the length, with conformal tables of what they miss.

The stumps place an answer (Friedman, Annals of Statistics 2001); requests that were not used for fitting say how far off
such a place is (split conformal prediction, Vovk 2005), apart for low, middle and high places. Off unless configured.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from gateway.policy.estimate.estimate import END, LEVELS, Estimate, Floats
from gateway.policy.estimate.features import Features

SCHEMA = "tandem-length-stumps/1"
_THRESHOLDS = 16
_LABELS = 32
_GROUPS = 3


@dataclass(frozen=True, slots=True)
class Question:
    """Asks one thing of a request: is `field` above `threshold`, or, for labels, equal to `label`."""

    field: str
    threshold: float = 0.0
    label: str | None = None

    def answer(self, features: Features) -> bool:
        value = getattr(features, self.field)
        if self.label is not None:
            return bool(value == self.label)
        return (-1.0 if value is None else float(value)) > self.threshold


@dataclass(frozen=True, slots=True)
class Stumps:
    """The sum of all stumps on one question is one weight, so a prediction is `bias` + the weights answered yes.

    `groups` are the places between the tables; `tables` (3, 33) are log residuals at `LEVELS`, one row a group.
    """

    questions: tuple[Question, ...]
    weights: tuple[float, ...]
    bias: float
    groups: tuple[float, ...]
    tables: Floats

    def predict(self, features: Features) -> Estimate | None:
        place = self.place(features)
        table = self.tables[sum(place > edge for edge in self.groups)]
        return Estimate(np.ceil(np.exp(place + table)).clip(1, 1 << 40).astype(np.int64))

    def place(self, features: Features) -> float:
        """Predicted natural logarithm of the length."""
        asked = zip(self.questions, self.weights, strict=True)
        return self.bias + sum(weight for question, weight in asked if question.answer(features))

    @classmethod
    def train(
        cls,
        rows: Sequence[tuple[Features, int]],
        rounds: int = 200,
        rate: float = 0.1,
        held_out: float = 0.3,
    ) -> Self:
        """`rows` in order of time, answers that ended by themselves only; the last `held_out` of them calibrate."""
        if len(rows) < 100:
            raise ValueError(f"{len(rows)} answers are too few to train on; 100 are the least")
        split = int(len(rows) * (1 - held_out))
        questions = _questions([features for features, _ in rows[:split]])
        logs = np.log([max(1, tokens) for _, tokens in rows])
        answers = np.array([[q.answer(features) for q in questions] for features, _ in rows], dtype=np.float64)
        bias, weights = _boost(answers[:split], logs[:split], rounds, rate)
        kept = np.flatnonzero(weights)
        places = bias + answers[split:] @ weights
        groups = tuple(float(edge) for edge in np.quantile(places, [i / _GROUPS for i in range(1, _GROUPS)]))
        tables = _tables(places, logs[split:], groups)
        chosen = tuple(questions[i] for i in kept)
        return cls(chosen, tuple(float(weights[i]) for i in kept), bias, groups, tables)

    def document(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "questions": [[q.field, q.threshold, q.label] for q in self.questions],
            "weights": list(self.weights),
            "bias": self.bias,
            "groups": list(self.groups),
            "tables": self.tables.tolist(),
        }

    @classmethod
    def of_document(cls, document: dict[str, Any]) -> Self:
        if document.get("schema") != SCHEMA:
            raise ValueError(f"not a {SCHEMA} document: {document.get('schema')!r}")
        questions = tuple(Question(field, threshold, label) for field, threshold, label in document["questions"])
        weights, groups = tuple(document["weights"]), tuple(document["groups"])
        return cls(questions, weights, document["bias"], groups, np.asarray(document["tables"], dtype=np.float64))


def _questions(seen: Sequence[Features]) -> list[Question]:
    questions: list[Question] = []
    for field in ("prompt_tokens", "thinking_budget", "tools", "structured"):
        values = [getattr(features, field) for features in seen]
        numbers = np.array([-1.0 if value is None else float(value) for value in values])
        inner = np.unique(np.quantile(numbers, np.arange(_THRESHOLDS) / _THRESHOLDS, method="lower"))
        questions += [Question(field, float(t)) for t in inner if t < numbers.max()]
    for field in ("model", "tenant", "task", "effort"):
        labels = Counter(getattr(features, field) for features in seen).most_common(_LABELS)
        questions += [Question(field, label=label) for label, _ in labels if len(labels) > 1]
    return questions


def _boost(answers: Floats, logs: Floats, rounds: int, rate: float) -> tuple[float, Floats]:
    """Least squares: each round takes the question whose two means explain most of what is left."""
    bias = float(logs.mean())
    weights = np.zeros(answers.shape[1])
    if not answers.shape[1]:
        return bias, weights
    rest = logs - bias
    yes = answers.sum(axis=0)
    no = len(logs) - yes
    for _ in range(rounds):
        above = rest @ answers
        below = rest.sum() - above
        gain = above**2 / np.maximum(yes, 1) + below**2 / np.maximum(no, 1)
        best = int(gain.argmax())
        mean_yes, mean_no = above[best] / max(1, yes[best]), below[best] / max(1, no[best])
        step = rate * (mean_yes - mean_no)
        weights[best] += step
        bias += rate * mean_no
        rest -= step * answers[:, best] + rate * mean_no
    return bias, weights


def _tables(places: Floats, logs: Floats, groups: Sequence[float]) -> Floats:
    """Residual quantiles by group, at levels raised to (n + 1) / n so that coverage holds for few."""
    residuals = logs - places
    group = np.searchsorted(groups, places)
    tables = []
    for number in range(_GROUPS):
        own = residuals[group == number]
        own = own if len(own) >= 30 else residuals
        levels = np.clip(LEVELS * (len(own) + 1) / len(own), END, 1)
        tables.append(np.quantile(own, levels, method="inverted_cdf"))
    return np.asarray(tables, dtype=np.float64)
