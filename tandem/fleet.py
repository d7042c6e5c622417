"""A layout document as processes for a fleet of machines, and as Kubernetes manifests. `deploy/ray` starts the same ones."""

from dataclasses import dataclass
from typing import Any

import yaml

from engine.config import Backend
from proto.worker import Role
from tandem.config import POOL_NAMES, TandemConfig

HTTP_PORT, JOIN_PORT, WORKER_PORT = 8000, 9100, 9200
#: Where a container finds the layout document.
MOUNT = "/etc/tandem"
#: Beyond the drain: the engine's own end, and a margin.
_GRACE_S = 60


@dataclass(frozen=True, slots=True)
class Crew:
    """`count` equal workers, each a TP group that must be on one machine. `gpus` of each; 0 for a simulated engine."""

    name: str
    role: Role
    count: int
    gpus: int

    def arguments(
        self, document: str, join: str, worker_id: str, advertise_host: str, port: int = WORKER_PORT
    ) -> list[str]:
        """Of `tandem`."""
        return [
            "worker", "--role", self.role.value, "--config", document, "--join", join, "--id", worker_id,
            "--host", "0.0.0.0", "--port", str(port), "--advertise-host", advertise_host,
        ]  # fmt: skip


def crews(config: TandemConfig) -> list[Crew]:
    made = []
    for role, name in POOL_NAMES.items():
        engine = config.engine_of(role)
        gpus = 0 if engine.backend is Backend.SIMULATED else engine.tp * engine.pp
        if config.layout.workers(role):
            made.append(Crew(name, role, config.layout.workers(role), gpus))
    return made


def gateway_arguments(document: str) -> list[str]:
    return [
        "gateway", "--config", document, "--host", "0.0.0.0", "--port", str(HTTP_PORT),
        "--grpc-host", "0.0.0.0", "--grpc-port", str(JOIN_PORT),
    ]  # fmt: skip


def kubernetes(config: TandemConfig, document: str, image: str, name: str = "tandem") -> str:
    """YAML: a config map with the document, a gateway with its service, and a stateful set for each pool.

    A pod is one TP group, so the scheduler cannot tear one apart. `image` has the `tandem` command and the model.
    """
    made = [_config_map(name, document), _service(name), _headless(name), _gateway(name, image, config)]
    made += [_pool(name, image, config, crew) for crew in crews(config)]
    return yaml.safe_dump_all(made, sort_keys=False)


def _labels(name: str, component: str) -> dict[str, str]:
    return {"app.kubernetes.io/name": name, "app.kubernetes.io/component": component}


def _config_map(name: str, document: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"{name}-layout"},
        "data": {"layout.yaml": document},
    }


def _service(name: str) -> dict[str, Any]:
    ports = [
        {"name": "http", "port": HTTP_PORT, "targetPort": "http"},
        {"name": "join", "port": JOIN_PORT, "targetPort": "join"},
    ]
    spec = {"selector": _labels(name, "gateway"), "ports": ports}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}


def _headless(name: str) -> dict[str, Any]:
    """Stateful sets must name one."""
    ports = [{"name": "grpc", "port": WORKER_PORT}]
    spec = {"clusterIP": "None", "selector": {"app.kubernetes.io/name": name}, "ports": ports}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": f"{name}-workers"}, "spec": spec}


def _gateway(name: str, image: str, config: TandemConfig) -> dict[str, Any]:
    container = _container("gateway", image, gateway_arguments(f"{MOUNT}/layout.yaml")) | {
        "ports": [{"name": "http", "containerPort": HTTP_PORT}, {"name": "join", "containerPort": JOIN_PORT}],
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": "http"}, "periodSeconds": 5},
        "livenessProbe": {"httpGet": {"path": "/livez", "port": "http"}, "periodSeconds": 10},
    }
    labels = _labels(name, "gateway")
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": f"{name}-gateway", "labels": labels},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": _pod(name, labels, container, config.gateway.drain_s),
        },
    }


def _pool(name: str, image: str, config: TandemConfig, crew: Crew) -> dict[str, Any]:
    arguments = crew.arguments(f"{MOUNT}/layout.yaml", f"{name}:{JOIN_PORT}", "$(POD_NAME)", "$(POD_IP)")
    container = _container("worker", image, arguments) | {
        "ports": [{"name": "grpc", "containerPort": WORKER_PORT}],
        "env": [_field("POD_NAME", "metadata.name"), _field("POD_IP", "status.podIP")],
        # loading a model takes long; until then nobody may call it dead
        "startupProbe": {
            "grpc": {"port": WORKER_PORT},
            "periodSeconds": 10,
            "failureThreshold": max(1, round(config.supervisor.start_timeout_s / 10)),
        },
        "livenessProbe": {"grpc": {"port": WORKER_PORT}, "periodSeconds": 10, "failureThreshold": 6},
    }
    if crew.gpus:
        container["resources"] = {"limits": {"nvidia.com/gpu": crew.gpus}}
    labels = _labels(name, crew.name)
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": f"{name}-{crew.name}", "labels": labels},
        "spec": {
            "serviceName": f"{name}-workers",
            "replicas": crew.count,
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": labels},
            "template": _pod(name, labels, container, config.worker.drain_s),
        },
    }


def _container(name: str, image: str, arguments: list[str]) -> dict[str, Any]:
    mounts = [{"name": "layout", "mountPath": MOUNT, "readOnly": True}, {"name": "shm", "mountPath": "/dev/shm"}]
    return {"name": name, "image": image, "command": ["tandem"], "args": arguments, "volumeMounts": mounts}


def _field(name: str, path: str) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _pod(name: str, labels: dict[str, str], container: dict[str, Any], drain_s: float) -> dict[str, Any]:
    volumes = [
        {"name": "layout", "configMap": {"name": f"{name}-layout"}},
        {"name": "shm", "emptyDir": {"medium": "Memory"}},  # ranks of a TP group talk through it
    ]
    spec = {
        "terminationGracePeriodSeconds": round(drain_s + _GRACE_S),
        "containers": [container],
        "volumes": volumes,
    }
    return {"metadata": {"labels": labels}, "spec": spec}
