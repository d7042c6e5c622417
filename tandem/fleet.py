"""A layout document as processes for a fleet of machines, and as Kubernetes manifests. `deploy/ray` starts the same ones."""

from collections.abc import Sequence
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
#: A gateway refuses new requests from SIGTERM on; before that every node must have heard that the pod is leaving.
_UNROUTED_S = 10


@dataclass(frozen=True, slots=True)
class Crew:
    """`count` equal workers, each a TP group that must be on one machine. `gpus` of each; 0 for a simulated engine."""

    name: str
    role: Role
    count: int
    gpus: int

    def arguments(
        self,
        document: str,
        joins: Sequence[str],
        worker_id: str,
        advertise_host: str,
        port: int = WORKER_PORT,
        node: str = "",
    ) -> list[str]:
        """Of `tandem`. `node`: where it will be, if that is known beforehand."""
        return [
            "worker", "--role", self.role.value, "--config", document, *[word for join in joins for word in ("--join", join)],
            "--id", worker_id, "--host", "0.0.0.0", "--port", str(port), "--advertise-host", advertise_host,
            *(["--set", f"worker.node='{node}'"] if node else []),
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


def kubernetes(config: TandemConfig, document: str, image: str, name: str = "tandem", gateways: int = 1) -> str:
    """YAML: a config map with the document, gateways with their service, a stateful set for each pool, and how many
    pods of each may be evicted at a time.

    A pod is one TP group, so the scheduler cannot tear one apart. `image` has the `tandem` command and the model.
    """
    made = [_config_map(name, _plain(document)), _service(name), _gateways(name), _workers(name)]
    made += [_gateway(name, image, config, gateways), _budget(name, "gateway")]
    for crew in crews(config):
        made += [_pool(name, image, config, crew, gateways), _budget(name, crew.name)]
    return yaml.dump_all(made, Dumper=_Dumper, sort_keys=False, allow_unicode=True)


class _Dumper(yaml.SafeDumper):
    """Texts of several lines as blocks: an operator reads and edits the layout in its config map."""


def _text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def _plain(document: str) -> str:
    """A block can have no blanks at the ends of its lines, and a document does not need them."""
    return "".join(f"{line.rstrip()}\n" for line in document.splitlines())


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
    """For clients: gateways that can serve."""
    spec = {
        "selector": _labels(name, "gateway"),
        "ports": [{"name": "http", "port": HTTP_PORT, "targetPort": "http"}],
    }
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}


def _gateways(name: str) -> dict[str, Any]:
    """For workers, which join each gateway by its pod's name, also one that cannot serve: until they have joined none can."""
    spec = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": _labels(name, "gateway"),
        "ports": [{"name": "join", "port": JOIN_PORT}],
    }
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": f"{name}-gateways"}, "spec": spec}


def _workers(name: str) -> dict[str, Any]:
    """Stateful sets must name one."""
    spec = {
        "clusterIP": "None",
        "selector": {"app.kubernetes.io/name": name},
        "ports": [{"name": "grpc", "port": WORKER_PORT}],
    }
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": f"{name}-workers"}, "spec": spec}


def _budget(name: str, component: str) -> dict[str, Any]:
    """Of each kind one pod at a time, so that a node can always be emptied and a fleet never loses a whole pool to it."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": f"{name}-{component}"},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": _labels(name, component)}},
    }


def _gateway(name: str, image: str, config: TandemConfig, gateways: int) -> dict[str, Any]:
    container = _container("gateway", image, gateway_arguments(f"{MOUNT}/layout.yaml")) | {
        "ports": [{"name": "http", "containerPort": HTTP_PORT}, {"name": "join", "containerPort": JOIN_PORT}],
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": "http"}, "periodSeconds": 5, "timeoutSeconds": 3},
        "livenessProbe": {"httpGet": {"path": "/livez", "port": "http"}, "periodSeconds": 10, "timeoutSeconds": 5},
        "lifecycle": {"preStop": {"exec": {"command": ["sleep", str(_UNROUTED_S)]}}},
    }
    labels = _labels(name, "gateway")
    pod = _pod(name, labels, container, config.gateway.drain_s + _UNROUTED_S)
    pod["metadata"]["annotations"] = {
        "prometheus.io/scrape": "true",
        "prometheus.io/port": str(HTTP_PORT),
        "prometheus.io/path": "/metrics",
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": f"{name}-gateway", "labels": labels},
        "spec": {
            "serviceName": f"{name}-gateways",
            "replicas": gateways,
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": labels},
            "template": pod,
        },
    }


def _pool(name: str, image: str, config: TandemConfig, crew: Crew, gateways: int) -> dict[str, Any]:
    joins = [f"{name}-gateway-{number}.{name}-gateways:{JOIN_PORT}" for number in range(gateways)]
    arguments = crew.arguments(f"{MOUNT}/layout.yaml", joins, "$(POD_NAME)", "$(POD_IP)")
    env = [
        _field("POD_NAME", "metadata.name"),
        _field("POD_IP", "status.podIP"),
        # each worker says on which machine it is, which its pod's own host name does not
        _field("TANDEM_WORKER__NODE", "spec.nodeName"),
    ]
    container = _container("worker", image, arguments) | {
        "ports": [{"name": "grpc", "containerPort": WORKER_PORT}],
        "env": env,
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
            "template": _near(_pod(name, labels, container, config.worker.drain_s), name, config, crew),
        },
    }


def _near(pod: dict[str, Any], name: str, config: TandemConfig, crew: Crew) -> dict[str, Any]:
    """Prefers nodes near the pools it exchanges KV with; a preference, so that a full place keeps nobody from starting."""
    fluid = config.gateway.routing.fluid is not None  # then workers of one pool are pairs, too
    others = [each.name for each in crews(config) if each.role is not crew.role or fluid]
    if not config.layout.near or not others:
        return pod
    selector = {
        "matchLabels": {"app.kubernetes.io/name": name},
        "matchExpressions": [{"key": "app.kubernetes.io/component", "operator": "In", "values": others}],
    }
    term = {"weight": 100, "podAffinityTerm": {"labelSelector": selector, "topologyKey": config.layout.near}}
    pod["spec"]["affinity"] = {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}
    return pod


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
