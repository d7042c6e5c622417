"""Shapes of models, and the KV bytes that follow from them."""

from dataclasses import dataclass, replace

BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "fp8": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class Latent:
    """Widths of multi-head latent attention. Queries go through a vector of `query`; keys and values through one of `kv`, and
    one of `rope` that all heads share. A head has `nope` + `rope` for its keys and `value` for its values."""

    query: int
    kv: int
    rope: int
    nope: int
    value: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """`chosen` of `count` compute a token, and the `shared` ones beside them. The first `dense_layers` have none."""

    count: int
    chosen: int
    shared: int
    intermediate: int
    dense_layers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """What sizes and limits follow from, as the model's published configuration has it.

    With multi-head latent attention (`latent` set) a token's KV is one latent vector a layer, which every
    tensor-parallel rank holds whole.
    """

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab_size: int
    eos_token_ids: tuple[int, ...]
    max_model_len: int
    dtype: str = "bfloat16"
    kv_dtype: str = "bfloat16"
    latent: Latent | None = None
    experts: Experts | None = None

    @property
    def kv_latent(self) -> int:
        """Numbers in the latent vector of one token and layer; 0 where every head has keys and values of its own."""
        return self.latent.kv + self.latent.rope if self.latent else 0

    def kv_bytes_per_token(self, kv_dtype: str | None = None) -> int:
        """One copy of one token's KV, all layers."""
        width = self.kv_latent or 2 * self.kv_heads * self.head_dim
        return self.layers * width * BYTES[kv_dtype or self.kv_dtype]

    def kv_bytes_per_rank(self, tp: int, pp: int = 1, kv_dtype: str | None = None) -> int:
        """Each GPU's part: heads are shared out down to one a rank, then repeated; latents are repeated."""
        layers = -(-self.layers // pp)
        width = self.kv_latent or 2 * -(-self.kv_heads // tp) * self.head_dim
        return layers * width * BYTES[kv_dtype or self.kv_dtype]


def _llama(name: str, layers: int, hidden: int, heads: int, intermediate: int) -> ModelShape:
    return ModelShape(
        name=name,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=8,
        head_dim=128,
        intermediate=intermediate,
        vocab_size=128_256,
        eos_token_ids=(128_001, 128_008, 128_009),
        max_model_len=131_072,
    )


def _qwen(
    name: str, layers: int, hidden: int, heads: int, intermediate: int, *, vocab: int, eos: tuple[int, ...], window: int
) -> ModelShape:
    return ModelShape(
        name=name,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=8,
        head_dim=128,
        intermediate=intermediate,
        vocab_size=vocab,
        eos_token_ids=eos,
        max_model_len=window,
    )


_QWEN3_EOS = (151_645, 151_643)
_LLAMA_8B = _llama("llama-3.1-8b", 32, 4096, 32, 14_336)
_LLAMA_70B = _llama("llama-3.1-70b", 80, 8192, 64, 28_672)

SHAPES = {
    shape.name: shape
    for shape in (
        _LLAMA_8B,
        _LLAMA_70B,
        _llama("llama-3.1-405b", 126, 16_384, 128, 53_248),
        _qwen("qwen3-8b", 36, 4096, 32, 12_288, vocab=151_936, eos=_QWEN3_EOS, window=40_960),
        _qwen("qwen3-32b", 64, 5120, 64, 25_600, vocab=151_936, eos=_QWEN3_EOS, window=40_960),
        _qwen("deepseek-r1-distill-qwen-14b", 48, 5120, 40, 13_824, vocab=152_064, eos=(151_643,), window=131_072),
        _qwen("deepseek-r1-distill-qwen-32b", 64, 5120, 40, 27_648, vocab=152_064, eos=(151_643,), window=131_072),
        replace(_LLAMA_8B, name="deepseek-r1-distill-llama-8b", eos_token_ids=(128_001,)),
        replace(_LLAMA_70B, name="deepseek-r1-distill-llama-70b", eos_token_ids=(128_001,)),
        ModelShape(
            name="deepseek-r1",
            layers=61,
            hidden=7168,
            heads=128,
            kv_heads=128,
            head_dim=128,
            intermediate=18_432,
            vocab_size=129_280,
            eos_token_ids=(1,),
            max_model_len=163_840,
            dtype="fp8",
            latent=Latent(query=1536, kv=512, rope=64, nope=128, value=128),
            experts=Experts(count=256, chosen=8, shared=1, intermediate=2048, dense_layers=3),
        ),
    )
}

#: Models that differ from another only in weights and stop tokens share its step times.
SAME_TIMES = {
    "deepseek-r1-distill-llama-8b": "llama-3.1-8b",
    "deepseek-r1-distill-llama-70b": "llama-3.1-70b",
}
