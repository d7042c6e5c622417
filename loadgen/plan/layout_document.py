"""A candidate as the document that `tandem up --config` takes, and back."""

from pathlib import Path
from typing import Any

import yaml

from engine.simulated.cost.catalog import table_of
from engine.simulated.cost.request import parse_request
from loadgen.failure import LoadgenError
from loadgen.plan.candidate import HAND_OFF_FROM, WORKER_NAMES, Candidate, Engine, Part
from proto.worker import Role
from tandem.config import TandemConfig, load
from tandem.config_error import ConfigError


def layout_document(candidate: Candidate) -> dict[str, Any]:
    """Raises LoadgenError for a layout that the format has no words for."""
    roles = [part.role for part in candidate.parts]
    if len(set(roles)) != len(roles):
        raise LoadgenError(f"a layout document has one pool of each role, so it cannot say: {candidate.label}")
    document: dict[str, Any] = {
        "version": 1,
        "engine": {"max_num_seqs": candidate.parts[0].engine.seqs},
        "layout": {WORKER_NAMES[part.role]: _pool(part) for part in candidate.parts},
    }
    if candidate.local_below != HAND_OFF_FROM:
        document["gateway"] = {"routing": {"local_prefill_below_tokens": candidate.local_below}}
    return document


def _pool(part: Part) -> dict[str, Any]:
    """`profile` and what it sizes are for a simulated engine; a real one takes the rest and ignores it."""
    engine = part.engine
    asked = parse_request(engine.profile)
    profile = [f"tokens={engine.tokens}", f"seqs={engine.seqs}"]
    profile += [f"ep={engine.ep}"] if engine.ep > 1 else []
    profile += asked.kept
    profile += [f"digest={table_of(engine.profile).digest}"] if asked.file is not None else []
    keys: dict[str, Any] = {
        "profile": f"{asked.name}?{'&'.join(profile)}",
        "max_num_batched_tokens": engine.tokens,
    }
    if engine.pp > 1:
        keys["pp"] = engine.pp
    if asked.util:
        keys["gpu_memory_utilization"] = asked.util
    return {"workers": part.workers, "tp": engine.tp, "engine": keys}


def layout_text(candidate: Candidate, comments: tuple[str, ...] = ()) -> str:
    head = "".join(f"# {line}\n" for line in comments)
    return head + yaml.safe_dump(layout_document(candidate), sort_keys=False)


def read_layout(path: Path, profile: str, seqs: int) -> Candidate:
    """What runs now, as far as the planner has words for it. `profile` is taken where the document names none."""
    try:
        config = load(path)
    except ConfigError as error:
        raise LoadgenError("; ".join(error.problems)) from None
    parts = tuple(
        Part(role, config.layout.workers(role), _engine(config, role, profile, seqs))
        for role in (Role.PREFILL, Role.DECODE, Role.BOTH)
        if config.layout.workers(role)
    )
    return Candidate(parts, config.gateway.routing.local_prefill_below_tokens)


def _engine(config: TandemConfig, role: Role, profile: str, seqs: int) -> Engine:
    engine = config.engine_of(role)
    asked = parse_request(engine.profile or profile)
    try:
        table_of(engine.profile or profile)  # which the document may hold to what it was made of
    except ValueError as error:
        raise LoadgenError(f"{role.value}: {error}") from None
    name = "?".join([asked.name, *(["&".join(asked.kept)] if asked.kept else [])])
    tokens = asked.tokens or engine.max_num_batched_tokens or 8192
    said = "max_num_seqs" in engine.model_fields_set
    return Engine(
        name, engine.tp, engine.pp, asked.ep or 1, tokens, engine.max_num_seqs if said else asked.seqs or seqs
    )
