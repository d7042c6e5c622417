"""Starts a layout document on a Ray cluster: python deploy/ray/launch.py layout.yaml

Each worker is one actor in a placement group of its own, STRICT_PACK, so that a TP group stays on one machine; Ray chooses
the machine and sets CUDA_VISIBLE_DEVICES. The document must lie under the same path on every machine, and so must the
environment with the `tandem` command. Ctrl-C ends the fleet. Not run on a cluster yet; see docs/deployment.md.
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path

try:
    import ray
    from ray.util.placement_group import placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy
except ModuleNotFoundError as error:
    sys.exit(f"error: no module {error.name}; tandem does not bring Ray along: pip install ray")

from tandem.config import load
from tandem.fleet import JOIN_PORT, crews, gateway_arguments
from tandem.process import log_to_stderr


@ray.remote(max_restarts=-1, max_concurrency=2)
class Member:
    """One `tandem` process. Ends with its actor."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def address(self) -> str:
        return str(ray.util.get_node_ip_address())

    def run(self, arguments: list[str]) -> int:
        """Until the process ends; its status."""
        self._process = subprocess.Popen([sys.executable, "-m", "tandem", *arguments])
        return self._process.wait()

    def stop(self, patience_s: float) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(patience_s)
            except subprocess.TimeoutExpired:
                self._process.kill()


def member(gpus: int) -> "ray.actor.ActorHandle":
    """On a machine that has all of its GPUs free; waits for one."""
    bundle = {"CPU": 1.0} | ({"GPU": float(gpus)} if gpus else {})
    group = placement_group([bundle], strategy="STRICT_PACK")
    ray.get(group.ready())
    return Member.options(
        num_cpus=1, num_gpus=gpus, scheduling_strategy=PlacementGroupSchedulingStrategy(placement_group=group)
    ).remote()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("document", type=Path)
    parser.add_argument("--address", default="auto", help="of the Ray cluster")
    options = parser.parse_args()
    document = str(options.document.resolve())
    config = load(Path(document))
    log_to_stderr()
    ray.init(address=options.address)
    gateway = member(0)
    join = f"{ray.get(gateway.address.remote())}:{JOIN_PORT}"
    members, running = [gateway], [gateway.run.remote(gateway_arguments(document))]
    for crew in crews(config):
        for number in range(crew.count):
            one = member(crew.gpus)
            host = ray.get(one.address.remote())
            members.append(one)
            # port 0: several workers may share a machine, which is called by its address
            arguments = crew.arguments(document, [join], f"{crew.name}-{number}", host, port=0, node=host)
            running.append(one.run.remote(arguments))
    print(f"gateway on {join.partition(':')[0]}, {len(members) - 1} workers; Ctrl-C stops them", flush=True)
    try:
        ended, _ = ray.wait(running, num_returns=1)
        print(f"a process ended with status {ray.get(ended[0])}; stopping", flush=True)
    except KeyboardInterrupt:
        print("stopping", flush=True)
    finally:
        patience_s = max(config.gateway.drain_s, config.worker.drain_s) + config.supervisor.stop_timeout_s
        ray.get([one.stop.remote(patience_s) for one in members])
        time.sleep(0.1)


if __name__ == "__main__":
    main()
