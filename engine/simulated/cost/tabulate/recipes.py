"""Which models are tabulated, on which layouts, and how the source is asked for them."""

from dataclasses import dataclass, field

from engine.simulated.cost.models import SHAPES, ModelShape
from engine.simulated.cost.tabulate.source import Source, local_model


@dataclass(frozen=True, slots=True)
class Recipe:
    """How the source is asked for one model: a name it knows, or a configuration for one that it does not."""

    path: str
    layouts: tuple[tuple[int, int], ...]
    quant: dict[str, str] = field(default_factory=dict)


_DENSE = ((1, 1), (2, 1), (4, 1), (8, 1))
RECIPES = {
    "llama-3.1-8b": Recipe("meta-llama/Meta-Llama-3.1-8B", _DENSE),
    "llama-3.1-70b": Recipe("meta-llama/Meta-Llama-3.1-70B", _DENSE),
    "llama-3.1-405b": Recipe("meta-llama/Meta-Llama-3.1-405B", _DENSE),
    "qwen3-8b": Recipe("Qwen/Qwen3-8B", _DENSE),
    "qwen3-32b": Recipe("Qwen/Qwen3-32B", _DENSE),
    "deepseek-r1-distill-qwen-14b": Recipe("", _DENSE),
    "deepseek-r1-distill-qwen-32b": Recipe("", _DENSE),
    # The source's default KV precision for this model is FP8 on vLLM; BF16 is named outright.
    "deepseek-r1": Recipe(
        "deepseek-ai/DeepSeek-R1",
        ((8, 8), (8, 1), (4, 4), (2, 1), (2, 2), (4, 1)),
        {"fmha_quant_mode": "bfloat16", "kvcache_quant_mode": "bfloat16"},
    ),
}


def _qwen2(shape: ModelShape) -> str:
    return local_model(
        {
            "architectures": ["Qwen2ForCausalLM"],
            "model_type": "qwen2",
            "hidden_size": shape.hidden,
            "intermediate_size": shape.intermediate,
            "num_hidden_layers": shape.layers,
            "num_attention_heads": shape.heads,
            "num_key_value_heads": shape.kv_heads,
            "vocab_size": shape.vocab_size,
            "max_position_embeddings": shape.max_model_len,
            "rms_norm_eps": 1e-5,
            "hidden_act": "silu",
            "tie_word_embeddings": False,
            "torch_dtype": "bfloat16",
        }
    )


def source_of(name: str, tp: int, ep: int, pp: int = 1) -> Source:
    recipe, shape = RECIPES[name], SHAPES[name]
    return Source(recipe.path or _qwen2(shape), tp=tp, ep=ep, pp=pp, moe=bool(shape.experts), quant=recipe.quant)
