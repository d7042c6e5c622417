"""What a plan stands on: tables in files, held to what they were, and refused where they are not what is asked (R-80)."""

from dataclasses import replace
from pathlib import Path

import pytest

from engine.simulated.cost.catalog import table_of
from engine.simulated.cost.table import read_table, write_table
from loadgen.failure import LoadgenError
from loadgen.plan.candidate import Candidate, Engine, Part
from loadgen.plan.layout_document import layout_text, read_layout
from loadgen.plan.space import Gpus, Space, check_profile, engines
from loadgen.plan.words import gpu_groups
from loadgen.simulate import parse_layout
from proto.worker import Role

QWEN = "h200-sxm/qwen3-32b"


def stored(folder: Path) -> Path:
    path = folder / "qwen3-32b.v2.json.gz"
    write_table(table_of(QWEN), path)
    return path


def test_a_plan_refuses_a_table_of_something_else() -> None:
    with pytest.raises(LoadgenError, match=r"holds for kv=bfloat16, not for kv=fp8; .* accept=kv"):
        check_profile(f"{QWEN}?kv=fp8")
    check_profile(f"{QWEN}?kv=fp8&accept=kv")
    with pytest.raises(LoadgenError, match="speculation"):
        parse_layout(f"--colocated 1 --profile '{QWEN}?speculation=eagle3'")


def test_a_corrected_table_can_be_planned_by(tmp_path: Path) -> None:
    """It could be simulated, and no plan took it."""
    model = f"file:{stored(tmp_path)}"
    check_profile(model)
    (group,) = gpu_groups("8", f"{model}?gib=96")
    assert (group.model, Gpus(QWEN, 8).model) == ("qwen3-32b", "qwen3-32b")
    of_file, _ = engines(model, 2, Space((Gpus(model, 2),)))
    built_in, _ = engines(QWEN, 2, Space((Gpus(QWEN, 2),)))
    assert [one.degrees for one in of_file] == [one.degrees for one in built_in]
    assert of_file[0].device == "h200_sxm"
    assert Engine(f"{model}?gib=96").device == "h200_sxm?gib=96"


def test_its_layout_is_held_to_it(tmp_path: Path) -> None:
    path = stored(tmp_path)
    planned = Candidate((Part(Role.BOTH, 1, Engine(f"file:{path}?gib=96&link=50", tp=2, tokens=2048)),))
    document = tmp_path / "layout.yaml"
    document.write_text(layout_text(planned))
    assert f"digest={read_table(path).digest}" in document.read_text()
    (part,) = read_layout(document, QWEN, 256).parts
    assert (part.engine.profile, part.engine.tp) == (f"file:{path}?gib=96&link=50", 2)
    assert parse_layout(f"--config {document} --engine simulated").gpus == 2
    write_table(replace(table_of(QWEN), gpu_bytes=1 << 37), path)
    with pytest.raises(LoadgenError, match="not for digest="):
        read_layout(document, QWEN, 256)
    with pytest.raises(LoadgenError, match="not for digest="):
        parse_layout(f"--config {document} --engine simulated")


def test_names_made_of_a_model_keep_what_was_accepted() -> None:
    engine = Engine(f"{QWEN}?gib=96.25&kv=fp8&accept=kv", tp=2)
    assert engine.words() == f"{QWEN}?tp=2&pp=1&ep=1&tokens=8192&seqs=256&gib=96.25&accept=kv"
    assert engine.load().blocks_total < replace(engine, profile=f"{QWEN}?gib=141").load().blocks_total
    assert engine.words(hbm=2.0).endswith("&gib=192.5")
