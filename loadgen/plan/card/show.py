"""A model's card on the terminal, and as a document."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from loadgen.plan.card.card import CONTEXT, DECODING, PROMPT, Card, Placement
from loadgen.plan.card.ranking import Ranked

SCHEMA = "tandem-model-card/1"
_GIB = 2**30


def document(card: Card, ranked: Sequence[Ranked], answer_tokens: float) -> dict[str, Any]:
    shape = card.shape
    return {
        "schema": SCHEMA,
        "figures": "counted from the shape of the model; weights, room and shares of time from the table, not measured",
        "profile": card.profile,
        "device": card.device,
        "model": shape.name,
        "kind": card.kind,
        "parameters": {
            **asdict(card.parameters),
            "total": card.parameters.total,
            "active": card.parameters.active,
            "dtype": shape.dtype,
        },
        "attention": {
            "kind": card.attention,
            "layers": shape.layers,
            "heads": shape.heads,
            "kv_heads": None if shape.latent else shape.kv_heads,
            "kv_latent": shape.kv_latent or None,
            "window": shape.max_model_len,
        },
        "experts": asdict(shape.experts) if shape.experts else None,
        "kv": {"dtype": shape.kv_dtype, "bytes_per_token": shape.kv_bytes_per_token()},
        "placements": [
            {**asdict(each), "expert_load": _load(each), "gpus": each.gpus, "degrees": each.degrees}
            for each in card.placements
        ],
        "shares_of": {"decode": {"sequences": DECODING, "context": CONTEXT}, "prompt": {"tokens": PROMPT}},
        "ranking": {
            "answer_tokens": answer_tokens,
            "layouts": [{"layout": each.label, "requests_per_s": each.requests_per_s} for each in ranked],
        },
    }  # fmt: skip


def show(card: Card, ranked: Sequence[Ranked], answer_tokens: float, console: Console) -> None:
    for line in _facts(card):
        console.print(line)
    console.print()
    console.print(_memory(card))
    console.print()
    console.print(_exchange(card))
    console.print()
    if ranked:
        console.print(f"All GPUs, answers of {answer_tokens:,.0f} tokens on the mean, no limits on latency: at most")
        console.print(_ranking(ranked))
        console.print()
    for line in _remarks(card):
        console.print(line)


def _facts(card: Card) -> list[str]:
    shape, count = card.shape, card.parameters
    lines = [
        f"{card.profile}: {card.kind}",
        f"parameters  {_billions(count.total)} in all, {_billions(count.active)} of them active for a token; {shape.dtype}",
        f"            embeddings {_billions(count.embeddings)}, attention {_billions(count.attention)}, "
        f"feed-forward {_billions(count.feed_forward)}"
        + (f", experts {_billions(count.routed)}" if count.routed else ""),
    ]
    if experts := shape.experts:
        lines.append(
            f"experts     {experts.count} a layer, {experts.chosen} chosen and {experts.shared} shared for a token, "
            f"{shape.layers - experts.dense_layers} of {shape.layers} layers"
        )
    kept = (
        f"one latent vector of {shape.kv_latent} a layer"
        if shape.latent
        else f"{shape.kv_heads} heads of {shape.head_dim}, {shape.heads} of queries"
    )
    lines.append(f"attention   {card.attention}: {kept}, {shape.layers} layers; window {shape.max_model_len:,}")
    lines.append(f"KV          {shape.kv_bytes_per_token():,} bytes a token, {shape.kv_dtype}")
    return lines


def _memory(card: Card) -> Table:
    table = _table(
        "On one GPU (copies: of the whole, over all GPUs)", "weights", "copies", "KV a token", "copies", "room"
    )
    for each in card.placements:
        room = f"{each.kv_tokens:,} tokens" if each.kv_tokens is not None else "none"
        table.add_row(
            *_names(each),
            f"{each.weights_bytes / _GIB:,.1f} GiB",
            f"{each.weight_copies:.2f}",
            f"{each.kv_bytes_per_token:,} B",
            f"{each.kv_copies:.2f}",
            room,
        )
    return table


def _exchange(card: Card) -> Table:
    title = "Exchange in a step (sent: by one GPU, in all-reduces)"
    table = _table(title, "all-reduces", "sent a token", "hops", "of decode", "of prompt")
    for each in card.placements:
        exchange = each.exchange
        table.add_row(
            *_names(each),
            f"{exchange.all_reduces:,}",
            f"{exchange.sent_bytes_per_token / 1e3:,.0f} kB",
            f"{exchange.hops}",
            f"{each.decode_share:.0%}",
            f"{each.prompt_share:.0%}",
        )
    return table


def _ranking(ranked: Sequence[Ranked]) -> Table:
    table = Table("layout", box=None, padding=(0, 2, 0, 0))
    table.add_column("requests/s", justify="right")
    for each in ranked:
        table.add_row(each.label, f"{each.requests_per_s:.3f}")
    return table


def _remarks(card: Card) -> list[str]:
    exchange, shape = card.placements[0].exchange, card.shape
    lines = [
        f"An all-reduce and a hop carry {exchange.token_bytes:,} bytes a token; TP also gathers up to "
        f"{exchange.logits_bytes / 1e3:,.0f} kB of logits for each answer token.",
        f"Shares of time: {DECODING} sequences at {CONTEXT:,} tokens, a prompt of {PROMPT:,}; by the table.",
    ]
    if shape.experts:
        lines.append(
            "Experts: with EP each GPU holds whole ones, without it a slice of each. Every GPU has every token, so there is no "
            "all-to-all; the all-reduce after the experts sums what they found."
        )
        lines += _uneven(card)
    else:
        lines.append("Dense: every GPU of a TP group does its slice of every layer for every token.")
    return lines


def _uneven(card: Card) -> list[str]:
    loads = {each.expert_load.ranks: each.expert_load for each in card.placements if each.expert_load}
    if not loads:
        return []
    first = next(iter(loads.values()))
    ranks = ", ".join(f"EP{ranks} {load.slowest:.2f}" for ranks, load in loads.items() if ranks > 1)
    return [
        f"Experts are chosen unevenly (Gini {first.gini:g}, seed {first.seed}): the most popular of a layer {first.hottest:.1f} times "
        f"its share; the slowest rank of a layer, times its share: {ranks or 'none, as no layout has EP'}."
    ]


def _load(each: Placement) -> dict[str, Any] | None:
    load = each.expert_load
    if load is None:
        return None
    shares = [sum(layer[rank] for layer in load.rank_shares) / load.layers for rank in range(load.ranks)]
    return {
        "gini": load.gini,
        "seed": load.seed,
        "ranks": load.ranks,
        "slowest_rank": load.slowest,
        "hottest_expert": load.hottest,
        "rank_shares": shares,
        "expert_shares": list(load.popularity),
    }


def _table(title: str, *columns: str) -> Table:
    table = Table("layout", "GPUs", title=title, title_justify="left", box=None, padding=(0, 2, 0, 0))
    for name in columns:
        table.add_column(name, justify="right")
    return table


def _names(each: Placement) -> tuple[str, str]:
    return each.degrees, str(each.gpus)


def _billions(count: int) -> str:
    return f"{count / 1e9:.3g}B"
