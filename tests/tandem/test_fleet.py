"""A layout document as a fleet: every worker, on as many GPUs as it needs, with arguments that the command knows."""

from pathlib import Path

import yaml
from typer.testing import CliRunner

from proto.worker import Role
from tandem.cli.app import app
from tandem.config import load
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
    assert f"chat:{JOIN_PORT}" in container["args"]  # the service's name
    ports = {port["port"] for port in by_kind["Service", "chat"]["spec"]["ports"]}
    assert JOIN_PORT in ports
    for one in made:
        spec = one.get("spec", {})
        if "template" in spec:
            labels = spec["template"]["metadata"]["labels"]
            assert spec["selector"]["matchLabels"].items() <= labels.items()
            names = {volume["name"] for volume in spec["template"]["spec"]["volumes"]}
            assert {mount["name"] for mount in spec["template"]["spec"]["containers"][0]["volumeMounts"]} <= names
    gateway = by_kind["Deployment", "chat-gateway"]["spec"]["template"]
    assert by_kind["Service", "chat"]["spec"]["selector"].items() <= gateway["metadata"]["labels"].items()
    assert pod["spec"]["terminationGracePeriodSeconds"] > load(LAYOUT).worker.drain_s


def test_the_commands_in_the_manifests_exist() -> None:
    for one in yaml.safe_load_all(kubernetes(load(LAYOUT), LAYOUT.read_text(), "image")):
        if "template" not in one.get("spec", {}):
            continue
        name, *arguments = one["spec"]["template"]["spec"]["containers"][0]["args"]
        shown = CliRunner().invoke(app, [name, "--help"])
        assert shown.exit_code == 0
        assert all(word in shown.output for word in arguments if word.startswith("--"))
