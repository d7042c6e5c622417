"""A model directory for simulated engines in which every token is a whole piece of text, so that each makes a chunk."""

import json
from itertools import product
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def word_model(directory: Path) -> str:
    """Byte-level BPE over ASCII with a few thousand made-up words beside the letters."""
    directory.mkdir()
    letters = [chr(code) for code in range(0x21, 0x7F)] + ["\u0120", "\u010a"]  # byte-level spellings of " " and "\n"
    words = ["\u0120" + "".join(parts) for parts in product("bdfgklmn", "aeiou", "lmnrst", "aeiou", "dkt")]
    vocabulary = {token: at for at, token in enumerate([*letters, *words])}
    tokenizer = Tokenizer(models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|end|>"])
    tokenizer.save(str(directory / "tokenizer.json"))
    (directory / "tokenizer_config.json").write_text(json.dumps({"chat_template": _TEMPLATE}))
    end = len(vocabulary)
    (directory / "config.json").write_text(json.dumps({"vocab_size": end + 1, "eos_token_id": end}))
    return str(directory)
