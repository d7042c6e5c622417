"""From options to the nouns of an experiment."""

import os
import secrets
import time
from collections.abc import Sequence
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

import orjson

from loadgen.arms.url import ClientSettings
from loadgen.arrivals.process import Arrivals, Kind
from loadgen.cli.options import ClientOptions, JudgeOptions, LoadOptions, OutputOptions
from loadgen.client.target import Target
from loadgen.client.vocabulary import LocalTokenizer
from loadgen.experiment import Experiment
from loadgen.failure import LoadgenError
from loadgen.folder import need_writable
from loadgen.measure.cost import Price
from loadgen.slo.policy import build_policy
from loadgen.slo.presets import AnyPolicy, preset
from loadgen.workload.spec import Catalogue


def experiment(
    load: LoadOptions, judge: JudgeOptions, tokenizer: LocalTokenizer | None, rate: float | None
) -> Experiment:
    catalogue = Catalogue(tokenizer.count_plain if tokenizer else None)
    arrivals = Arrivals(
        load.arrivals,
        rate=1.0 if rate is None else rate,
        burstiness=load.burstiness,
        ramp=load.ramp,
        ramp_from=load.ramp_from,
        time_scale=load.time_scale,
        concurrency=load.concurrency,
    )
    for name, value in (("--requests", load.requests), ("--duration", load.duration)):
        if value is not None and not 0 < value < float("inf"):
            raise LoadgenError(f"{name} must be above 0, not {value:g}")
    if load.requests is None and load.duration is None and load.arrivals is not Kind.REPLAY:
        raise LoadgenError("say how much: --requests N or --duration S")
    return Experiment(
        workload=catalogue.mix(load.workload or ()),
        arrivals=arrivals,
        policy=policy(judge),
        seed=load.seed,
        salt=secrets.randbits(32) if load.salt is None else load.salt,
        count=load.requests,
        duration_s=load.duration,
        sessions=load.sessions,
        storms=tuple(catalogue.storm(text) for text in load.storm or ()),
        price=Price.parse(judge.price) if judge.price else None,
        max_send_lag_ms=judge.max_send_lag,
    )


def policy(judge: JudgeOptions) -> AnyPolicy:
    limits = build_policy(judge.goodput or (), judge.goodput_class or (), judge.goodput_bucket or ())
    if judge.slo and limits.rules:
        raise LoadgenError("SLO: give a preset (--slo) or limits (--goodput…), not both")
    return preset(judge.slo) if judge.slo else limits


def tokenizer(client: ClientOptions) -> LocalTokenizer | None:
    return LocalTokenizer(Path(client.tokenizer)) if client.tokenizer else None


def settings(client: ClientOptions, local: LocalTokenizer | None) -> ClientSettings:
    if client.processes < 0 or client.processes > 4 * (os.cpu_count() or 1):
        raise LoadgenError(f"--processes {client.processes} is not sensible on this machine")
    if not client.timeout > 0:
        raise LoadgenError("--timeout must be above 0")
    return ClientSettings(client.processes, client.timeout, local)


def target(client: ClientOptions, base: str) -> Target:
    headers = dict(_header(text) for text in client.header or ())
    if client.api_key:
        headers.setdefault("Authorization", f"Bearer {client.api_key}")
    return Target(
        base,
        client.model,
        client.api,
        client.prompts,
        client.output,
        headers,
        _body(client.body),
        verify_tls=not client.insecure,
    )


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip() or any(c in text for c in "\r\n"):
        raise LoadgenError(f"--header {text!r} is not of the form 'Name: value'")
    return name.strip(), value.strip()


def _body(text: str) -> dict[str, Any]:
    if not text:
        return {}
    try:
        data = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise LoadgenError(f"--body is not JSON ({error})") from None
    if not isinstance(data, dict):
        raise LoadgenError("--body is not a JSON object")
    return data


def check_gpus(gpus: float | None) -> None:
    if gpus is not None and not 0 < gpus < float("inf"):
        raise LoadgenError(f"--gpus {gpus:g} must be above 0")


def check_output(output: OutputOptions) -> None:
    need_writable(folder(output.out, "results"))


def rates(text: str) -> list[float]:
    """`4` or `1,2,4`, in the order given."""
    found = []
    for part in text.split(","):
        try:
            value = float(part)
        except ValueError:
            raise LoadgenError(f"--rate {part!r} is not a number") from None
        if not 0 < value < float("inf"):
            raise LoadgenError(f"--rate {part} is not a positive number of requests per second")
        found.append(value)
    return found


def facts(texts: Sequence[str] | None) -> dict[str, str]:
    found = {}
    for text in texts or ():
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise LoadgenError(f"--scenario {text!r} is not KEY=VALUE")
        found[key] = value
    return found


def config(command: str, **groups: Any) -> dict[str, Any]:
    """A copy of what was asked, without secrets."""
    made: dict[str, Any] = {"command": command}
    for name, group in groups.items():
        made[name] = asdict(group) if is_dataclass(group) and not isinstance(group, type) else group
    client = made.get("client")
    if client:
        client["api_key"] = "given" if client["api_key"] else ""
        client["header"] = [text.partition(":")[0] for text in client["header"] or ()]
    return made


def folder(out: str, command: str) -> Path:
    return Path(out) if out else Path("loadgen-results") / f"{time.strftime('%Y%m%d-%H%M%S')}-{command}"
