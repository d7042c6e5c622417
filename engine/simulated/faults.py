"""Fault scripts: what shall go wrong, in which request, when. docs/faults.md shows each in use."""

from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from proto.fault import FaultKind


class Leg(StrEnum):
    ANY = "any"
    PREFILL = "prefill"  # submitted to be handed off
    PULL = "pull"  # fetches its KV from another engine
    LOCAL = "local"  # neither


class Phase(StrEnum):
    QUEUE = "queue"
    PREFILL = "prefill"
    TRANSFER = "transfer"
    DECODE = "decode"


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Where(Strict):
    """Which requests. All conditions hold; the defaults match every request."""

    leg: Leg = Leg.ANY
    request: str = Field("*", description="Shell pattern for the request id.")
    min_prompt_tokens: int = Field(0, ge=0)
    max_prompt_tokens: int | None = Field(None, ge=1)

    def matches(self, request_id: str, leg: Leg, prompt_tokens: int) -> bool:
        return (
            self.leg in (Leg.ANY, leg)
            and prompt_tokens >= self.min_prompt_tokens
            and (self.max_prompt_tokens is None or prompt_tokens <= self.max_prompt_tokens)
            and fnmatchcase(request_id, self.request)
        )


class RequestRule(Strict):
    """A fault of single requests: from the `first` match on, at most `times` of them, each with a probability."""

    where: Where = Where()
    first: int = Field(1, ge=1)
    times: int | None = Field(None, ge=1)
    probability: float = Field(1.0, gt=0, le=1)


class Hang(RequestRule):
    """Nothing more comes of the request in that phase (for a while); everyone else goes on."""

    kind: Literal["hang"]
    phase: Phase
    after_tokens: int = Field(0, ge=0, description="Decode: how many tokens still come.")
    for_s: float | None = Field(None, gt=0)


class Die(RequestRule):
    """The engine dies when a matching request has got so many tokens: by itself, or with its whole process."""

    kind: Literal["die"]
    after_tokens: int = Field(1, ge=0)
    how: Literal["engine", "process"] = "engine"


class Refuse(RequestRule):
    """The engine refuses the request when it is submitted."""

    kind: Literal["refuse"]
    fault: FaultKind = FaultKind.OVERLOADED


class FailMidway(RequestRule):
    """The request ends with a fault after so many tokens."""

    kind: Literal["fail"]
    after_tokens: int = Field(1, ge=0)
    fault: FaultKind = FaultKind.INTERNAL


class Notification(RequestRule):
    """What a reader tells the writer arrives late, or never."""

    kind: Literal["notification"]
    message: Literal["done", "free", "renew", "any"] = "any"
    lost: bool = False
    delay_s: float = Field(0.0, ge=0)

    @model_validator(mode="after")
    def _one_of_both(self) -> "Notification":
        if self.lost == (self.delay_s > 0):
            raise ValueError("a notification is either lost or delayed")
        return self


class EarlyExpiry(RequestRule):
    """The writer frees the KV earlier than its ticket promises."""

    kind: Literal["early_expiry"]
    after_s: float = Field(ge=0)


class StaleEpoch(RequestRule):
    """The ticket names an epoch that the writer is no longer in, as after a restart."""

    kind: Literal["stale_epoch"]


class HandoffMissing(RequestRule):
    """The prefill leg ends without a ticket."""

    kind: Literal["handoff_missing"]


class ForeignKv(RequestRule):
    """The reader gets some other request's KV: the answer goes on wrong, and only its text shows it."""

    kind: Literal["foreign_kv"]


class Reset(RequestRule):
    """The side channel to the writer breaks during the pull."""

    kind: Literal["reset"]


class SlowFirstToken(RequestRule):
    """The first token is ready, and stays where it is for a while."""

    kind: Literal["slow_first_token"]
    delay_s: float = Field(gt=0)


class WrongCount(RequestRule):
    """The engine reports figures that are not true. The tokens themselves stay right unless one is doubled or dropped."""

    kind: Literal["wrong_count"]
    cached_tokens: int | None = Field(None, ge=0)
    double_token: int | None = Field(None, ge=1, description="Which token of the answer comes twice.")
    drop_token: int | None = Field(None, ge=1, description="Which token of the answer never comes.")


class Leak(RequestRule):
    """When the request ends, so many of its KV blocks stay lost."""

    kind: Literal["leak"]
    blocks: int = Field(1, ge=1)


class EngineHang(Strict):
    """The whole engine stops after so many steps (for a while); it still takes requests."""

    kind: Literal["engine_hang"]
    after_steps: int = Field(0, ge=0)
    for_s: float | None = Field(None, gt=0)


class Full(Strict):
    """The engine says that its KV is full, so that no reservation is granted."""

    kind: Literal["full"]


class StepTime(Strict):
    """Every n-th step takes `factor` times as long, and `add_s` more."""

    kind: Literal["step_time"]
    every: int = Field(1, ge=1)
    factor: float = Field(1.0, gt=0)
    add_s: float = Field(0.0, ge=0)


class Framing(Strict):
    """One step's outputs come in several frames, or several steps' in one."""

    kind: Literal["framing"]
    outputs_per_frame: int | None = Field(None, ge=1)
    steps_per_frame: int | None = Field(None, ge=2)


class Clock(Strict):
    """The engine's clock is off, and runs at another rate: leases and reported durations follow it."""

    kind: Literal["clock"]
    offset_s: float = 0.0
    rate: float = Field(1.0, gt=0)


AnyRequestRule = (
    Hang
    | Die
    | Refuse
    | FailMidway
    | Notification
    | EarlyExpiry
    | StaleEpoch
    | HandoffMissing
    | ForeignKv
    | Reset
    | SlowFirstToken
    | WrongCount
    | Leak
)
AnyEngineRule = EngineHang | Full | StepTime | Framing | Clock
AnyRule = Annotated[AnyRequestRule | AnyEngineRule, Field(discriminator="kind")]


class Script(Strict):
    """A list of faults, all active together. `seed` decides where probabilities are involved."""

    seed: int = 0
    faults: tuple[AnyRule, ...] = ()


class FaultScriptError(ValueError):
    """A script that cannot be read; the message names the file and the place."""


def parse_script(text: str, source: str = "the fault script") -> Script:
    """YAML or JSON; unknown keys and kinds are errors."""
    try:
        return TypeAdapter(Script).validate_python(yaml.safe_load(text) or {})
    except (yaml.YAMLError, ValidationError) as error:
        raise FaultScriptError(f"{source}: {error}") from None


def read_script(path: str) -> Script:
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise FaultScriptError(f"{path}: {error.strerror}") from None
    except ValueError as error:  # of bytes that are no text, and of a path that no file can have
        raise FaultScriptError(f"{path!r}: {error}") from None
    return parse_script(text, path)
