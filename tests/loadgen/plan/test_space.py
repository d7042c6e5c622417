"""Which layouts are looked at."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.failure import LoadgenError
from loadgen.plan.candidate import Candidate, Engine, Family, Part
from loadgen.plan.space import BESIDE, Gpus, Space, candidates, check_profile
from proto.worker import Role
from tests.loadgen.plan.asking import PROFILE

QWEN = "h200-sxm/qwen3-32b"


def of(gpus: int, profile: str = QWEN, **more: int) -> list[Candidate]:
    return candidates(Space((Gpus(profile, gpus),), **more))[0]  # type: ignore[arg-type]  # keywords of several types in one dict


@given(st.integers(1, 12))
def test_every_layout_uses_every_gpu_and_serves(gpus: int) -> None:
    for candidate in of(gpus):
        roles = {part.role for part in candidate.parts}
        assert candidate.gpus == gpus
        assert Role.BOTH in roles or roles == {Role.PREFILL, Role.DECODE}
        assert len(roles) == len(candidate.parts)  # a layout document can say it


def test_eight_gpus_of_a_32b_model_have_over_two_hundred_layouts_of_all_families() -> None:
    found = candidates(Space((Gpus(QWEN, 8),), (16, 512, 2048)))[0]
    assert len(found) >= 200
    assert {candidate.family for candidate in found} == set(Family)
    assert len(set(found)) == len(found)


def test_a_model_that_needs_eight_gpus_is_not_split_over_eight() -> None:
    assert {c.label for c in of(8, "h200-sxm/llama-3.1-405b")} == {f"1C TP8/{n}" for n in BESIDE}


def test_a_dominated_engine_is_left_out_and_said() -> None:
    found, dominated = candidates(Space((Gpus(QWEN, 2),)))
    assert any("PP2 is dominated by TP2" in str(each) for each in dominated)
    assert not any(part.engine.pp > 1 for candidate in found for part in candidate.parts)


def test_two_kinds_are_tried_in_both_roles() -> None:
    found, _ = candidates(Space((Gpus(QWEN, 4), Gpus(f"{QWEN}?gib=96", 4))))
    prefills = {p.engine.profile for c in found for p in c.parts if p.role is Role.PREFILL}
    assert prefills == {QWEN, f"{QWEN}?gib=96"}
    assert any(c.family is Family.COLOCATED for c in found)
    assert all(c.gpus == 8 for c in found)


def test_a_prefill_profile_is_used_for_prefill_alone() -> None:
    found, _ = candidates(Space((Gpus(QWEN, 4),), prefill_profile=f"{QWEN}?gib=96"))
    for part in (part for candidate in found for part in candidate.parts):
        assert (part.role is Role.PREFILL) == part.engine.profile.endswith("gib=96")


@pytest.mark.parametrize("name", ["h200-sxm/nope", "b200/llama-3.1-8b", "toy", f"{PROFILE}?tp=2", f"{PROFILE}?x=1"])
def test_a_profile_without_a_table_or_with_degrees_is_refused(name: str) -> None:
    with pytest.raises(LoadgenError, match="model:"):
        check_profile(name)


def test_nothing_fits() -> None:
    with pytest.raises(LoadgenError, match="no layout fits"):
        of(2, "h200-sxm/llama-3.1-405b")


def test_more_memory_is_more_kv() -> None:
    engine = Engine(QWEN)
    words = engine.words(1.1)
    assert "gib=155.1" in words
    assert Candidate((Part(Role.BOTH, 1, engine),)).gpus == 1
