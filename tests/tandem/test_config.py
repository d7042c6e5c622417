import json
from pathlib import Path

import pytest
from pydantic import SecretStr

from engine.base import WorkerIdentity
from engine.config import Backend
from engine.simulated.setup import set_up
from proto.worker import Role
from tandem.config import TandemConfig, load, plain
from tandem.config_error import ConfigError
from tandem.worker.config import WorkerConfig


def write(tmp_path: Path, text: str, name: str = "layout.yaml") -> Path:
    file = tmp_path / name
    file.write_text(text)
    return file


def problems(file: Path | None = None, flags: dict[str, object] | None = None) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        load(file, flags)
    return caught.value.problems


def test_without_anything_one_prefill_and_one_decode_worker() -> None:
    layout = load().layout
    assert [layout.workers(role) for role in (Role.PREFILL, Role.DECODE, Role.BOTH)] == [1, 1, 0]


def test_a_colocated_pool_alone_has_no_others() -> None:
    layout = load(flags={"layout": {"colocated": {"workers": 2}}}).layout
    assert [layout.workers(role) for role in (Role.PREFILL, Role.DECODE, Role.BOTH)] == [0, 0, 2]


def test_flags_beat_environment_and_environment_beats_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(tmp_path, "gateway: {port: 1, host: filehost, drain_s: 7}")
    monkeypatch.setenv("TANDEM_GATEWAY__PORT", "2")
    monkeypatch.setenv("TANDEM_GATEWAY__HOST", "envhost")
    gateway = load(file, {"gateway": {"port": 3, "host": None}}).gateway
    assert (gateway.port, gateway.host, gateway.drain_s) == (3, "envhost", 7)


def test_toml_says_the_same_as_yaml(tmp_path: Path) -> None:
    toml = write(tmp_path, "[layout.decode]\nworkers = 2\ntp = 3\n[layout.prefill]\nworkers = 1", "layout.toml")
    yaml = write(tmp_path, "layout: {decode: {workers: 2, tp: 3}, prefill: {workers: 1}}")
    assert load(toml) == load(yaml)


def test_an_unknown_key_names_its_path_its_source_and_the_nearest_key(tmp_path: Path) -> None:
    file = write(tmp_path, "gateway: {routing: {lease_margins: 3}}")
    assert problems(file) == (
        f"gateway.routing.lease_margins: unknown key; did you mean lease_margin_s? (set by {file})",
    )


def test_a_value_in_the_place_of_a_section_is_told_the_keys(tmp_path: Path) -> None:
    file = tmp_path / "layout.yaml"
    file.write_text("gateway: {routing: {fluid: true}}")
    assert problems(file) == (
        "gateway.routing.fluid: is a section with keys of its own, not True; "
        f"known: chunk_tokens, leaning, tpot_ms, ttft_ms (set by {file})",
    )


def test_every_problem_is_named_at_once(tmp_path: Path) -> None:
    file = write(tmp_path, "gatway: {}\nengine: {tp: zero}\nlayout: {decode: {workers: -1}}")
    named = "\n".join(problems(file))
    assert "gatway: unknown key; did you mean gateway?" in named
    assert "engine.tp:" in named
    assert "layout.decode.workers:" in named


def test_a_misspelt_environment_variable_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TANDEM_GATEWAY__PROT", "1")
    assert problems() == ("gateway.prot: unknown key; did you mean port? (set by environment)",)
    monkeypatch.delenv("TANDEM_GATEWAY__PROT")
    monkeypatch.setenv("TANDEM_GATEWAY_PORT", "1")
    assert problems() == ("environment: TANDEM_GATEWAY_PORT: did you mean TANDEM_GATEWAY__PORT?",)
    monkeypatch.delenv("TANDEM_GATEWAY_PORT")
    monkeypatch.setenv("TANDEM_ENGIN__TP", "1")
    assert problems() == ("environment: TANDEM_ENGIN__TP: no section 'engin'; did you mean engine?",)


def test_variables_of_others_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TANDEM_NIXL_POLL_DELAY_US", "1000")
    monkeypatch.setenv("TANDEM_MODELS_DIR", "/models")
    load()


def test_a_pools_engine_differs_only_where_it_says_so(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        "engine: {backend: simulated, max_num_seqs: 5, kv_cache_gib: 2}\n"
        "layout:\n  prefill: {workers: 1}\n  decode: {workers: 1, tp: 3, engine: {max_num_seqs: 9}}",
    )
    config = load(file)
    decode, prefill = config.engine_of(Role.DECODE), config.engine_of(Role.PREFILL)
    assert (decode.tp, decode.max_num_seqs, decode.kv_cache_gib) == (3, 9, 2)
    assert (prefill.tp, prefill.max_num_seqs, prefill.kv_cache_gib) == (1, 5, 2)
    assert decode.backend is Backend.SIMULATED


def test_a_pools_engine_is_checked_like_the_engine_section(tmp_path: Path) -> None:
    file = write(tmp_path, "layout: {colocated: {workers: 1, engine: {max_num_seq: 3}}}")
    assert problems(file) == ("layout.colocated.engine.max_num_seq: unknown key; did you mean max_num_seqs?",)


@pytest.mark.parametrize("pool", ["prefill", "decode"])
def test_half_a_layout_is_refused(pool: str) -> None:
    [problem] = problems(flags={"layout": {pool: {"workers": 1}}})
    assert "needs at least one" in problem


def test_another_version_of_the_document_is_refused(tmp_path: Path) -> None:
    [problem] = problems(write(tmp_path, "version: 2"))
    assert problem.startswith("version: ")


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("layout.yaml", "a: [", "not valid YAML"),
        ("layout.toml", "a = [", "not valid TOML"),
        ("layout.yaml", "- 1", "must be a mapping"),
    ],
)
def test_a_broken_file_is_a_problem_not_a_traceback(tmp_path: Path, name: str, text: str, said: str) -> None:
    [problem] = problems(write(tmp_path, text, name))
    assert said in problem


def test_a_missing_file_is_a_problem(tmp_path: Path) -> None:
    [problem] = problems(tmp_path / "absent.yaml")
    assert "cannot read" in problem


@pytest.mark.parametrize("keys", [{"acme": 12345678}, 12345678], ids=["no text", "no map"])
def test_a_wrong_secret_is_refused_without_quoting_it(keys: object) -> None:
    (problem,) = problems(flags={"gateway": {"api_keys": keys}})
    assert "gateway.api_keys" in problem
    assert "12345678" not in problem


@pytest.mark.parametrize("key", ["", "  "])
def test_an_empty_key_that_everybody_has_is_refused(key: str) -> None:
    (problem,) = problems(flags={"gateway": {"api_keys": {"acme": "fine", "umbra": key}}})
    assert "the key of umbra is empty" in problem


def test_secrets_are_masked_on_a_screen_and_whole_for_a_child() -> None:
    config = load(flags={"gateway": {"api_keys": {"acme": "hunter2"}}})
    assert config.gateway.api_keys == {"acme": SecretStr("hunter2")}
    assert "hunter2" not in config.model_dump_json()
    assert "hunter2" not in repr(config)
    assert plain(config.gateway)["api_keys"] == {"acme": "hunter2"}


def test_a_document_survives_the_trip_through_plain_data() -> None:
    config = load(flags={"layout": {"colocated": {"workers": 1}}, "gateway": {"api_keys": {"a": "b"}}})
    assert TandemConfig(**plain(config)) == config


def test_a_child_is_told_what_was_set_and_keeps_the_engines_own_defaults() -> None:
    """Else a default tp of 1 would refuse a big model, and a default utilisation hide a profile's."""
    config = load(flags={"engine": {"backend": "simulated", "profile": "h200-sxm/llama-3.1-405b"}})
    own = config.worker_of(Role.DECODE, worker_id="decode-0", engine=config.engine_of(Role.DECODE))
    child = WorkerConfig.model_validate(json.loads(json.dumps(plain(own))))
    assert child == own
    assert child.engine.model_fields_set == {"backend", "profile"}
    assert set_up(child.engine, WorkerIdentity("decode-0", "e", Role.DECODE)).profile.tp > 1


def test_a_worker_whose_name_would_have_to_be_quoted_does_not_start() -> None:
    (problem,) = problems(flags={"worker": {"worker_id": "a/b"}})
    assert problem.startswith("worker.worker_id: ")
    assert "is no name for a worker" in problem


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1: 2", "the key 1 is no text"),
        ("gateway: {policy: {tenants: {yes: {}}}}", "the key yes is no text"),
        ("engine: {}\nlayout: {}\nengine: {}", "the key engine is there twice"),
        ("gateway: {port: 1, port: 2}", "the key port is there twice"),
        ("gateway: " + "[" * 3000, "nested too deeply"),
        ("? [a]\n: b", "is no text"),
    ],
)
def test_a_document_with_keys_that_cannot_be_meant_is_one_line_and_not_half_a_configuration(
    tmp_path: Path, text: str, said: str
) -> None:
    """The last of two equal keys counted without a word; the others were tracebacks."""
    file = write(tmp_path, text)
    (problem,) = problems(file)
    assert said in problem
    assert problem.startswith(f"{file} is not valid YAML: ")


def test_clients_and_workers_cannot_have_one_port(tmp_path: Path) -> None:
    """The gateway died of it with a bad file descriptor."""
    (problem,) = problems(write(tmp_path, "gateway: {port: 9000, grpc_port: 9000}"))
    assert "both 9000" in problem
    assert "gateway" in problem
    (problem,) = problems(write(tmp_path, "gateway: {host: 0.0.0.0, port: 9000, grpc_port: 9000}"))
    assert "both 9000" in problem
    load(write(tmp_path, "gateway: {port: 0, grpc_port: 0}"))
    load(write(tmp_path, "gateway: {host: 10.0.0.1, grpc_host: 10.0.0.2, port: 9000, grpc_port: 9000}"))


def test_a_kv_space_that_no_message_can_hold_is_refused_before_a_worker_tries(tmp_path: Path) -> None:
    (problem,) = problems(write(tmp_path, f"engine: {{kv_blocks: {10**30}}}"))
    assert "engine.kv_blocks" in problem


def test_merged_keys_may_be_said_again(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        "engine: &all {max_num_seqs: 8, tp: 2}\nlayout: {colocated: {workers: 1, engine: {<<: *all, tp: 4}}}\n",
    )
    assert load(file).layout.colocated.engine == {"max_num_seqs": 8, "tp": 4}


def test_a_tp_group_across_nodes_is_refused_unless_it_is_asked_for(tmp_path: Path) -> None:
    """R-35: its ranks would exchange over the network in each layer, and nothing else would say so."""
    wide = "layout: {decode: {workers: 1, tp: 16}, prefill: {workers: 1}%s}"
    (problem,) = problems(write(tmp_path, wide % ""))
    assert "layout.decode: TP16 does not fit a node of 8 GPUs (layout.gpus_per_node)" in problem
    assert "tp_across_nodes" in problem
    for allowed in (", tp_across_nodes: true", ", gpus_per_node: 72"):
        load(write(tmp_path, wide % allowed))
    (problem,) = problems(write(tmp_path, "engine: {tp: 4}\nlayout: {colocated: {workers: 1}, gpus_per_node: 2}"))
    assert "layout.colocated: TP4" in problem
    load(write(tmp_path, "engine: {tp: 2, pp: 8}\nlayout: {colocated: {workers: 1}, gpus_per_node: 2}"))  # stages may


def test_the_place_to_be_near_in_is_a_label(tmp_path: Path) -> None:
    assert load(write(tmp_path, "layout: {near: topology.kubernetes.io/zone}")).layout.near
    (problem,) = problems(write(tmp_path, "layout: {near: 'a rack'}"))
    assert "layout.near" in problem
