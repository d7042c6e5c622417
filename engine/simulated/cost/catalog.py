"""Profiles by name."""

from dataclasses import asdict, replace
from functools import lru_cache
from pathlib import Path

from engine.simulated.cost.built_in import BUILT_IN, built_in
from engine.simulated.cost.exchange import slower_link_token_s
from engine.simulated.cost.expert_load import expert_load, uneven
from engine.simulated.cost.memory import UTILISATION, DoesNotFitError, HbmBudget, hbm_budget
from engine.simulated.cost.models import BYTES, SAME_TIMES, SHAPES, ModelShape
from engine.simulated.cost.profile import Link, Profile
from engine.simulated.cost.request import ProfileRequest, parse_request
from engine.simulated.cost.table import Facts, Layout, Table, read_table
from engine.simulated.cost.table_cost import Hops, TableCost
from engine.simulated.cost.validity import check, validity_of

_TABLES = Path(__file__).parent / "tables"
_BLOCK_SIZE_TOKENS = 16
_MAX_NUM_SEQS = 256
#: What an engine calls its dtype.
_DTYPES = frozenset({"float32", "float16", "bfloat16"})
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
    name: str,
    *,
    tp: int | None = None,
    pp: int | None = None,
    gpu_memory_utilization: float | None = None,
    dtype: str | None = None,
) -> Profile:
    """`toy`, `instant`, `h200-sxm/llama-3.1-8b?tp=2`, or `file:/path.json`: written by `tandem profile`, or another version
    of a built-in table, which takes the same options (`file:/path.json?tp=2`).

    What the name says goes before the arguments; unsaid, the smallest layout that fits is taken. A table of another `dtype` is
    refused, unless its weights are quantised: that is the precision of everything else then.
    """
    request = parse_request(name)
    if dtype is not None and request.name not in BUILT_IN and (held := table_of(name).validity).weights in _DTYPES:
        check(request.name, asdict(held), {"weights": dtype}, request.accept)
    request = replace(
        request,
        tp=request.tp or tp,
        pp=request.pp or pp,
        util=request.util or gpu_memory_utilization,
    )
    if request.file is not None:
        table = _read_file(request.file)
        if table.facts is not None:
            return _measured(request, parse_request(name), table)
        return _tabulated(request, *shape_and_table(name))
    if request.name in BUILT_IN:
        return _built_in(request, parse_request(name))
    if request.name not in list_profiles():
        raise UnknownProfileError(f"no profile {request.name!r}; known: {', '.join(list_profiles())}")
    return _tabulated(request, *shape_and_table(name))


def load_budget(name: str) -> HbmBudget:
    """What fills one GPU under the profile of that name."""
    return _fitting(parse_request(name), *shape_and_table(name))[1]


def table_of(name: str) -> Table:
    """The table behind a profile's name. Raises UnknownProfileError, StaleTableError, TableError."""
    request = parse_request(name)
    if request.file is None:
        return shape_and_table(name)[1]
    table = _read_file(request.file)
    _check(request, table, SHAPES.get(table.model) if table.facts is None else None)
    return table


def shape_and_table(name: str) -> tuple[ModelShape, Table]:
    """What a table says of a model whose shape is known. Raises UnknownProfileError, also for tables of measured engines,
    StaleTableError and TableError."""
    request = parse_request(name)
    if request.file is None:
        shape, table = _table_of(request.name)
    else:
        table = _read_file(request.file)
        if table.facts is not None:
            raise UnknownProfileError(
                f"{request.name}: the table of a measured engine knows times, not what a model is made of"
            )
        shape = _shape_of(request.name, table)
    _check(request, table, shape)
    return shape, table


def _check(request: ProfileRequest, table: Table, shape: ModelShape | None) -> None:
    """That the table is of the model as it is known here, and of what the name asks. Raises StaleTableError."""
    holds_for = asdict(table.validity)
    if shape is not None and table.valid_for is not None:
        check(request.name, holds_for, asdict(validity_of(shape, table.device)), request.accept)
    if "digest" in request.held:
        holds_for["digest"] = table.digest
    check(request.name, holds_for, request.held, request.accept)


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
def _read(path: Path, changed_ns: int = 0) -> Table:
    return read_table(path)


def _read_file(path: Path) -> Table:
    """Once for each state of the file: a plan asks for it hundreds of times."""
    return _read(path, path.stat().st_mtime_ns) if path.is_file() else read_table(path)


def _tabulated(request: ProfileRequest, shape: ModelShape, table: Table) -> Profile:
    layout, budget = _fitting(request, shape, table)
    pp, whole = request.pp or 1, shape.kv_bytes_per_token()
    blocks = budget.kv_tokens // _BLOCK_SIZE_TOKENS
    load = None
    if request.expert_skew is not None:
        load = expert_load(shape, layout.ep, request.expert_skew, request.expert_seed or 0)
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
        cost=TableCost(
            uneven(layout, shape, load) if load is not None else layout, _hops(request, shape, table, layout.tp)
        ),
        group_link=request.link is not None,
        expert_load=load,
        links={transport: Link(rate * lanes, latency) for transport, (rate, latency) in table.links.items()},
    )


def _fitting(request: ProfileRequest, shape: ModelShape, table: Table) -> tuple[Layout, HbmBudget]:
    """The layout asked for, or the smallest one with room for KV."""
    if (request.pp or 1) > shape.layers:
        raise UnknownProfileError(f"{request.name}: {shape.layers} layers are too few for {request.pp} stages")
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


def _built_in(request: ProfileRequest, said: ProfileRequest) -> Profile:
    """Of no table, so that there is nothing to hold for."""
    ignored = [*said.hardware, *said.held, *(key for key in ("ep",) if getattr(said, key))]
    if ignored:
        raise UnknownProfileError(f"{request.name}: has no table, and so no {', '.join(ignored)} to choose")
    profile = built_in(request.name, request.tp or 1, request.pp or 1)
    return replace(
        profile,
        max_num_seqs=request.seqs or profile.max_num_seqs,
        max_num_batched_tokens=request.tokens or profile.max_num_batched_tokens,
    )


def _measured(request: ProfileRequest, said: ProfileRequest, table: Table) -> Profile:
    """One engine as it was measured: what its table does not know cannot be chosen. `said`: by the name alone."""
    facts, layout = table.facts, table.layouts[0]
    assert isinstance(facts, Facts)
    _check(request, table, None)
    if said.hardware:
        raise UnknownProfileError(f"{request.name}: was measured, and cannot be had with {', '.join(said.hardware)}")
    measured = {"tp": layout.tp, "pp": facts.pp, "ep": layout.ep}
    other = [key for key, value in measured.items() if getattr(request, key) not in (None, value)]
    if other:
        had, wanted = (", ".join(f"{key}={at[key]}" for key in other) for at in (measured, asdict(request)))
        raise UnknownProfileError(f"{request.name}: was measured at {had}, not at {wanted}")
    return Profile(
        name=request.name,
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
        max_num_seqs=request.seqs or facts.max_num_seqs,
        max_num_batched_tokens=request.tokens or facts.max_num_batched_tokens,
        vocab_size=facts.vocab_size,
        eos_token_ids=facts.eos_token_ids,
        cost=TableCost(layout),
        links={transport: Link(*link) for transport, link in table.links.items()},
        sharing=table.sharing,
    )
