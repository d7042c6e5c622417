"""The policy as an operator writes it: who is let in, in which order, and what is promised (docs/admission.md)."""

import hashlib
import json
from enum import StrEnum
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

#: Hexadecimal digits of the hash that names a policy.
_DIGITS = 10


class Strict(BaseModel):
    # Nothing here may be infinite: service of infinite weight is no number, and JSON, in which a policy is kept, has none.
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


#: Weights stay where sums, products and differences of service are still numbers: infinity less infinity is none, and
#: what a tenant was charged outlives the policy that charged it.
LIGHTEST, HEAVIEST = 1e-6, 1e6
Weight = Annotated[float, Field(ge=LIGHTEST, le=HEAVIEST)]


class Rule(StrEnum):
    """By what a decode worker decides whether an answer's growth fits."""

    DECLARED = "declared"
    FORECAST = "forecast"


class BandName(StrEnum):
    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"


class Overrun(StrEnum):
    """What may be asked of a running answer when more grows than was promised."""

    CAP = "cap"
    MOVE = "move"


class Drain(StrEnum):
    """What becomes of the answers of a decode worker that takes no more of them."""

    MOVE = "move"
    WAIT = "wait"


class ClassPolicy(Strict):
    """One traffic class. A request belongs to the first class, in the order of their names here, that it matches."""

    tenants: tuple[str, ...] = Field((), description="Only requests of these tenants; empty means any.")
    efforts: tuple[str, ...] = Field(
        (), description="Only requests that declare one of these (chat_template_kwargs.reasoning_effort); empty: any."
    )
    weight: Weight = Field(1.0, description="Share of the service, against other classes of its band.")
    band: BandName = Field(BandName.NORMAL, description="Priority. A lower band gets what `band_share` says.")
    ttft_s: float | None = Field(
        None,
        gt=0,
        description="Promised time to the first token; what cannot keep it is refused before it is computed.",
    )
    queue_s: float | None = Field(None, gt=0, description="Waits no longer than this; `deadlines.queue_s` if unset.")
    on_overrun: tuple[Overrun, ...] = Field(
        (Overrun.MOVE,),
        description=(
            "What is done to answers of this class when a worker runs out of KV, the first that helps: `move` "
            "(it goes on at a worker with room) and `cap`. Empty: its engine preempts."
        ),
    )
    cap_tokens: int | None = Field(
        None,
        ge=1,
        description="Answer tokens after which `cap` may end an answer of this class (finish_reason length).",
    )
    incomplete_share: float = Field(0.05, gt=0, le=1, description="Fairness: share that may not complete.")
    slowdown: float = Field(5.0, ge=1, description="Fairness: end-to-end time over the unloaded estimate.")
    slow_share: float = Field(0.05, gt=0, le=1, description="Fairness: share that may be slower than that.")
    abandoned_share: float = Field(0.02, gt=0, le=1, description="Fairness: share whose clients may give up.")

    @field_validator("on_overrun", mode="before")
    @classmethod
    def _nobody_preempts(cls, asked: object) -> object:
        """The policy can price it, but no gateway does it."""
        if isinstance(asked, list | tuple) and "preempt" in asked:
            raise ValueError(
                "preempt cannot be asked of a running answer: engines preempt by themselves, and no gateway does. `move` and "
                "`cap` are carried out"
            )
        return asked

    @model_validator(mode="after")
    def _a_cap_has_a_budget(self) -> Self:
        if Overrun.CAP in self.on_overrun and self.cap_tokens is None:
            raise ValueError("on_overrun has `cap`, so cap_tokens must say after how many tokens")
        return self


class TenantPolicy(Strict):
    weight: Weight = Field(1.0, description="Share of the service, against other tenants of its class.")
    requests_per_s: float | None = Field(None, ge=0, description="Unset: no limit.")
    tokens_per_s: float | None = Field(None, ge=0, description="Prompt and expected answer. Unset: no limit.")
    burst_s: float = Field(10.0, gt=0, description="Bursts of so many seconds of these rates pass.")
    concurrent: int | None = Field(None, ge=0, description="Requests running and waiting. Unset: no limit.")


class LengthsPolicy(Strict):
    """The length model (docs/length-model.md)."""

    prior: tuple[tuple[float, float], ...] = Field(
        ((0.0, 1), (0.1, 50), (0.5, 500), (0.9, 4000), (0.99, 16000), (1.0, 65536)),
        description="What is believed before anything was seen: pairs of quantile level and answer tokens.",
    )
    half_life_observations: float = Field(1000.0, ge=1)
    half_life_s: float = Field(6 * 3600.0, gt=0)
    shrink_observations: float = Field(
        20.0, gt=0, description="A class of so many answers weighs as much as its parent."
    )
    headroom: bool = Field(False, description="Stretch estimates by recent errors of their class (R-04).")


class EarlyRejectionPolicy(Strict):
    """Refusals before a prompt is computed. A promised TTFT is always checked, the decode load only if told so."""

    decode: bool = Field(False, description="Refuse by the decode load that is predicted for the end of the prefill.")
    decode_load: float = Field(1.0, gt=0, description="The most that decode may be loaded with then.")
    ttft_margin: float = Field(1.0, gt=0, description="A promise times this must be kept by the prediction.")
    retry_min_s: float = Field(1.0, ge=0)
    horizon_s: float = Field(60.0, gt=0, description="Longest Retry-After of these refusals; at least `retry_min_s`.")

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.retry_min_s > self.horizon_s:
            raise ValueError("retry_min_s must be at most horizon_s")
        return self


class BalancePolicy(Strict):
    """Running answers leave a full decode worker for an emptier one (docs/admission.md)."""

    above: float = Field(
        0.85,
        gt=0,
        le=1,
        description="A worker is full from this share of its KV on, by what its engine has in use; promises do not count.",
    )
    spread: float = Field(0.3, gt=0, lt=1, description="Another must be emptier than it by more than this share.")


class PolicyConfig(Strict):
    """Versioned: the version is on every response, in the log and in the metrics."""

    version: str = Field(
        "", max_length=64, pattern=r"^[A-Za-z0-9._:-]*$", description="The operator's name for it; a hash when empty."
    )
    rule: Rule = Field(
        Rule.FORECAST,
        description=(
            "`declared`: max_tokens is believed and its growth reserved in full; `forecast`: workers grant by the chance "
            "of overrunning, from length estimates (`worker.admission` has their error budget)."
        ),
    )
    classes: dict[str, ClassPolicy] = Field(default_factory=dict, description="Name to class; the rest is `default`.")
    tenants: dict[str, TenantPolicy] = Field(default_factory=dict, description="Tenant (of api_keys) to its policy.")
    others: TenantPolicy = Field(TenantPolicy(), description="For tenants that are not named.")
    prompt_weight: float = Field(1.0, ge=0, le=HEAVIEST, description="Service of one prompt token.")
    output_weight: Weight = Field(2.0, description="Service of one answer token.")
    stretch: float = Field(
        1.0,
        ge=1,
        le=HEAVIEST,
        description="How far short requests may overtake long ones of their tenant; 1: first come first served.",
    )
    band_share: float = Field(0.1, ge=0, lt=1, description="What a waiting lower band earns of the service above it.")
    long_above_tokens: int | None = Field(None, ge=1, description="Prompt and expected answer; more is class `long`.")
    lengths: LengthsPolicy = LengthsPolicy()
    early_rejection: EarlyRejectionPolicy = EarlyRejectionPolicy()
    balance: BalancePolicy | None = Field(None, description="Unset: no answer moves to even workers out.")
    drain: Drain = Field(
        Drain.MOVE,
        description=(
            "Answers on a decode worker that drains, or is no decode worker any more: `move`, they go on at workers with room, "
            "and what cannot ends where it is; `wait`: all end where they are."
        ),
    )
    decisions: int = Field(1024, ge=0, description="Recent requests that `tandem explain` knows.")

    @field_validator("classes")
    @classmethod
    def _classes_have_names(cls, classes: dict[str, ClassPolicy]) -> dict[str, ClassPolicy]:
        """They stand in logs and tables."""
        wrong = [name for name in classes if not (0 < len(name) <= 64 and name.isprintable())]
        if wrong:
            raise ValueError(f"a class has a name of 1 to 64 printable characters, not {wrong[0][:64]!r}")
        return classes

    @field_validator("lengths")
    @classmethod
    def _prior_is_one(cls, lengths: LengthsPolicy) -> LengthsPolicy:
        from gateway.policy.estimate import Prior

        Prior(lengths.prior)
        return lengths

    @property
    def name(self) -> str:
        """The version: the operator's own, or a short hash of everything that was set or left as it is."""
        if self.version:
            return self.version
        text = json.dumps(self.model_dump(mode="json", exclude={"version", "decisions"}))  # the order of classes counts
        return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]
