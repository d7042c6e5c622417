"""A plan as JSON. Every figure is of a model."""

from dataclasses import asdict
from math import isfinite
from typing import Any

from engine.simulated.cost.catalog import table_of
from loadgen.measure.interval import Interval
from loadgen.plan.bottleneck import Bottleneck
from loadgen.plan.difference import changes
from loadgen.plan.further import Answered
from loadgen.plan.plan import Planned
from loadgen.plan.race import Standing
from loadgen.plan.ranking import Row, best_at
from loadgen.plan.worth import Worth

SCHEMA = "tandem-plan/1"


def plan_document(planned: Planned) -> dict[str, Any]:
    asked, question = planned.asked, planned.asked.question
    front = {row.candidate for row in planned.front}
    return {
        "schema": SCHEMA,
        "figures": "of a model: simulations on step-time tables, not measurements",
        "asked": {
            "gpus": [asdict(group) for group in asked.space.groups],
            "prices_per_gpu_hour": dict(asked.prices),
            "workload": question.workload.name,
            "slo": question.policy.describe(),
            "goals": list(question.goals),
            "seed": question.seed,
            "residence_s": question.residence_s,
            "notes": list(question.workload.notes()),
            "tables": [_table(profile) for profile in dict.fromkeys(_profiles(planned))],
        },
        "verdict": planned.verdict,
        "incomplete": planned.incomplete,
        "found": len(planned.found),
        "layouts": len(planned.standings),
        "stages": planned.stages(),
        "dominated": [str(d) for d in planned.dominated],
        "ranking": [_row(row, planned) | {"pareto": row.candidate in front} for row in planned.rows],
        "best_by_goal": {f"{goal:g}": _best_at(planned, goal) for goal in question.goals},
        "cheapest": planned.cheapest.candidate.label if planned.cheapest else None,
        "running": _running(planned),
        "left_behind": [_left(s) for s in planned.standings if s.report is None],
        "bottlenecks": [{"layout": c.label} | _bottleneck(b) for c, b in planned.bottlenecks],
        "what_ifs": [_answered(a) for a in planned.answered],
        "worth": [_worth(w) for w in planned.worth],
        "effort": {
            "wall_s": planned.wall_s,
            "simulations": planned.simulations,
            "judged_requests": planned.requests,
        },
    }


def _profiles(planned: Planned) -> list[str]:
    space = planned.asked.space
    return [group.profile for group in space.groups] + ([space.prefill_profile] if space.prefill_profile else [])


def _table(profile: str) -> dict[str, Any]:
    """What the figures stand on; `digest` in a profile's name holds it to that."""
    table = table_of(profile)
    return {"profile": profile, "digest": table.digest, "valid_for": asdict(table.validity)}


def costs(row: Row, planned: Planned) -> dict[str, float | None]:
    """Per 1,000 good requests at the highest rate; requests that were not good are paid for, too."""
    hours = row.candidate.gpus / 3600 / (row.rate * row.goal) * 1000
    price = planned.price_per_good(row)
    money = None if price is None else price * 1000
    return {"gpu_hours_per_1000_good": hours, "price_per_1000_good": money, "good_per_gpu_hour": 1000 / hours}


def _row(row: Row, planned: Planned) -> dict[str, Any]:
    gpus = row.candidate.gpus
    return {
        "place": row.place,
        "layout": row.candidate.label,
        "family": row.candidate.family.value,
        "pools": [asdict(part) | {"role": part.role.value} for part in row.candidate.parts],
        "local_below_tokens": row.candidate.local_below,
        "gpus": gpus,
        "stage": row.stage.name.lower(),
        "rate_ps": {f"{goal:g}": rate for goal, rate in row.rates.items()},
        "rate_ps_per_gpu": {f"{goal:g}": rate / gpus for goal, rate in row.rates.items()},
        "rate_ps_95": {f"{goal:g}": _interval(spread) for goal, spread in row.intervals.items()},
        "bound_ps": row.bound,
        "bound_by": row.bound_by,
        "share_of_bound": row.share_of_bound,
        "ttft_p99_ms": row.ttft_p99_ms,
        "tpot_p99_ms": row.tpot_p99_ms,
        "behind": row.behind,
        "behind_95": None if row.behind_95 is None else _interval(row.behind_95),
        "no_difference_shown": row.tied,
        "cut_at_time_out": row.cut,
        "judged": row.judged,
        "cost": costs(row, planned),
    }


def _best_at(planned: Planned, goal: float) -> list[dict[str, Any]]:
    return [
        {
            "family": row.candidate.family.value,
            "layout": row.candidate.label,
            "rate_ps_per_gpu": row.rates[goal] / row.candidate.gpus,
        }
        for row in best_at(planned.rows, goal)
    ]


def _running(planned: Planned) -> dict[str, Any] | None:
    """`place` is None where it does not hold the limits."""
    running, row = planned.asked.running, planned.running
    if running is None:
        return None
    return {
        "layout": running.label,
        "place": row.place if row else None,
        "changes": changes(running, planned.winner.candidate),
    }


def _left(standing: Standing) -> dict[str, Any]:
    return {
        "layout": standing.candidate.label,
        "family": standing.candidate.family.value,
        "why": standing.stage.name.lower(),
        "below_ps": standing.floor,
        "bound_ps": standing.bound.rate_per_s,
        "bound_by": standing.bound.resource.value,
        "served_ps": standing.served_ps,
    }


def _bottleneck(found: Bottleneck) -> dict[str, Any]:
    return asdict(found) | {"resource": found.resource.value}


def _answered(answered: Answered) -> dict[str, Any]:
    winner = answered.winner
    return {
        "what_if": answered.what_if.words,
        "remark": answered.what_if.remark,
        "winner_before": answered.winner_before.label,
        "winner": winner.candidate.label if winner else None,
        "layouts": [{"layout": c.candidate.label, "before_ps": c.before, "rate_ps": c.after} for c in answered.changed],
    }


def _worth(worth: Worth) -> dict[str, Any]:
    return {
        "what": worth.what,
        "gain_ps": worth.gain,
        "share": worth.share,
        "share_95": _interval(worth.share_95),
        "shown": worth.shown,
        "unit": worth.unit,
        "good_per_hour_and_unit": worth.good_ph_per_unit,
        "pays_up_to_per_hour_and_unit": worth.pays_up_to,
    }


def _interval(interval: Interval) -> list[float | None]:
    return [value if isfinite(value) else None for value in (interval.low, interval.high)]
