"""Workers that say where they stand: KV is handed over inside a node while both nodes are as good otherwise (R-35)."""

from gateway.cluster.states import PairState, WorkerStatus
from proto.worker import Role
from tests.gateway.fleet import fleet, intent, prompt, until

PLACES = {"p0": "n1", "p1": "n2", "d0": "n2", "d1": "n1"}


async def test_hand_offs_stay_on_their_node() -> None:
    async with fleet(()) as one:
        for name, node in PLACES.items():
            role = Role.PREFILL if name.startswith("p") else Role.DECODE
            await one.add(name, role, place={"node": node, "rack": "A", "nvlink_domain": node})
        for name in PLACES:
            await one.status(name, WorkerStatus.READY)
        await until(lambda: all(pair.state is PairState.USABLE for pair in one.cluster.snapshot().pairs))
        apart = {(pair.prefill_worker, pair.decode_worker): pair.distance for pair in one.cluster.snapshot().pairs}
        assert apart == {("p0", "d0"): "rack", ("p0", "d1"): "domain", ("p1", "d0"): "domain", ("p1", "d1"): "rack"}
        assert {worker.worker_id: worker.node for worker in one.cluster.snapshot().workers} == PLACES
        for seed in range(6):
            await one.ask(intent(prompt(40, seed)))
        ways = {(handoff.prefill_worker, handoff.decode_worker) for handoff in one.watcher.handoffs}
        assert len(one.watcher.handoffs) == 6
        assert ways <= {("p0", "d1"), ("p1", "d0")}
