"""Models described by what matters (R-33)."""

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from engine.simulated.cost.catalog import UnknownProfileError, list_profiles, load_budget, load_profile, shape_and_table
from engine.simulated.cost.exchange import exchange_of
from engine.simulated.cost.models import BYTES, SHAPES
from engine.simulated.cost.parameters import parameters_of
from loadgen.failure import LoadgenError
from loadgen.plan.card.card import Card, Placement, card_of
from loadgen.plan.card.ranking import ranking
from tandem.cli.app import app
from tandem.cli.failure import CliError, Exit

DENSE, SPARSE = "h200-sxm/llama-3.1-405b", "h200-sxm/deepseek-r1"


@pytest.mark.parametrize(
    ("model", "total", "active"),
    [
        ("llama-3.1-8b", 8.03, 8.03),
        ("qwen3-32b", 32.76, 32.76),
        ("llama-3.1-405b", 405.85, 405.85),
        ("deepseek-r1", 671.03, 37.55),
    ],
)
def test_parameters_follow_from_the_shape(model: str, total: float, active: float) -> None:
    counted = parameters_of(SHAPES[model])
    assert counted.total / 1e9 == pytest.approx(total, abs=0.01)
    assert counted.active / 1e9 == pytest.approx(active, abs=0.01)


@pytest.mark.parametrize("name", [name for name in list_profiles() if "/" in name])
def test_what_is_counted_and_what_the_tables_load_agree(name: str) -> None:
    """To a byte for dense models. The source keeps parts of a latent model on every rank, and counts experts in every layer."""
    shape, table = shape_and_table(name)
    counted = parameters_of(shape).total * BYTES[shape.dtype]
    for layout in table.layouts:
        assert layout.memory is not None
        held = layout.memory.weights_bytes * layout.tp
        assert held == counted or (shape.experts and counted < held < 1.1 * counted)


def test_a_card_has_what_lies_on_a_gpu() -> None:
    card = card_of(f"{SPARSE}?tp=4&ep=4")
    (alone, staged) = card.placements
    assert (alone.gpus, staged.gpus) == (4, 8)
    assert alone.kv_tokens is None, "177 GB of weights for 141 GiB"
    assert staged.kv_tokens == load_budget(f"{SPARSE}?tp=4&ep=4&pp=2").kv_tokens
    assert staged.weights_bytes == alone.weights_bytes // 2
    assert staged.kv_bytes_per_token == 31 * 576 * 2
    assert (staged.kv_copies, staged.exchange.local_experts) == (4.0, 64)


def test_latents_are_copied_to_every_rank_and_heads_are_not() -> None:
    assert {each.kv_copies for each in card_of(DENSE).placements} == {1.0}
    assert {each.tp: each.kv_copies for each in card_of(SPARSE).placements} == {8: 8.0, 4: 4.0, 2: 2.0}
    few = replace(SHAPES["llama-3.1-8b"], kv_heads=2)
    assert few.kv_bytes_per_rank(8) * 8 == 4 * few.kv_bytes_per_token(), "beyond a head a rank, heads are copied"


def test_exchange_by_hand() -> None:
    """8B on two ranks: 32 layers, two sums each, and the embedding's; a ring of two sends each number once."""
    two = exchange_of(SHAPES["llama-3.1-8b"], tp=2, pp=1, ep=1)
    assert (two.all_reduces, two.token_bytes) == (65, 4096 * 2)
    assert two.sent_bytes_per_token == 65 * 4096 * 2
    assert two.logits_bytes == 128_256 * 2 // 2
    staged = exchange_of(SHAPES["llama-3.1-8b"], tp=1, pp=4, ep=1)
    assert (staged.all_reduces, staged.sent_bytes_per_token, staged.hops, staged.logits_bytes) == (0, 0, 3, 0)
    spread, sliced = (exchange_of(SHAPES["deepseek-r1"], tp=8, pp=1, ep=ep) for ep in (8, 1))
    assert (spread.local_experts, sliced.local_experts) == (32, 256)
    assert spread.sent_bytes_per_token == sliced.sent_bytes_per_token


def test_more_ranks_exchange_for_more_of_the_step() -> None:
    shares = {each.tp: each.decode_share for each in card_of("h200-sxm/qwen3-32b").placements if each.pp == 1}
    assert shares[1] == 0 < shares[2] < shares[4] < shares[8]


@pytest.mark.slow
def test_a_dense_and_a_sparse_model_rank_the_same_layouts_differently() -> None:
    """Long answers: 405B waits for weights, which TP shares out; R1 runs out of KV, which TP copies to every rank."""
    tp_and_pp = {name: _order(replace(card, placements=_no_ep(card))) for name, card in _cards().items()}
    assert tp_and_pp[DENSE] == ["TP8", "TP4·PP2", "TP2·PP4", "PP8"]
    assert tp_and_pp[SPARSE] == ["TP2·PP4", "TP4·PP2", "TP8"]


def _cards() -> dict[str, Card]:
    return {name: card_of(name) for name in (DENSE, SPARSE)}


def _no_ep(card: Card) -> tuple[Placement, ...]:
    return tuple(each for each in card.placements if each.ep == 1)


def _order(card: Card) -> list[str]:
    return [each.label for each in ranking(card, 8, 5000)]


@pytest.mark.slow
def test_replicas_fill_the_gpus() -> None:
    labels = {each.label for each in ranking(card_of("h200-sxm/llama-3.1-8b?tp=2", 4), 4, 500)}
    assert labels == {"2 × TP2", "TP2·PP2"}


@pytest.mark.slow
@pytest.mark.parametrize("model", [DENSE, SPARSE])
def test_the_command_fits_80_columns(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    result = CliRunner().invoke(app, ["plan", "model-card", model])
    assert result.exit_code == 0, result.output
    assert max(map(len, result.output.splitlines())) <= 80
    assert "…" not in result.output
    for row in card_of(model).placements:
        assert result.output.count(f"{row.degrees} ") >= 2
    assert ("mixture of experts" in result.output) == (model == SPARSE)


@pytest.mark.slow
def test_no_stage_is_without_a_layer() -> None:
    """With GPUs enough there were 65,536 stages of 126 layers."""
    card = card_of(DENSE, 100_000)
    assert max(placement.pp for placement in card.placements) * 2 > card.shape.layers
    assert max(placement.pp for placement in card.placements) <= card.shape.layers
    with pytest.raises(LoadgenError, match="no such layout"):
        card_of(f"{DENSE}?pp=512", 1000)
    with pytest.raises(UnknownProfileError, match="layers are too few for 512 stages"):
        load_profile(f"{DENSE}?pp=512")


def test_the_document_has_the_five() -> None:
    result = CliRunner().invoke(app, ["plan", "model-card", f"{SPARSE}?tp=8", "--json"])
    card = json.loads(result.output)
    assert card["schema"] == "tandem-model-card/1"
    assert (card["kind"], card["attention"]["kind"], card["kv"]["bytes_per_token"]) == (
        "mixture of experts",
        "latent",
        70_272,
    )
    assert card["parameters"]["total"] > 17 * card["parameters"]["active"]
    assert [row["degrees"] for row in card["placements"]] == ["TP8·EP8", "TP8"]
    assert all(row["weights_bytes"] > 0 and row["exchange"]["all_reduces"] == 123 for row in card["placements"])
    assert [row["layout"] for row in card["ranking"]["layouts"]]


@pytest.mark.parametrize(
    ("profile", "cause"),
    [
        ("h200-sxm/gpt-2", "no table"),
        ("toy", "no table"),
        (f"{DENSE}?tp=3", "no such layout"),
        (f"{DENSE}?speed=3", "no option"),
        ("file:/nowhere.json", "No such file"),
    ],
)
def test_a_wrong_name_has_one_cause(profile: str, cause: str) -> None:
    with pytest.raises(LoadgenError, match=cause):
        card_of(profile)
    refused = CliRunner().invoke(app, ["plan", "model-card", profile]).exception
    assert isinstance(refused, CliError)
    assert refused.status is Exit.USAGE
