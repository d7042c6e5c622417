"""The traffic, the limits and the models of the experiment. Seeds below 1000 were used while the policy was made; a row on
seed 2000, tables on 3000 to 3002 and on 5000 to 5023, and a part of one on 4000 to 4007, were seen before its last change."""

from dataclasses import dataclass

from benchmarks.never_worse.trial import Aim

#: Name, and the words of `loadgen -w` with their shares.
MIXES: dict[str, tuple[str, ...]] = {
    "code": ("azure-code",),
    "conversation": ("azure-conv",),
    "long-context": ("mooncake-like max-total=60000",),
    "r1": ("r1-production max-total=40000",),
    "reasoning": ("natural-reasoning",),
    "summaries": ("azure-code scale-input=2 scale-output=6 max-total=32000",),
    "writing": ("azure-conv scale-input=0.3 scale-output=4",),
    "code+conversation": ("azure-code weight=1", "azure-conv weight=1"),
}

AIMS = (
    Aim("tight", 500, 30),
    Aim("usual", 1000, 50),
    Aim("loose", 4000, 100),
)


@dataclass(frozen=True, slots=True)
class Model:
    """`degrees`: tensor parallelism of the engines that are tried, the smallest that fits first."""

    name: str
    profile: str
    degrees: tuple[int, ...]


MODELS = {
    one.name: one
    for one in (
        Model("qwen3-32b", "h200-sxm/qwen3-32b", (1, 2, 4, 8)),
        Model("llama-3.1-8b", "h200-sxm/llama-3.1-8b", (1, 2)),
        Model("llama-3.1-70b", "h200-sxm/llama-3.1-70b", (2, 4, 8)),
    )
}

#: Seeds of the screen, in which layouts are chosen, and of the comparison.
SCREEN_SEED = 1000
SEEDS = tuple(range(6000, 6024))


@dataclass(frozen=True, slots=True)
class Case:
    """What a cell of the table is about."""

    model: Model
    mix: str
    aim: Aim

    def __str__(self) -> str:
        return f"{self.model.name} {self.mix} {self.aim.limits}"

    @classmethod
    def of(cls, text: str) -> "Case":
        """`qwen3-32b code 500/30`. Raises ValueError."""
        try:
            model, mix, limits = text.split()
        except ValueError:
            raise ValueError(f"{text!r}: a cell has a model, a traffic and limits") from None
        aim = next((one for one in AIMS if limits in (one.limits, one.name)), None)
        if model not in MODELS:
            raise ValueError(f"{model}: models are {', '.join(MODELS)}")
        if mix not in MIXES:
            raise ValueError(f"{mix}: traffic is {', '.join(MIXES)}")
        if aim is None:
            raise ValueError(f"{limits}: limits are {', '.join(one.limits for one in AIMS)}")
        return cls(MODELS[model], mix, aim)
