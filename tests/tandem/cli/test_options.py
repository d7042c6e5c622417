"""How `--set` becomes a part of the configuration, and what it says when it cannot."""

import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from tandem.cli.failure import CliError, Exit
from tandem.cli.options import load_config
from tandem.setting import Setting, applied


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (("gateway.host=[",), "is not a YAML value"),
        (("gateway=5", "gateway.port=9000"), "gateway has been set to 5 before"),
        (("engine.model=a", "engine.model.name=b"), "model has been set to 'a' before"),
    ],
)
def test_a_setting_that_cannot_be_read_is_wrong_usage(settings: tuple[str, ...], said: str) -> None:
    with pytest.raises(CliError, match=re.escape(said)) as caught:
        load_config(None, {"gateway": {"host": None}}, settings)
    assert caught.value.status is Exit.USAGE


def test_a_setting_goes_before_flags_that_were_not_given() -> None:
    config = load_config(
        None, {"gateway": None, "layout": {"prefill": None}}, ["gateway.port=9000", "layout.prefill.tp=2"]
    )
    assert (config.gateway.port, config.layout.prefill.tp) == (9000, 2)


FILE = """
gateway:
  drain_s: 7
  api_keys: {acme: one, zeta: two}
  deadlines: {total_s: 900}
  routing: {fluid: {ttft_ms: 1000, tpot_ms: 30, chunk_tokens: 512}}
engine: {backend: simulated, kv_blocks: 100}
layout: {decode: {workers: 1, engine: {kv_blocks: 50}}, prefill: {workers: 1}}
"""


@pytest.mark.parametrize(
    ("setting", "path", "left"),
    [
        ("gateway.drain_s=null", "gateway.drain_s", 30.0),
        ("gateway.drain_s=~", "gateway.drain_s", 30.0),
        ("gateway.deadlines.total_s=null", "gateway.deadlines.total_s", None),
        ("gateway.deadlines=null", "gateway.deadlines.total_s", None),
        ("gateway.routing.fluid.chunk_tokens=null", "gateway.routing.fluid.chunk_tokens", 2048),
        ("gateway.routing.fluid=null", "gateway.routing.fluid", None),
        ("engine.kv_blocks=null", "engine.kv_blocks", None),
        ("engine.backend=null", "engine.backend", "vllm"),
        ("layout.decode.engine.kv_blocks=null", "layout.decode.engine", {}),
        ("worker.tls.cert_file=null", "worker.tls", None),
    ],
)
def test_null_takes_back_what_the_file_says(setting: str, path: str, left: Any, tmp_path: Path) -> None:
    """It was dropped without a word, as a flag that was not given is."""
    file = tmp_path / "layout.yaml"
    file.write_text(FILE)
    value: Any = load_config(file, {}, [setting])
    for part in path.split("."):
        value = getattr(value, part)
    assert value == left


def test_null_takes_back_flags_and_environment_and_one_key_of_a_map(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "layout.yaml"
    file.write_text(FILE)
    monkeypatch.setenv("TANDEM_GATEWAY__HOST", "0.0.0.0")
    sets = ["gateway.host=null", "gateway.port=null", "gateway.api_keys.acme=null"]
    gateway = load_config(file, {"gateway": {"port": 9000}}, sets).gateway
    assert (gateway.host, gateway.port, list(gateway.api_keys)) == ("127.0.0.1", 8000, ["zeta"])


def test_settings_count_in_the_order_they_are_given() -> None:
    flags = {"gateway": {"port": 9000, "drain_s": 5}}
    after = load_config(None, flags, ["gateway=null", "gateway.port=9100"]).gateway
    before = load_config(None, flags, ["gateway.port=9100", "gateway=null"]).gateway
    assert (after.port, after.drain_s, before.port) == (9100, 30.0, 8000)


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("gateway.prot=null", "gateway.prot: unknown key; did you mean port?"),
        ("gateway.host.name=null", "gateway.host: "),
        ("gatway=null", "gatway: unknown key"),
    ],
)
def test_null_hides_no_key_that_does_not_exist(setting: str, said: str) -> None:
    with pytest.raises(CliError, match=re.escape(said)) as caught:
        load_config(None, {}, [setting])
    assert caught.value.status is Exit.CONFIG


class Nullable(BaseModel):
    limit: int | None = 5


def test_null_is_a_value_where_a_key_takes_it_and_has_another_default() -> None:
    assert applied({"limit": 7}, Setting(("limit",), None), Nullable) == {"limit": None}
    assert applied({"limit": 7}, Setting(("limit",), 8), Nullable) == {"limit": 8}
