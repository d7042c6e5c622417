"""The environment of the engine's processes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from engine.config import EngineConfig, Link
from engine.vllm.launch import _environ
from engine.vllm.settings import environment
from proto.worker import Topology
from transfer.nixl.plugin import OWNER_PID, POLL_DELAY_US

_CPU = Topology("h", transports=("shm", "tcp"))
_RDMA = Topology("h", device="cuda", transports=("rdma", "shm", "tcp"))


def test_one_rank_on_a_cpu_shares_the_engine_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    one = environment(EngineConfig(omp_threads=3), _CPU, 5600)
    assert one["VLLM_ENABLE_V1_MULTIPROCESSING"] == "0"
    assert one["OMP_NUM_THREADS"] == "3"
    assert one[OWNER_PID] == str(os.getpid())
    assert one["VLLM_NIXL_SIDE_CHANNEL_PORT"] == "5600"
    assert "VLLM_ENABLE_V1_MULTIPROCESSING" not in environment(EngineConfig(tp=2), _CPU, 5600)
    assert "OMP_NUM_THREADS" not in environment(EngineConfig(), _RDMA, 5600)


def test_the_poll_delay_follows_the_machine_and_the_operator() -> None:
    assert environment(EngineConfig(), _CPU, 1)[POLL_DELAY_US] == "1000"
    assert environment(EngineConfig(), _RDMA, 1)[POLL_DELAY_US] == "0"
    assert environment(EngineConfig(nixl_poll_delay_us=7), _RDMA, 1)[POLL_DELAY_US] == "7"


def test_the_link_sets_ucx_and_the_operators_own_setting_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UCX_TLS", raising=False)
    assert environment(EngineConfig(link=Link.TCP), _CPU, 1)["UCX_TLS"] == "tcp,self"
    monkeypatch.setenv("UCX_TLS", "all")
    assert "UCX_TLS" not in environment(EngineConfig(link=Link.TCP), _CPU, 1)


def test_the_environment_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TANDEM_A", "before")
    monkeypatch.delenv("TANDEM_B", raising=False)
    with _environ({"TANDEM_A": "during", "TANDEM_B": "during"}):
        assert os.environ["TANDEM_A"] == "during"
        os.environ["TANDEM_C"] = "set by the engine"
    assert os.environ["TANDEM_A"] == "before"
    assert "TANDEM_B" not in os.environ
    assert "TANDEM_C" not in os.environ


def test_importing_the_adapter_imports_neither_vllm_nor_torch() -> None:
    code = "import sys, engine.vllm; assert not {'vllm', 'torch'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[3])
