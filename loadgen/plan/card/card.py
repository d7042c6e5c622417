"""A model's card: parameters, what of them lies on a GPU, KV, and exchange, for every layout of its table."""

from dataclasses import dataclass

from engine.simulated.cost import DoesNotFitError, load_budget, load_profile
from engine.simulated.cost.catalog import shape_and_table
from engine.simulated.cost.exchange import Exchange, exchange_of
from engine.simulated.cost.expert_load import ExpertLoad
from engine.simulated.cost.models import BYTES, ModelShape
from engine.simulated.cost.parameters import Parameters, parameters_of
from engine.simulated.cost.request import ProfileRequest, parse_request
from engine.simulated.cost.table import Layout, Table
from loadgen.failure import LoadgenError

#: The steps whose share of exchange is shown: sequences and context of a decode step, tokens of one with prompts.
DECODING, CONTEXT, PROMPT = 64, 4096, 2048
#: Times are wanted of layouts that do not fit, too.
_BOUNDLESS = "gib=65536"


@dataclass(frozen=True, slots=True)
class Placement:
    """One way to spread the model. Bytes are those of one GPU; copies are how often the whole is there, over all GPUs.

    `kv_tokens` is None where the weights leave no room. Shares are of the time of a decode step and of one with a prompt, by the table.
    """

    tp: int
    pp: int
    ep: int
    weights_bytes: int
    weight_copies: float
    kv_bytes_per_token: int
    kv_copies: float
    kv_tokens: int | None
    exchange: Exchange
    decode_share: float
    prompt_share: float
    expert_load: ExpertLoad | None = None

    @property
    def gpus(self) -> int:
        return self.tp * self.pp

    @property
    def degrees(self) -> str:
        parts = [f"{name}{n}" for name, n in (("TP", self.tp), ("PP", self.pp), ("EP", self.ep)) if n > 1]
        return "·".join(parts) or "1 GPU"


@dataclass(frozen=True, slots=True)
class Card:
    """`profile` is the table's name, `hardware` the same with what was said of the GPU's memory."""

    profile: str
    hardware: str
    device: str
    shape: ModelShape
    parameters: Parameters
    placements: tuple[Placement, ...]

    @property
    def kind(self) -> str:
        return "mixture of experts" if self.shape.experts else "dense"

    @property
    def attention(self) -> str:
        """How keys and values are kept."""
        if self.shape.latent:
            return "latent"
        return "grouped" if self.shape.kv_heads < self.shape.heads else "full"


def card_of(profile: str, gpus: int = 8) -> Card:
    """`profile` such as `h200-sxm/deepseek-r1`; with degrees, of those alone. Raises LoadgenError."""
    try:
        asked = parse_request(profile)
        shape, table = shape_and_table(profile)
    except ValueError as error:
        raise LoadgenError(str(error)) from None
    parameters = parameters_of(shape)
    try:
        placements = tuple(
            _placement(asked, shape, layout, pp, parameters.total * BYTES[shape.dtype])
            for layout in sorted(table.layouts, key=lambda layout: (-layout.tp, -layout.ep))
            for pp in _stages(asked, min(gpus // layout.tp, shape.layers))
            if asked.tp in (None, layout.tp) and asked.ep in (None, layout.ep)
        )
    except ValueError as error:  # a link faster than the table's, a skew of experts that a dense model has not
        raise LoadgenError(str(error)) from None
    if not placements:
        raise LoadgenError(
            f"{profile}: no such layout on {gpus} GPUs; the table has {_known(table)}, and pp up to --gpus"
        )
    return Card(
        asked.name,
        "?".join([asked.name, *(["&".join(asked.kept)] if asked.kept else [])]),
        table.device,
        shape,
        parameters,
        placements,
    )


def _stages(asked: ProfileRequest, most: int) -> list[int]:
    powers = [1 << n for n in range(most.bit_length())] if most else []
    return powers if asked.pp is None else [asked.pp] if asked.pp <= most else []


def _placement(asked: ProfileRequest, shape: ModelShape, layout: Layout, pp: int, whole: int) -> Placement:
    if layout.memory is None:
        raise LoadgenError(f"{asked.name}: the table says nothing of memory")
    tp, ep = layout.tp, layout.ep
    words = "&".join([f"{asked.name}?tp={tp}&pp={pp}&ep={ep}", *asked.kept])
    profile = load_profile(f"{words}&{_BOUNDLESS}")
    cost = profile.cost
    decode, prompt = cost.breakdown(DECODING, DECODING * CONTEXT), cost.breakdown(0, 0, [(PROMPT, 0)])
    return Placement(
        tp=tp,
        pp=pp,
        ep=ep,
        weights_bytes=layout.memory.weights_bytes // pp,
        weight_copies=layout.memory.weights_bytes * tp / whole,
        kv_bytes_per_token=shape.kv_bytes_per_rank(tp, pp),
        kv_copies=shape.kv_bytes_per_rank(tp) * tp / shape.kv_bytes_per_token(),
        kv_tokens=_room(asked, words),
        exchange=exchange_of(shape, tp=tp, pp=pp, ep=ep),
        decode_share=decode.collective_s / decode.total_s,
        prompt_share=prompt.collective_s / prompt.total_s,
        expert_load=profile.expert_load,
    )


def _room(asked: ProfileRequest, words: str) -> int | None:
    limits = [f"&{name}={value}" for name, value in (("tokens", asked.tokens), ("seqs", asked.seqs)) if value]
    try:
        return load_budget(words + "".join(limits)).kv_tokens
    except DoesNotFitError:
        return None


def _known(table: Table) -> str:
    return ", ".join(f"tp={layout.tp} ep={layout.ep}" for layout in table.layouts)
