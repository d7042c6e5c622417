"""A layout document as a fleet: every worker, on as many GPUs as it needs, with arguments that the command knows."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from proto.worker import Role
from tandem.cli import options
from tandem.cli.app import app
from tandem.cli.failure import CliError, Exit
from tandem.config import TandemConfig, load
from tandem.fleet import JOIN_PORT, Crew, crews, kubernetes

ROOT = Path(__file__).parents[2]
LAYOUT = ROOT / "deploy/layout.yaml"


def test_every_pool_of_the_document_is_a_crew() -> None:
    assert crews(load(LAYOUT)) == [Crew("prefill", Role.PREFILL, 1, 1), Crew("decode", Role.DECODE, 1, 2)]


def test_a_simulated_fleet_asks_for_no_gpus(tmp_path: Path) -> None:
    path = tmp_path / "layout.yaml"
    path.write_text("engine: {backend: simulated}\nlayout: {colocated: {workers: 3, tp: 2}}\n")
    assert crews(load(path)) == [Crew("colocated", Role.BOTH, 3, 0)]


def test_the_manifests_hang_together() -> None:
    result = CliRunner().invoke(app, ["manifest", str(LAYOUT), "--image", "example/tandem:1", "--name", "chat"])
    assert result.exit_code == 0
    made = list(yaml.safe_load_all(result.output))
    by_kind = {(one["kind"], one["metadata"]["name"]): one for one in made}
    document = by_kind["ConfigMap", "chat-layout"]["data"]["layout.yaml"]
    assert document == LAYOUT.read_text()
    decode = by_kind["StatefulSet", "chat-decode"]["spec"]
    assert decode["replicas"] == 1
    pod = decode["template"]
    container = pod["spec"]["containers"][0]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": 2}
    for one in made:
        spec = one.get("spec", {})
        if "template" in spec:
            labels = spec["template"]["metadata"]["labels"]
            assert spec["selector"]["matchLabels"].items() <= labels.items()
            names = {volume["name"] for volume in spec["template"]["spec"]["volumes"]}
            assert {mount["name"] for mount in spec["template"]["spec"]["containers"][0]["volumeMounts"]} <= names
    gateway = by_kind["StatefulSet", "chat-gateway"]["spec"]["template"]
    assert by_kind["Service", "chat"]["spec"]["selector"].items() <= gateway["metadata"]["labels"].items()
    assert pod["spec"]["terminationGracePeriodSeconds"] > load(LAYOUT).worker.drain_s


def test_the_document_can_be_read_and_edited_in_its_config_map() -> None:
    """It was one quoted text of escapes."""
    document = "engine:  \n  backend: simulated  # für alle\nlayout: {colocated: {workers: 1}}"
    made = kubernetes(load(LAYOUT), document, "image")
    lines = ["engine:", "  backend: simulated  # für alle", "layout: {colocated: {workers: 1}}"]
    assert "  layout.yaml: |\n" + "".join(f"    {line}\n" for line in lines) + "---\n" in made


def test_a_toml_document_is_yaml_where_pods_read_it(tmp_path: Path) -> None:
    file = tmp_path / "layout.toml"
    file.write_text('[engine]\nbackend = "simulated"\n[gateway.api_keys]\nx = "s3cret"\n')
    result = CliRunner().invoke(app, ["manifest", str(file), "--image", "example/tandem:1"])
    assert "are in the config map as they are" in result.stderr
    document = next(yaml.safe_load_all(result.stdout))["data"]["layout.yaml"]
    assert yaml.safe_load(document)["engine"] == {"backend": "simulated"}


@pytest.mark.parametrize(
    "words",
    [
        ("--image", " "),
        ("--image", "i", "--name", ""),
        ("--image", "i", "--name", "Has Space"),
        ("--image", "i", "--name", "a" * 41),
        ("--image", "i", "--gateways", "99999999"),
    ],
)
def test_what_no_cluster_would_take_is_wrong_usage(words: tuple[str, ...]) -> None:
    result = CliRunner().invoke(app, ["manifest", str(LAYOUT), *words])
    status = result.exception.status if isinstance(result.exception, CliError) else result.exit_code
    assert status == Exit.USAGE


def manifests(gateways: int = 1) -> dict[tuple[str, str], Any]:
    """By kind and name."""
    made = yaml.safe_load_all(kubernetes(load(LAYOUT), LAYOUT.read_text(), "image", "chat", gateways))
    return {(one["kind"], one["metadata"]["name"]): one for one in made}


def test_workers_find_every_gateway_also_while_none_is_ready() -> None:
    """No gateway is ready before workers have joined, so they may not have to wait until one is."""
    by_kind = manifests(gateways=3)
    gateways = by_kind["StatefulSet", "chat-gateway"]["spec"]
    service = by_kind["Service", gateways["serviceName"]]["spec"]
    assert service["publishNotReadyAddresses"] is True
    assert service["clusterIP"] == "None"
    assert service["selector"].items() <= gateways["template"]["metadata"]["labels"].items()
    assert gateways["replicas"] == 3
    wanted = [f"chat-gateway-{number}.{gateways['serviceName']}:{JOIN_PORT}" for number in range(3)]
    for pool in ("chat-prefill", "chat-decode"):
        args = by_kind["StatefulSet", pool]["spec"]["template"]["spec"]["containers"][0]["args"]
        assert [args[at + 1] for at, word in enumerate(args) if word == "--join"] == wanted


def test_a_gateway_leaves_the_service_before_it_refuses_and_may_drain_to_its_end() -> None:
    spec = manifests()["StatefulSet", "chat-gateway"]["spec"]["template"]["spec"]
    name, seconds = spec["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
    assert name == "sleep"
    assert spec["terminationGracePeriodSeconds"] > float(seconds) + load(LAYOUT).gateway.drain_s


def test_of_each_kind_one_pod_at_a_time_may_be_evicted() -> None:
    by_kind = manifests()
    for name in ("chat-gateway", "chat-prefill", "chat-decode"):
        budget, kept = by_kind["PodDisruptionBudget", name]["spec"], by_kind["StatefulSet", name]["spec"]
        assert budget["selector"] == kept["selector"]
        assert budget["maxUnavailable"] == 1


def test_the_probes_ask_for_what_the_gateway_serves() -> None:
    container = manifests()["StatefulSet", "chat-gateway"]["spec"]["template"]["spec"]["containers"][0]
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert container["livenessProbe"]["httpGet"]["path"] == "/livez"  # 200 while it drains


def test_a_planned_layout_without_a_model_makes_no_manifests(tmp_path: Path) -> None:
    path = tmp_path / "layout.yaml"
    path.write_text("layout: {colocated: {workers: 1, engine: {profile: 'h200-sxm/qwen3-32b?seqs=256'}}}\n")
    result = CliRunner().invoke(app, ["manifest", str(path), "--image", "image"])
    assert isinstance(result.exception, CliError)
    assert result.exception.status == Exit.CONFIG
    assert "the layout is for h200-sxm/qwen3-32b (engine.profile) and names no model; add to" in str(result.exception)
    path.write_text(path.read_text() + "engine: {model: /m}\n")
    assert CliRunner().invoke(app, ["manifest", str(path), "--image", "image"]).exit_code == 0


def test_the_commands_in_the_manifests_exist() -> None:
    for one in yaml.safe_load_all(kubernetes(load(LAYOUT), LAYOUT.read_text(), "image")):
        if "template" not in one.get("spec", {}):
            continue
        name, *arguments = one["spec"]["template"]["spec"]["containers"][0]["args"]
        shown = CliRunner().invoke(app, [name, "--help"])
        assert shown.exit_code == 0
        assert all(word in shown.output for word in arguments if word.startswith("--"))


def affinity(config: TandemConfig) -> dict[str, Any]:
    made = [one for one in yaml.safe_load_all(kubernetes(config, "", "image", "chat")) if one["kind"] == "StatefulSet"]
    return {one["metadata"]["name"]: one["spec"]["template"]["spec"].get("affinity") for one in made}


def test_pools_that_hand_kv_over_prefer_to_be_near_each_other_where_the_layout_says_so(tmp_path: Path) -> None:
    path = tmp_path / "layout.yaml"
    path.write_text("layout: {prefill: {workers: 2}, decode: {workers: 1}, near: topology.kubernetes.io/zone}\n")
    found = affinity(load(path))
    assert found["chat-gateway"] is None
    (term,) = found["chat-prefill"]["podAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert term["podAffinityTerm"] == {
        "labelSelector": {
            "matchLabels": {"app.kubernetes.io/name": "chat"},
            "matchExpressions": [{"key": "app.kubernetes.io/component", "operator": "In", "values": ["decode"]}],
        },
        "topologyKey": "topology.kubernetes.io/zone",
    }
    path.write_text("layout: {prefill: {workers: 2}, decode: {workers: 1}}\n")
    assert set(affinity(load(path)).values()) == {None}


def test_colocated_workers_are_pairs_of_each_other_only_where_roles_are_fluid(tmp_path: Path) -> None:
    path = tmp_path / "layout.yaml"
    near = "layout: {colocated: {workers: 2}, near: kubernetes.io/hostname}\n"
    path.write_text(near)
    assert affinity(load(path))["chat-colocated"] is None
    path.write_text(near + "gateway: {routing: {fluid: {ttft_ms: 500, tpot_ms: 50}}}\n")
    assert affinity(load(path))["chat-colocated"] is not None


def test_each_pod_tells_on_which_node_it_is() -> None:
    for one in yaml.safe_load_all(kubernetes(load(LAYOUT), "", "image")):
        if one["kind"] == "StatefulSet" and "gateway" not in one["metadata"]["name"]:
            env = {each["name"]: each["valueFrom"] for each in one["spec"]["template"]["spec"]["containers"][0]["env"]}
            assert env["TANDEM_WORKER__NODE"] == {"fieldRef": {"fieldPath": "spec.nodeName"}}


def test_the_node_of_a_pod_is_its_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TANDEM_WORKER__NODE", "gpu-7")
    assert load(LAYOUT).worker_of(Role.DECODE).node == "gpu-7"


def test_a_launcher_that_knows_the_machine_says_it() -> None:
    """An address is a text and no number, whatever it looks like."""
    words = Crew("decode", Role.DECODE, 1, 1).arguments("d.yaml", ["g:1"], "decode-0", "10.0.0.7", node="10.7")
    at = words.index("--set")
    loaded = options.load_config(None, {}, [words[at + 1]])
    assert loaded.worker.node == "10.7"
