"""Profiles by name."""

from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from engine.simulated.cost.built_in import BUILT_IN, built_in
from engine.simulated.cost.exchange import slower_link_token_s
from engine.simulated.cost.memory import UTILISATION, DoesNotFitError, HbmBudget, hbm_budget
from engine.simulated.cost.models import BYTES, SAME_TIMES, SHAPES, ModelShape
from engine.simulated.cost.profile import Link, Profile
from engine.simulated.cost.request import ProfileRequest, parse_request
from engine.simulated.cost.table import Facts, Layout, Table, read_table
from engine.simulated.cost.table_cost import Hops, TableCost

_TABLES = Path(__file__).parent / "tables"
_BLOCK_SIZE_TOKENS = 16
_MAX_NUM_SEQS = 256
_MAX_NUM_BATCHED_TOKENS = 8192


class UnknownProfileError(ValueError):
    """No such profile or layout; the message lists what there is."""


def list_profiles() -> tuple[str, ...]:
    """Every name that `load_profile` takes, files apart."""
    tables = {f"{path.parent.name}/{path.name.removesuffix('.json.gz')}" for path in _TABLES.glob("*/*.json.gz")}
    aliases = {
        f"{name.split('/')[0]}/{alias}"
        for alias, same in SAME_TIMES.items()
        for name in tables
        if name.endswith(f"/{same}")
    }
    return tuple(sorted({*BUILT_IN, *tables, *aliases}))


def load_profile(
    name: str, *, tp: int | None = None, pp: int | None = None, gpu_memory_utilization: float | None = None
) -> Profile:
    """`toy`, `instant`, `h200-sxm/llama-3.1-8b?tp=2`, or `file:/path.json`: written by `tandem profile`, or another version
    of a built-in table, which takes the same options (`file:/path.json?tp=2`).

    What the name says goes before the arguments; unsaid, the smallest layout that fits is taken.
    """
    request = parse_request(name)
    request = replace(
        request,
        tp=request.tp or tp,
        pp=request.pp or pp,
        util=request.util or gpu_memory_utilization,
    )
    if request.file is not None:
        table = read_table(request.file)
        if table.facts is not None:
            return _measured(request.name, table)
        return _tabulated(request, _shape_of(request.name, table), table)
    if request.name in BUILT_IN:
        return built_in(request.name, request.tp or 1, request.pp or 1)
    if request.name not in list_profiles():
        raise UnknownProfileError(f"no profile {request.name!r}; known: {', '.join(list_profiles())}")
    return _tabulated(request, *_table_of(request.name))


def load_budget(name: str) -> HbmBudget:
    """What fills one GPU under the profile of that name."""
    return _fitting(parse_request(name), *shape_and_table(name))[1]


def table_of(name: str) -> Table:
    """The table behind a profile's name. Raises UnknownProfileError, TableError."""
    request = parse_request(name)
    if request.file is not None:
        return read_table(request.file)
    return _table_of(request.name)[1]


def shape_and_table(name: str) -> tuple[ModelShape, Table]:
    """What a table says of a model whose shape is known. Raises UnknownProfileError, also for tables of measured engines, and
    TableError."""
    request = parse_request(name)
    if request.file is None:
        return _table_of(request.name)
    table = read_table(request.file)
    if table.facts is not None:
        raise UnknownProfileError(
            f"{request.name}: the table of a measured engine knows times, not what a model is made of"
        )
    return _shape_of(request.name, table), table


def _shape_of(name: str, table: Table) -> ModelShape:
    if table.model not in SHAPES:
        raise UnknownProfileError(f"{name}: describes no engine, and {table.model!r} is no model known here")
    return SHAPES[table.model]


def _table_of(name: str) -> tuple[ModelShape, Table]:
    device, _, model = name.partition("/")
    if name not in list_profiles() or not model:
        raise UnknownProfileError(f"no table {name!r}; known: {', '.join(list_profiles())}")
    return SHAPES[model], _read(_TABLES / device / f"{SAME_TIMES.get(model, model)}.json.gz")


@lru_cache(maxsize=16)
def _read(path: Path) -> Table:
    return read_table(path)


def _tabulated(request: ProfileRequest, shape: ModelShape, table: Table) -> Profile:
    layout, budget = _fitting(request, shape, table)
    pp, whole = request.pp or 1, shape.kv_bytes_per_token()
    blocks = budget.kv_tokens // _BLOCK_SIZE_TOKENS
    # Every rank moves its own part over its own link, and they do so at once.
    lanes = whole / budget.kv_bytes_per_token
    return Profile(
        name=request.name,
        model=shape.name,
        device=table.device,
        dtype=shape.kv_dtype,
        tp=layout.tp,
        pp=pp,
        ep=layout.ep,
        block_size_tokens=_BLOCK_SIZE_TOKENS,
        blocks_total=blocks,
        kv_bytes_per_token=whole,
        max_model_len=min(shape.max_model_len, blocks * _BLOCK_SIZE_TOKENS),
        max_num_seqs=request.seqs or _MAX_NUM_SEQS,
        max_num_batched_tokens=request.tokens or _MAX_NUM_BATCHED_TOKENS,
        vocab_size=shape.vocab_size,
        eos_token_ids=shape.eos_token_ids,
        cost=TableCost(layout, _hops(request, shape, table, layout.tp)),
        group_link=request.link is not None,
        links={transport: Link(rate * lanes, latency) for transport, (rate, latency) in table.links.items()},
    )


def _fitting(request: ProfileRequest, shape: ModelShape, table: Table) -> tuple[Layout, HbmBudget]:
    """The layout asked for, or the smallest one with room for KV."""
    wanted = [layout for layout in table.layouts if request.tp in (None, layout.tp) and request.ep in (None, layout.ep)]
    if not wanted:
        known = ", ".join(f"tp={layout.tp} ep={layout.ep}" for layout in table.layouts)
        raise UnknownProfileError(f"{request.name} has no layout tp={request.tp} ep={request.ep}; known: {known}")
    reasons: list[DoesNotFitError] = []
    for layout in sorted(wanted, key=lambda layout: (layout.tp, -layout.ep)):
        try:
            return layout, hbm_budget(
                shape,
                layout,
                round(request.gib * 2**30) if request.gib else table.gpu_bytes,
                pp=request.pp or 1,
                utilisation=request.util or UTILISATION,
                max_num_batched_tokens=request.tokens or _MAX_NUM_BATCHED_TOKENS,
                max_num_seqs=request.seqs or _MAX_NUM_SEQS,
            )
        except DoesNotFitError as reason:
            reasons.append(reason)
    raise reasons[-1]


def _hops(request: ProfileRequest, shape: ModelShape, table: Table, tp: int) -> Hops:
    """Activations go from stage to stage over the network between nodes, as the source of the tables has it."""
    slower_s = _slower_group_s(request, shape, table, tp)
    hops = (request.pp or 1) - 1
    if not hops:
        return Hops(token_s=slower_s)
    rate, latency = table.links["rdma"]
    return Hops(hops * latency, hops * shape.hidden * BYTES["bfloat16"] / rate + slower_s)


def _slower_group_s(request: ProfileRequest, shape: ModelShape, table: Table, tp: int) -> float:
    if request.link is None:
        return 0.0
    inside, _ = table.links["nvlink"]
    if request.link * 1e9 > inside:
        raise UnknownProfileError(
            f"{request.name}: link={request.link:g} is above the {inside / 1e9:g} GB/s of the table"
        )
    return slower_link_token_s(shape, tp, request.link * 1e9, inside)


def _measured(name: str, table: Table) -> Profile:
    facts, layout = table.facts, table.layouts[0]
    assert isinstance(facts, Facts)
    return Profile(
        name=name,
        model=facts.model,
        device=table.device,
        dtype=facts.dtype,
        tp=layout.tp,
        pp=facts.pp,
        ep=layout.ep,
        block_size_tokens=facts.block_size_tokens,
        blocks_total=facts.blocks_total,
        kv_bytes_per_token=facts.kv_bytes_per_token,
        max_model_len=facts.max_model_len,
        max_num_seqs=facts.max_num_seqs,
        max_num_batched_tokens=facts.max_num_batched_tokens,
        vocab_size=facts.vocab_size,
        eos_token_ids=facts.eos_token_ids,
        cost=TableCost(layout),
        links={transport: Link(*link) for transport, link in table.links.items()},
        sharing=table.sharing,
    )
