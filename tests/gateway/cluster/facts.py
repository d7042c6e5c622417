"""Workers as plain facts."""

from dataclasses import replace
from typing import Any

from proto.worker import Role, WorkerState


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def state(**more: Any) -> WorkerState:
    base = WorkerState(
        epoch="e",
        sequence=1,
        role=Role.BOTH,
        healthy=True,
        draining=False,
        detail="",
        blocks_total=100,
        blocks_used=0,
        blocks_reserved=0,
        reservations=0,
        running=0,
        waiting=0,
        tickets_held=0,
        attached_gateways=1,
        sequences=0,
        preemptions=0,
        recomputed_tokens=0,
        prompt_tokens=0,
        generated_tokens=0,
        cached_prompt_tokens=0,
        steps=0,
        step_time_s=0.0,
        tickets_issued=0,
        tickets_expired=0,
        tickets_released=0,
        failed_notifications=0,
    )
    return replace(base, **more)
