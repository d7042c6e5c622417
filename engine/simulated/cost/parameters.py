"""How many parameters a model has, and how many of them one token meets: counted from its shape."""

from dataclasses import dataclass

from engine.simulated.cost.models import Experts, Latent, ModelShape


@dataclass(frozen=True, slots=True)
class Parameters:
    """`feed_forward`: what every token meets, shared experts and routers among it. `routed`: all experts that are chosen
    among, and `routed_active` those of one token. Norms and biases are left out: less than one in a thousand."""

    embeddings: int
    attention: int
    feed_forward: int
    routed: int = 0
    routed_active: int = 0

    @property
    def total(self) -> int:
        return self.embeddings + self.attention + self.feed_forward + self.routed

    @property
    def active(self) -> int:
        return self.total - self.routed + self.routed_active


def parameters_of(shape: ModelShape) -> Parameters:
    """Embeddings count twice: none of the models here ties those of its input to those of its output."""
    embeddings = 2 * shape.vocab_size * shape.hidden
    attention = shape.layers * (_latent(shape, shape.latent) if shape.latent else _grouped(shape))
    if shape.experts is None:
        return Parameters(embeddings, attention, shape.layers * _gated(shape.hidden, shape.intermediate))
    experts, sparse = shape.experts, shape.layers - shape.experts.dense_layers
    one = sparse * _gated(shape.hidden, experts.intermediate)
    always = experts.dense_layers * _gated(shape.hidden, shape.intermediate) + experts.shared * one
    return Parameters(
        embeddings,
        attention,
        always + sparse * _router(shape, experts),
        experts.count * one,
        experts.chosen * one,
    )


def _grouped(shape: ModelShape) -> int:
    """Queries and the output over all heads, keys and values over those that they are grouped in."""
    return 2 * shape.hidden * shape.head_dim * (shape.heads + shape.kv_heads)


def _latent(shape: ModelShape, latent: Latent) -> int:
    queries = shape.hidden * latent.query + latent.query * shape.heads * (latent.nope + latent.rope)
    kv = shape.hidden * (latent.kv + latent.rope) + latent.kv * shape.heads * (latent.nope + latent.value)
    return queries + kv + shape.heads * latent.value * shape.hidden


def _gated(hidden: int, intermediate: int) -> int:
    return 3 * hidden * intermediate


def _router(shape: ModelShape, experts: Experts) -> int:
    return shape.hidden * experts.count
