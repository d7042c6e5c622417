"""The simulator and the gateway decide by the same objects: a policy that exists twice is a defect."""

from importlib import import_module
from pathlib import Path
from types import ModuleType

import decode_pool.ledger
import decode_pool.service
import gateway.cluster.worker
import gateway.policy.dispatch
import gateway.policy.prefill_choice
import gateway.policy.routing
import gateway.request.desk
import gateway.request.prefills
import gateway.request.prompt
import loadgen.simulate
from loadgen.simulate import Policies

SIMULATOR = Path(loadgen.simulate.__file__).parent


def same(name: str, *modules: ModuleType) -> bool:
    return len({id(getattr(module, name)) for module in modules}) == 1


def test_they_are_the_same_objects() -> None:
    desk, layout, worker = (import_module(f"loadgen.simulate.{n}") for n in ("desk", "layout", "worker"))
    prefill, decode = (import_module(f"loadgen.simulate.{n}") for n in ("prefill_legs", "decode_legs"))
    prompt, theirs = gateway.request.prompt, gateway.cluster.worker
    assert same("Dispatch", desk, gateway.request.desk, gateway.policy.dispatch)
    assert same("turned_away", desk, gateway.request.desk)
    assert same("needed", layout, import_module("gateway.policy.control.plan"))
    assert same("Controller", layout, gateway.request.desk)
    for name in ("PrefixIndex", "Door", "PrefillSpeed", "DecodeCandidate", "PrefillCandidate"):
        assert same(name, worker, theirs), name
    assert same("Ledger", layout, decode_pool.service)
    assert same("PullGate", worker, decode_pool.service)
    assert same("remote_mode", prefill, gateway.request.prefills)
    assert same("after_prefill_failure", prefill, prompt)
    assert same("after_decode_failure", decode, prompt)


def test_the_defaults_are_the_gateways_own() -> None:
    policies = Policies()
    assert policies.place is gateway.policy.routing.place
    assert policies.choose_prefill is gateway.policy.prefill_choice.choose_prefill
    assert policies.ledger is decode_pool.ledger.Ledger


def test_nothing_here_chooses_by_itself() -> None:
    """Scores and thresholds belong to the policies; the simulator only has the times at which they are asked."""
    for file in SIMULATOR.glob("*.py"):
        for word in ("def place", "def choose_", "def retry_after", "REOPEN_S ="):
            assert word not in file.read_text(), (file.name, word)
