"""What a configuration and a profile make of each other."""

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from engine.base import WorkerIdentity
from engine.config import EngineConfig
from engine.simulated.cost import UnknownProfileError
from engine.simulated.setup import Setup, set_up
from engine.simulated.vocabulary import load_vocabulary
from proto.worker import Role

_WHO = WorkerIdentity("w", "e", Role.BOTH)


def of(**config: object) -> Setup:
    return set_up(EngineConfig.model_validate(config), _WHO)


def test_a_profile_gives_every_limit_that_the_configuration_leaves_open() -> None:
    setup = of(profile="h200-sxm/llama-3.1-8b")
    assert (setup.limits.max_num_seqs, setup.limits.max_batched_tokens) == (256, 8192)
    assert setup.limits.max_model_len == 131_072
    assert setup.model_name == "llama-3.1-8b"
    assert of(profile="h200-sxm/llama-3.1-8b", max_num_seqs=7).limits.max_num_seqs == 7
    assert of(profile="toy", max_num_batched_tokens=99, kv_blocks=50, max_model_len=300).limits.blocks == 50


def test_r38_kv_capacity_follows_from_model_tp_memory_and_utilisation() -> None:
    assert of(profile="h200-sxm/llama-3.1-70b").profile.kv_bytes_per_token == 327_680
    assert of(profile="h200-sxm/deepseek-r1").profile.kv_bytes_per_token == 70_272
    one = of(profile="h200-sxm/llama-3.1-8b").limits.blocks
    two = of(profile="h200-sxm/llama-3.1-8b", tp=2).limits.blocks
    less = of(profile="h200-sxm/llama-3.1-8b", gpu_memory_utilization=0.5).limits.blocks
    assert two > 2 * one  # the weights are shared out too
    assert less < 0.6 * one
    assert of(profile="toy", kv_cache_gib=1).limits.blocks == 2**30 // (16 * 23_040)
    with pytest.raises(ValueError, match="no KV block of 368640 bytes"):
        of(profile="toy", kv_cache_gib=1e-5)


def test_an_unknown_profile_lists_the_known_ones() -> None:
    with pytest.raises(UnknownProfileError, match=r"toy"):
        of(profile="h100/none")


def test_engines_of_one_profile_are_the_same_model_and_others_are_not() -> None:
    same = {of(profile="toy").info(b"").model_hash, of(profile="toy", speedup=3).info(b"").model_hash}
    assert len(same) == 1
    assert of(profile="toy", served_name="other").info(b"").model_hash not in same


def test_a_model_directory_gives_the_vocabulary(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"vocab_size": 12, "eos_token_id": 3}))
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [1, 3]}))
    tokenizer = Tokenizer(WordLevel({"<s>": 0, "</s>": 1, "{}": 2, "b": 3}, unk_token="b"))
    tokenizer.add_special_tokens(["<s>", "</s>"])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    vocabulary = load_vocabulary(str(tmp_path), 99, (9,))
    assert (vocabulary.size, vocabulary.eos, list(vocabulary.drawable)) == (12, (1, 3), [2, 3])
    assert vocabulary.encode("{}") == (2,)
    assert of(profile="toy", model=str(tmp_path)).model_name == tmp_path.name


@pytest.mark.parametrize("model", ["", "nobody/no-such-model"])
def test_without_a_tokenizer_tokens_are_bytes(model: str) -> None:
    vocabulary = load_vocabulary(model, 49_152, (2,))
    assert vocabulary.encode("é") == (0xC3, 0xA9)
    assert vocabulary.eos == (256,)
    assert all(token < 256 for token in vocabulary.drawable)
