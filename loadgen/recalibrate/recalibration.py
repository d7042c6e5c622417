"""The same trace on every layout, live and by the table; then the table that would have been right."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from engine.simulated.cost import UnknownProfileError
from engine.simulated.cost.catalog import table_of
from engine.simulated.cost.models import SAME_TIMES, SHAPES
from engine.simulated.cost.request import parse_request
from engine.simulated.cost.table import Table, TableError, write_table
from engine.simulated.cost.validity import Validity, validity_of
from loadgen.arms.base import Arm
from loadgen.arms.local import LocalArm
from loadgen.arms.url import ClientSettings, UrlArm
from loadgen.arms.virtual import VirtualArm
from loadgen.client.target import Target, base_url
from loadgen.experiment import Experiment
from loadgen.failure import LoadgenError
from loadgen.recalibrate.components import Components, components_of
from loadgen.recalibrate.factors import Factors, Fitted, fit, scaled
from loadgen.schedule import Schedule
from loadgen.simulate.layout import Layout
from loadgen.simulate.words import parse_layout
from loadgen.slo.policy import Policy


@dataclass(frozen=True, slots=True)
class Observed:
    """One layout's run. `complete` is False after Ctrl-C; `invalid`: why its figures are not the target's; `model`: what the
    target calls what it serves."""

    layout: str
    origin: str
    components: Components
    complete: bool
    invalid: tuple[str, ...] = ()
    model: str = ""


@dataclass(frozen=True, slots=True)
class Recalibrated:
    """`fitted` has what the old table predicts, and what the new one does, layout by layout."""

    profile: str
    observed: tuple[Observed, ...]
    fitted: Fitted
    table: Table

    def versioned(self, version: int) -> Table:
        return replace(self.table, source=dict(self.table.source) | {"version": str(version)})


def base_table(profile: str) -> Table:
    """Raises LoadgenError."""
    try:
        return table_of(profile)
    except (UnknownProfileError, TableError, ValueError) as error:
        made = "; `tandem profile --out FILE` makes one" if profile.startswith("file:") else ""
        raise LoadgenError(f"--table: {error}{made}") from None


def check_model(profile: str, table: Table, observed: Sequence[Observed]) -> None:
    """A table corrected by a fleet of another model would be of neither. Raises LoadgenError."""
    ours = table.validity.model
    served = {one.model for one in observed if one.model and _bare(one.model) != _bare(ours)}
    if not served or "model" in parse_request(profile).accept:
        return
    raise LoadgenError(
        f"the table is of {ours}, the target serves {', '.join(sorted(served))}; where that is the same by another name, say "
        f"--table '{profile}{'&' if '?' in profile else '?'}accept=model'"
    )


def _bare(model: str) -> str:
    """Without a hub's or a folder's part of its name."""
    name = model.rpartition("/")[2].casefold()
    return SAME_TIMES.get(name, name)


def arm_for(layout: str, target: str, timeout_s: float) -> Arm:
    """`up:WORDS` is started for this layout, `sim:WORDS` stands in for a machine nobody has; a URL is as it is."""
    settings = ClientSettings(timeout_s=timeout_s)
    kind, colon, words = target.partition(":")
    if colon and kind == "up":
        return LocalArm(layout, 1.0, f"{layout} {words}".strip(), client=settings)
    if colon and kind == "sim":
        return VirtualArm(layout, parse_layout(f"{layout} {words}".strip(), timeout_s), 1.0)
    return UrlArm(layout, 1.0, Target(base_url(target)), settings)


def on_table(layout: str, profile: str, timeout_s: float) -> Layout:
    """Raises LoadgenError for words that name no layout of the profile."""
    return parse_layout(f"{layout} --engine simulated --profile '{profile}'", timeout_s)


def predictions(
    profile: str, table: Table, layouts: Sequence[str], schedule: Schedule, policy: Policy, timeout_s: float
) -> Callable[[Factors], list[Components]]:
    """Simulates every layout on the table with some factors. The table goes through a file, as it will in use."""
    options = profile.partition("?")[2]

    def predict(factors: Factors) -> list[Components]:
        with TemporaryDirectory(prefix="recalibrate-") as folder:
            path = Path(folder) / "table.json"
            write_table(scaled(table, factors), path)
            where = f"file:{path}" + (f"?{options}" if options else "")
            return [_predicted(layout, where, schedule, policy, timeout_s) for layout in layouts]

    return predict


def _predicted(layout: str, profile: str, schedule: Schedule, policy: Policy, timeout_s: float) -> Components:
    simulated = on_table(layout, profile, timeout_s).simulate(schedule)
    return components_of(simulated.results, simulated.telemetry, policy)


def recalibrate(
    profile: str, observed: Sequence[Observed], experiment: Experiment, target: str, timeout_s: float
) -> Recalibrated:
    """`observed`: complete runs of the experiment. Raises LoadgenError where a layout cannot be simulated."""
    assert isinstance(experiment.policy, Policy)
    table, schedule = base_table(profile), experiment.schedule()
    layouts = [one.layout for one in observed]
    predict = predictions(profile, table, layouts, schedule, experiment.policy, timeout_s)
    seen = [one.components for one in observed]
    fitted = fit(seen, predict)
    source = dict(table.source) | {
        "recalibrated_from": parse_request(profile).name,
        "trace": f"{experiment.workload.name}, {len(schedule.requests)} requests, digest {schedule.digest}",
        "layouts": "; ".join(layouts),
        "target": target,
        "factors": f"prefill {fitted.factors.prefill:.4f}, decode {fitted.factors.decode:.4f}, "
        f"link {fitted.factors.link:.4f}",
    }
    table = _with_room(table, seen, fitted.before)
    errors = {"trace_median_error_before": fitted.error_before, "trace_median_error": fitted.error}
    made = replace(
        scaled(table, fitted.factors), source=source, fit=dict(table.fit) | errors, valid_for=valid_for(table)
    )
    return Recalibrated(profile, tuple(observed), fitted, made)


def valid_for(table: Table) -> Validity:
    """A table of before that was kept is of the model as it is known here."""
    if table.valid_for is None and table.facts is None and table.model in SHAPES:
        return validity_of(SHAPES[table.model], table.device)
    return table.validity


def _with_room(table: Table, observed: Sequence[Components], predicted: Sequence[Components]) -> Table:
    """A measured table states its engine's blocks of KV; where every run had another number, that one."""
    if table.facts is None:
        return table
    pairs = [
        (o.memory.get("kv_total_blocks", 0.0), p.memory.get("kv_total_blocks", 0.0))
        for o, p in zip(observed, predicted, strict=True)
    ]
    ratios = [o / p for o, p in pairs if o and p]
    if not ratios or max(ratios) > 1.01 * min(ratios):
        return table
    blocks = max(1, round(table.facts.blocks_total * ratios[0]))
    return replace(table, facts=replace(table.facts, blocks_total=blocks))
