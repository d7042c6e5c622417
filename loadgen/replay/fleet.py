"""The layout to replay on, from the status document of a running gateway."""

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from loadgen.failure import LoadgenError

#: How a simulated worker names its profile.
_PROFILE = re.compile(r"\d+ \((?P<profile>.+)\)")
#: What a gateway's status tells of its settings beside the policy.
_SETTINGS = {"max_queued": "gateway.admission.max_queued", "queue_s": "gateway.deadlines.queue_s"}
_FLAGS = {"prefill": "prefill", "decode": "decode", "both": "colocated"}


def words_of(status: Mapping[str, Any], profile: str = "") -> str:
    """In the words of a simulated layout: how many of each role, of which TP degree. `profile`: hardware and model, which
    workers with real engines do not tell. Raises LoadgenError."""
    workers = [one for one in status.get("workers", ()) if one.get("role") in _FLAGS]
    if not workers:
        raise LoadgenError('the gateway has no worker now; say which layout to replay on: --layout "sim:…"')
    found = profile or _profile(workers)
    parts = [f"--profile {found}"]
    for role, count in Counter(one["role"] for one in workers).items():
        degrees = {int(one.get("tp") or 1) for one in workers if one["role"] == role}
        if len(degrees) > 1:
            raise LoadgenError(f'the {role} workers differ in their TP degree; say the layout: --layout "sim:…"')
        flag = _FLAGS[role]
        parts.append(f"--{flag} {count}")
        parts.append(f"--{flag}-tp {degrees.pop()}")
    limits = status.get("limits") or {}
    for key, setting in _SETTINGS.items():
        if key in limits:
            parts.append(f"--set {setting}={limits[key]}")
    return " ".join(parts)


def _profile(workers: list[Any]) -> str:
    names = {match["profile"] for one in workers if (match := _PROFILE.fullmatch(str(one.get("engine_version"))))}
    if len(names) != 1:
        raise LoadgenError(
            "the workers do not tell which hardware and model to simulate; say --profile, e.g. h200-sxm/qwen3-32b"
        )
    return names.pop()
