"""What the GPUs of one engine send each other in a step: counted from the shape of the model and the degrees."""

from dataclasses import dataclass

from engine.simulated.cost.models import BYTES, ModelShape

#: Sums over ranks in each layer: one after attention, one after the feed-forward part or the experts.
_SUMS_A_LAYER = 2
_ACTIVATION = BYTES["bfloat16"]


@dataclass(frozen=True, slots=True)
class Exchange:
    """Of one pass of a step through all layers.

    `all_reduces` sum the activations of all tokens over the ranks of a tensor-parallel group (the embedding's among them), `hops`
    hand them to the next pipeline stage; either has `token_bytes` a token. `sent_bytes_per_token` is what one GPU sends for
    the sums, by a ring. `logits_bytes` go to one rank for each answer token. `local_experts`: how many of all lie on one
    GPU; with `expert_parallel` they are whole ones.
    """

    all_reduces: int
    hops: int
    token_bytes: int
    sent_bytes_per_token: int
    logits_bytes: int
    local_experts: int = 0
    expert_parallel: bool = False


def exchange_of(shape: ModelShape, *, tp: int, pp: int, ep: int) -> Exchange:
    """Attention is not data-parallel here, so every rank has every token: experts that are spread need no all-to-all. Each
    rank computes those that it holds, and the sum over ranks that a layer ends with anyway adds them up."""
    token = shape.hidden * _ACTIVATION
    sums = _sums(shape.layers) if tp > 1 else 0
    of_a_gpu = _sums(-(-shape.layers // pp)) if tp > 1 else 0
    experts = shape.experts.count if shape.experts else 0
    return Exchange(
        all_reduces=sums,
        hops=pp - 1,
        token_bytes=token,
        sent_bytes_per_token=of_a_gpu * _ring(token, tp),
        logits_bytes=(tp - 1) * shape.vocab_size * _ACTIVATION // tp,
        local_experts=experts // ep,
        expert_parallel=ep > 1,
    )


def slower_link_token_s(shape: ModelShape, tp: int, rate: float, instead_of: float) -> float:
    """What a token of a step takes longer when the ranks exchange over a link of `rate` bytes a second of one GPU. Only the time
    on the wire: start-up stays as it was, so a link that is farther away, too, costs more than this."""
    return _sums(shape.layers) * _ring(shape.hidden * _ACTIVATION, tp) * (1 / rate - 1 / instead_of)


def _sums(layers: int) -> int:
    return _SUMS_A_LAYER * layers + 1


def _ring(size_bytes: int, ranks: int) -> int:
    """What each of them sends to sum so many bytes."""
    return 2 * (ranks - 1) * size_bytes // ranks
