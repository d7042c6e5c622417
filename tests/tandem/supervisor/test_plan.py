import json
from pathlib import Path
from typing import Any

import pytest

from tandem.config import load
from tandem.supervisor.machine import Machine, owner_of, port_is_free
from tandem.supervisor.plan import GIB, Plan, PlanError, make_plan, memory_gib
from transfer.ports import free_ports

LAPTOP = Machine(cores=4, memory_bytes=32 * GIB, gpus=())
SERVER = Machine(cores=64, memory_bytes=512 * GIB, gpus=("0", "1", "2", "3"))


def plan_for(machine: Machine = LAPTOP, **sections: Any) -> Plan:
    return make_plan(load(flags=sections), machine, http_port=8000, grpc_port=9000, supervisor_pid=1)


def test_workers_are_named_by_pool_and_join_the_gateway() -> None:
    plan = plan_for(layout={"prefill": {"workers": 1}, "decode": {"workers": 2}})
    assert [spec.name for spec in plan.workers] == ["prefill-0", "decode-0", "decode-1"]
    documents = [json.loads(spec.document) for spec in plan.workers]
    assert [document["role"] for document in documents] == ["prefill", "decode", "decode"]
    assert all(document["join"] == ["127.0.0.1:9000"] for document in documents)
    assert json.loads(plan.gateway.document)["grpc_port"] == 9000


def test_cores_are_shared_by_ranks() -> None:
    plan = plan_for(layout={"prefill": {"workers": 1}, "decode": {"workers": 1, "tp": 3}})
    assert [spec.env["OMP_NUM_THREADS"] for spec in plan.workers] == ["1", "1"]
    plan = plan_for(SERVER, engine={"backend": "simulated"}, layout={"colocated": {"workers": 2}})
    assert [spec.env["OMP_NUM_THREADS"] for spec in plan.workers] == ["32", "32"]
    plan = plan_for(engine={"omp_threads": 3})
    assert [spec.env["OMP_NUM_THREADS"] for spec in plan.workers] == ["3", "3"]


def test_each_group_gets_its_own_neighbouring_gpus() -> None:
    plan = plan_for(SERVER, layout={"prefill": {"workers": 2}, "decode": {"workers": 1, "tp": 2}})
    assert [spec.env["CUDA_VISIBLE_DEVICES"] for spec in plan.workers] == ["0", "1", "2,3"]


def test_too_few_gpus_is_said_before_anything_starts() -> None:
    with pytest.raises(PlanError, match="needs 5 GPUs and 4 are visible"):
        plan_for(SERVER, layout={"prefill": {"workers": 1}, "decode": {"workers": 1, "tp": 4}})


def test_simulated_workers_take_no_gpu() -> None:
    plan = plan_for(SERVER, engine={"backend": "simulated"}, layout={"colocated": {"workers": 9}})
    assert all("CUDA_VISIBLE_DEVICES" not in spec.env for spec in plan.workers)


def test_too_little_memory_is_said_before_anything_starts() -> None:
    with pytest.raises(PlanError, match=r"9 workers need about .* GiB .*--kv-cache-gib"):
        plan_for(Machine(2, 8 * GIB, ()), layout={"colocated": {"workers": 9}})


def test_workers_start_one_by_one_when_memory_is_short() -> None:
    needed = 2 * memory_gib(load().engine)
    assert plan_for(Machine(2, int(needed * 1.1 * GIB), ())).staggered
    assert not plan_for(Machine(2, int(needed * 3 * GIB), ())).staggered


def test_weights_in_16_bits_double_in_float32(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"\0" * (GIB // 64))
    (tmp_path / "config.json").write_text('{"dtype": "bfloat16"}')
    engine = load(flags={"engine": {"model": str(tmp_path)}}).engine
    empty = load(flags={"engine": {"model": str(tmp_path / "absent")}}).engine
    assert memory_gib(engine) - memory_gib(empty) == pytest.approx(2 / 64)


def test_secrets_are_in_the_document_and_not_on_the_command_line() -> None:
    plan = plan_for(gateway={"api_keys": {"acme": "hunter2"}})
    assert b"hunter2" in plan.gateway.document
    assert not any("hunter2" in word for word in (*plan.gateway.argv, *plan.gateway.env.values()))


@pytest.mark.parametrize(
    ("host", "endpoint"),
    [("127.0.0.1", "http://127.0.0.1:8000"), ("0.0.0.0", "http://127.0.0.1:8000"), ("::1", "http://[::1]:8000")],
)
def test_the_endpoint_can_be_pasted(host: str, endpoint: str) -> None:
    assert plan_for(gateway={"host": host}).endpoint == endpoint


def test_ports_found_are_free_and_differ() -> None:
    ports = free_ports("127.0.0.1", 5)
    assert len(set(ports)) == 5
    assert all(port_is_free("127.0.0.1", port) for port in ports)


def test_a_port_in_use_names_its_owner() -> None:
    import os
    import socket

    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert not port_is_free("127.0.0.1", port)
        assert f"pid {os.getpid()}" in owner_of(port)
