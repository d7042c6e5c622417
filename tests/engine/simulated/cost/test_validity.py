"""Tables that are not of what is asked are refused (R-80)."""

from dataclasses import asdict, replace
from pathlib import Path

import pytest

from engine.config import Backend, EngineConfig
from engine.simulated.cost import UnknownProfileError, list_profiles, load_budget, load_profile
from engine.simulated.cost.catalog import shape_and_table, table_of
from engine.simulated.cost.models import SHAPES
from engine.simulated.cost.table import Facts, Table, read_table, write_table
from engine.simulated.cost.validity import StaleTableError, validity_of
from engine.simulated.setup import profile_of

QWEN = "h200-sxm/qwen3-32b"


@pytest.mark.parametrize("name", [name for name in list_profiles() if "/" in name])
def test_every_table_says_what_it_holds_for(name: str) -> None:
    shape, table = shape_and_table(name)
    assert table.valid_for == validity_of(shape, table.device)
    assert "" not in asdict(table.validity).values()


@pytest.mark.parametrize(
    ("field", "other"),
    [
        ("model", "llama-3.1-8b"),
        ("device", "b200"),
        ("weights", "fp8"),
        ("kv", "fp8"),
        ("attention", "mla-576"),
        ("compression", "kivi-2"),
        ("speculation", "eagle3"),
        ("digest", "000000000000"),
    ],
)
def test_each_field_is_refused_when_it_is_another_and_can_be_accepted(field: str, other: str) -> None:
    for load in (load_profile, load_budget, table_of):
        with pytest.raises(
            StaleTableError, match=rf"holds for {field}=\S+, not for {field}={other};.*accept={field} in"
        ):
            load(f"{QWEN}?{field}={other}")
        load(f"{QWEN}?{field}={other}&accept={field}")
    here = table_of(QWEN)
    held = {**asdict(here.validity), "digest": here.digest}
    assert load_profile(f"{QWEN}?{field}={held[field]}").blocks_total == load_profile(QWEN).blocks_total


def test_what_was_accepted_covers_no_other_field() -> None:
    with pytest.raises(StaleTableError, match=r"holds for speculation=none, not for speculation=mtp;"):
        load_profile(f"{QWEN}?kv=fp8&speculation=mtp&accept=kv")
    with pytest.raises(ValueError, match=r"accept takes .*kv.*, not tp"):
        load_profile(f"{QWEN}?accept=tp")


def test_models_that_share_times_share_their_table() -> None:
    alias = "h200-sxm/deepseek-r1-distill-llama-8b"
    assert load_profile(f"{alias}?model=deepseek-r1-distill-llama-8b").model == "deepseek-r1-distill-llama-8b"
    assert load_profile(f"{alias}?model=llama-3.1-8b").model == "deepseek-r1-distill-llama-8b"


def test_a_stored_table_is_stale_when_the_model_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same file: first of the model as it is, then of one whose KV has become FP8."""
    stored = tmp_path / "qwen3-32b.v2.json.gz"
    write_table(table_of(QWEN), stored)
    assert load_profile(f"file:{stored}?tp=2").blocks_total == load_profile(f"{QWEN}?tp=2").blocks_total
    monkeypatch.setitem(SHAPES, "qwen3-32b", replace(SHAPES["qwen3-32b"], kv_dtype="fp8"))
    with pytest.raises(StaleTableError, match="holds for kv=bfloat16, not for kv=fp8"):
        load_profile(f"file:{stored}?tp=2")
    assert load_profile(f"file:{stored}?tp=2&accept=kv").dtype == "fp8"


def test_a_digest_holds_a_name_to_one_content(tmp_path: Path) -> None:
    stored = tmp_path / "table.json"
    write_table(table_of(QWEN), stored)
    name = f"file:{stored}?digest={read_table(stored).digest}"
    assert load_profile(name).model == "qwen3-32b"
    write_table(replace(table_of(QWEN), gpu_bytes=1 << 37), stored)
    with pytest.raises(StaleTableError, match="not for digest="):
        load_profile(name)


def measured(dtype: str = "float32") -> Table:
    base = table_of("h200-sxm/qwen3-8b")
    facts = Facts("tiny", dtype, 1, 16, 100, 1000, 2048, 8, 512, 1000, (2,))
    layout = replace(base.layouts[0], memory=None)
    return Table("cpu", "tiny", {"name": "by hand"}, (layout,), {"tcp": (1e9, 1e-4)}, facts=facts)


def test_a_measured_engine_is_had_as_it_was(tmp_path: Path) -> None:
    """What such a table does not know was left out without a word: another degree, more memory."""
    stored = tmp_path / "cpu.json"
    write_table(measured(), stored)
    assert load_profile(f"file:{stored}?tp=1&tokens=256&seqs=4").max_num_batched_tokens == 256
    with pytest.raises(UnknownProfileError, match="was measured at tp=1, not at tp=2"):
        load_profile(f"file:{stored}", tp=2)
    with pytest.raises(UnknownProfileError, match="cannot be had with gib"):
        load_profile(f"file:{stored}?gib=96")
    with pytest.raises(StaleTableError, match="holds for attention=nothing said, not for attention=gqa-8x128"):
        load_profile(f"file:{stored}?attention=gqa-8x128")
    with pytest.raises(UnknownProfileError, match="has no table, and so no gib"):
        load_profile("toy?gib=96")
    assert (load_profile("toy?seqs=4").max_num_seqs, load_profile("toy").max_num_seqs) == (4, 256)


def test_an_engine_of_another_dtype_is_refused(tmp_path: Path) -> None:
    stored = tmp_path / "cpu.json"
    write_table(measured("float32"), stored)

    def profile(name: str, dtype: str) -> str:
        return profile_of(EngineConfig(backend=Backend.SIMULATED, profile=name, dtype=dtype)).dtype

    assert profile(f"file:{stored}", "float32") == profile(f"file:{stored}", "auto") == "float32"
    with pytest.raises(StaleTableError, match="weights=float32, not for weights=bfloat16"):
        profile(f"file:{stored}", "bfloat16")
    assert profile(f"file:{stored}?accept=weights", "bfloat16") == "float32"
    assert profile("h200-sxm/deepseek-r1", "bfloat16") == "bfloat16", "of what is not quantised"
    assert profile("toy", "float32") == "bfloat16", "made up, and of no precision"
