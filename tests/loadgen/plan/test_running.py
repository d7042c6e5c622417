"""The layout of today, which must be one that the plan can rank."""

from dataclasses import replace
from pathlib import Path

import pytest

from loadgen.failure import LoadgenError
from loadgen.plan.candidate import Candidate, Engine, Part
from loadgen.plan.layout_document import layout_text
from loadgen.plan.words import Words, asked
from proto.worker import Role
from tests.loadgen.plan.asking import COLOCATED, PROFILE


def words(path: Path, gpus: str = "2") -> Words:
    return Words(model=PROFILE, gpus=gpus, workload=["fixed isl=10 osl=2"], goodput=["ttft:300"], running=path)


def test_a_document_of_real_engines_is_taken_on_the_plans_table(tmp_path: Path) -> None:
    file = tmp_path / "today.yaml"
    file.write_text(
        "version: 1\nengine: {model: ./Llama-3.1-8B, max_num_seqs: 128}\nlayout:\n  colocated: {workers: 1, tp: 2}\n"
    )
    assert asked(words(file)).running == Candidate((Part(Role.BOTH, 1, Engine(PROFILE, tp=2, seqs=128)),))


@pytest.mark.parametrize(
    ("running", "gpus", "cause"),
    [
        (COLOCATED, "4", "its workers have 2 GPUs, the plan is for 4"),
        (Candidate((Part(Role.BOTH, 2, Engine("h200-sxm/qwen3-32b")),)), "2", "its engines are h200-sxm/qwen3-32b"),
        (Candidate((Part(Role.BOTH, 1, Engine(PROFILE, tp=2, pp=1, ep=2)),)), "2", "no layout tp=2 ep=2"),
        (Candidate((Part(Role.BOTH, 2, Engine(f"{PROFILE}?gib=12")),)), "2", "leaves no room for KV"),
    ],
)
def test_what_cannot_be_ranked_beside_the_others_is_refused_before_anything_runs(
    running: Candidate, gpus: str, cause: str, tmp_path: Path
) -> None:
    file = tmp_path / "today.yaml"
    file.write_text(layout_text(running))
    with pytest.raises(LoadgenError, match=cause):
        asked(words(file, gpus))


def test_a_group_that_is_larger_than_a_node_is_refused_before_anything_runs(tmp_path: Path) -> None:
    file = tmp_path / "today.yaml"
    file.write_text(layout_text(Candidate((Part(Role.BOTH, 1, Engine(PROFILE, tp=2)),))))
    assert asked(words(file)).running is not None
    with pytest.raises(LoadgenError, match=r"its TP2 does not fit a node of 1 GPUs \(--gpus-per-node\)"):
        asked(replace(words(file), gpus_per_node=1))
