"""Which transport a pair has, how UCX is told, and what a machine says it has."""

from pathlib import Path

import pytest

from proto.worker import Topology
from transfer.links import (
    LinkError,
    Transport,
    available,
    choose,
    cpu_list,
    local_topology,
    numa_nodes,
    nvlink_active,
    offered,
    poll_delay_us,
    rdma_devices,
    ucx_settings,
)

_CPU = ("shm", "tcp")
_GPU = ("nvlink", "rdma", "shm", "tcp")


def _cpu(host: str, *transports: str) -> Topology:
    return Topology(host, transports=transports or _CPU)


def _gpu(host: str, domain: str, *transports: str) -> Topology:
    return Topology(host, nvlink_domain=domain, device="cuda", transports=transports or _GPU)


@pytest.mark.parametrize(
    ("reader", "writer", "expected"),
    [
        (_cpu("a"), _cpu("a"), Transport.SHM),
        (_cpu("a"), _cpu("b"), Transport.TCP),
        (_cpu(""), _cpu(""), Transport.TCP),  # nobody knows whether it is one host
        (_cpu("a", "tcp"), _cpu("a"), Transport.TCP),
        (_cpu("a", "rdma", "shm", "tcp"), _cpu("a", "rdma", "shm", "tcp"), Transport.SHM),
        (_cpu("a", "rdma", "shm", "tcp"), _cpu("b", "rdma", "shm", "tcp"), Transport.RDMA),
        (_gpu("a", "n1"), _gpu("a", "n1"), Transport.NVLINK),
        (_gpu("a", "rack"), _gpu("b", "rack"), Transport.NVLINK),  # a multi-host NVLink domain
        (_gpu("a", "n1"), _gpu("b", "n2"), Transport.RDMA),
        (_gpu("a", "n1"), _gpu("a", "n2"), Transport.RDMA),
        (_gpu("a", "", "shm", "tcp"), _gpu("a", "", "shm", "tcp"), Transport.SHM),
        (_gpu("a", "", "nvlink", "tcp"), _gpu("a", "", "nvlink", "tcp"), Transport.TCP),  # unknown domains never match
        (_gpu("a", "n1"), _cpu("a"), Transport.SHM),
    ],
)
def test_the_fastest_transport_of_both_ends_is_chosen(reader: Topology, writer: Topology, expected: Transport) -> None:
    assert choose(reader, writer) is expected
    assert choose(writer, reader) is expected


def test_a_wish_is_granted_or_refused_with_the_choices() -> None:
    assert choose(_cpu("a"), _cpu("a"), Transport.TCP) is Transport.TCP
    with pytest.raises(LinkError, match="no rdma between a and b: they share tcp"):
        choose(_cpu("a"), _cpu("b"), Transport.RDMA)


def test_tcp_is_always_left() -> None:
    assert available(_cpu("a", "shm"), _gpu("b", "n1"))[-1] is Transport.TCP


@pytest.mark.parametrize(
    ("topology", "wanted", "layers"),
    [
        (_cpu("a"), None, "cma,shm,tcp,self"),
        (_cpu("a", "tcp"), None, "tcp,self"),
        (_cpu("a"), Transport.TCP, "tcp,self"),
        (_cpu("a", "rdma", "tcp"), None, None),
        (_gpu("a", "n1"), None, None),
        (_gpu("a", "n1"), Transport.RDMA, "cuda_copy,rc,dc,ud,tcp,self"),
        (_gpu("a", "n1"), Transport.NVLINK, "cuda_ipc,cuda_copy,shm,cma,tcp,self"),
    ],
)
def test_ucx_settings(topology: Topology, wanted: Transport | None, layers: str | None) -> None:
    assert ucx_settings(topology, wanted).get("UCX_TLS") == layers


@pytest.mark.parametrize(
    ("ucx_tls", "left"),
    [
        ("", ("nvlink", "rdma", "shm", "tcp")),
        ("all", ("nvlink", "rdma", "shm", "tcp")),
        ("^cma", ("nvlink", "rdma", "shm", "tcp")),
        ("tcp,self", ("tcp",)),
        ("cuda_copy,rc_mlx5,tcp,self", ("rdma", "tcp")),
        ("cuda_ipc,cuda_copy,shm,cma,tcp,self", ("nvlink", "shm", "tcp")),
        ("cma,self", ("shm",)),
    ],
)
def test_a_worker_offers_what_its_ucx_may_use(ucx_tls: str, left: tuple[str, ...]) -> None:
    topology = Topology("a", nvlink_domain="n1", device="cuda", transports=("nvlink", "rdma", "shm", "tcp"))
    assert offered(topology, ucx_tls).transports == left


@pytest.mark.parametrize("end", [0, 1], ids=["reader", "writer"])
@pytest.mark.parametrize("wanted", list(Transport))
def test_a_pair_is_labelled_by_what_both_ends_are_set_to(wanted: Transport, end: int) -> None:
    """Only one end insists, so the other's setting alone would promise a link that does not exist."""
    machine = Topology("a", nvlink_domain="n1", device="cuda", transports=("nvlink", "rdma", "shm", "tcp"))
    free, bound = offered(machine, ""), offered(machine, ucx_settings(machine, wanted)["UCX_TLS"])
    ends = (bound, free) if end == 0 else (free, bound)
    assert choose(*ends) is wanted


def test_only_rdma_is_worth_a_spinning_core() -> None:
    assert poll_delay_us(_cpu("a")) == 1000
    assert poll_delay_us(_gpu("a", "n1")) == 0


def _sysfs(root: Path) -> Path:
    for device, state in (("mlx5_0", "4: ACTIVE"), ("mlx5_1", "1: DOWN")):
        port = root / "class" / "infiniband" / device / "ports" / "1"
        port.mkdir(parents=True)
        (port / "state").write_text(f"{state}\n")
    for node, cpus in (("node0", "0-3,8"), ("node1", "4-7"), ("node10", "9")):
        directory = root / "devices" / "system" / "node" / node
        directory.mkdir(parents=True)
        (directory / "cpulist").write_text(f"{cpus}\n")
    return root


def test_detection_reads_what_the_kernel_says(tmp_path: Path) -> None:
    sysfs = _sysfs(tmp_path)
    assert rdma_devices(sysfs) == ("mlx5_0",)
    assert numa_nodes(sysfs, {8}) == ("0",)
    assert numa_nodes(sysfs, {9, 5}) == ("1", "10")
    topology = local_topology("cpu", sysfs, {"TANDEM_HOST": "h1", "TANDEM_RACK": "r7"})
    assert (topology.host, topology.rack, topology.device) == ("h1", "r7", "cpu")
    assert topology.transports == ("rdma", "shm", "tcp")


def test_a_bare_machine_has_memory_and_tcp(tmp_path: Path) -> None:
    topology = local_topology("cpu", tmp_path, {})
    assert topology.host
    assert topology.transports == ("shm", "tcp")
    assert topology.nvlink_domain == ""


def test_an_nvlink_domain_may_be_stated(tmp_path: Path) -> None:
    topology = local_topology("cuda", tmp_path, {"TANDEM_NVLINK_DOMAIN": "cluster-3"})
    assert topology.nvlink_domain == "cluster-3"
    assert topology.transports[0] == "nvlink"


def test_cpu_lists() -> None:
    assert cpu_list("0-2,5\n") == {0, 1, 2, 5}
    assert cpu_list("\n") == set()


def test_nvlink_status_counts_only_links_that_carry_traffic() -> None:
    assert nvlink_active("GPU 0: H200\n\t Link 0: 26.562 GB/s\n")
    assert not nvlink_active("GPU 0: H200\n\t Link 0: <inactive>\n")
    assert not nvlink_active("")
