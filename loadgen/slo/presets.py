"""Limits from the literature. The versions differ, so each preset names the version it was taken from."""

from loadgen.failure import LoadgenError
from loadgen.slo.constraint import Constraint
from loadgen.slo.policy import Policy, Rule
from loadgen.slo.relative import Basis, Condition, RelativePolicy

AnyPolicy = Policy | RelativePolicy

_DISTSERVE_V3 = "DistServe, OSDI'24, arXiv 2401.09670v3"
_DISTSERVE_V1 = "DistServe, arXiv 2401.09670v1"
_DISTSERVE_ARTIFACT = "DistServe artifact, plotting script"
_FAST25 = "Mooncake, FAST'25"

#: name -> (TTFT s, TPOT s, source); a request attains only if both are met.
_DISTSERVE: dict[str, tuple[float, float, str]] = {
    "distserve-chatbot-13b": (0.25, 0.10, _DISTSERVE_V3),
    "distserve-chatbot-66b": (2.5, 0.15, _DISTSERVE_V3),
    "distserve-chatbot-175b": (4.0, 0.20, _DISTSERVE_V3),
    "distserve-code-66b": (0.125, 0.20, _DISTSERVE_V3),
    "distserve-summarisation-66b": (15.0, 0.15, _DISTSERVE_V3),
    "distserve-v1-chatbot-13b": (0.2, 0.1, _DISTSERVE_V1),
    "distserve-v1-chatbot-66b": (0.4, 0.1, _DISTSERVE_V1),
    "distserve-artifact-chatbot-66b": (0.4, 0.1, _DISTSERVE_ARTIFACT),
}

#: name -> (TTFT s, TBT s, metric that stands for TBT, source)
_MOONCAKE: dict[str, tuple[float, float, str, str]] = {
    "mooncake-real-trace": (30.0, 0.1, "tpot", "Mooncake, arXiv 2407.00079, real trace"),
    "mooncake-fast25-100": (30.0, 0.1, "itl_top10", f"{_FAST25}, main, TBT 100 ms"),
    "mooncake-fast25-200": (30.0, 0.2, "itl_top10", f"{_FAST25}, main, TBT 200 ms"),
    "mooncake-fast25-300": (30.0, 0.3, "itl_top10", f"{_FAST25}, main, TBT 300 ms"),
    "mooncake-fast25-pd-ratio": (10.0, 0.1, "itl_top10", f"{_FAST25}, P/D ratio test"),
}


def _absolute(name: str, ttft_s: float, metric: str, tbt_s: float, source: str) -> Policy:
    limits = (Constraint("ttft", ttft_s * 1e3), Constraint(metric, tbt_s * 1e3))
    return Policy((Rule(limits),), name, source)


def _conditions(metric: str, p50: float, p90: float, p99: float) -> tuple[Condition, ...]:
    return (Condition(metric, 50, p50), Condition(metric, 90, p90), Condition(metric, 99, p99))


def _build() -> dict[str, AnyPolicy]:
    presets: dict[str, AnyPolicy] = {}
    for name, (ttft, tpot, source) in _DISTSERVE.items():
        presets[name] = _absolute(name, ttft, "tpot", tpot, source)
    for name, (ttft, tbt, metric, source) in _MOONCAKE.items():
        presets[name] = _absolute(name, ttft, metric, tbt, source)
    presets["splitwise"] = RelativePolicy(
        _conditions("ttft", 2, 3, 6) + _conditions("tpot", 1.25, 1.5, 5) + _conditions("e2el", 1.25, 1.5, 5),
        Basis.SLOWDOWN,
        "splitwise",
        "Splitwise, ISCA'24, arXiv 2311.18677, Table VI",
    )
    presets["mooncake-lowest-load"] = RelativePolicy(
        (Condition("ttft", 90, 10), Condition("tpot", 90, 5)),
        Basis.LOWEST_LOAD,
        "mooncake-lowest-load",
        "Mooncake, arXiv 2407.00079, general",
    )
    return presets


PRESETS = _build()


def preset(name: str) -> AnyPolicy:
    if name not in PRESETS:
        raise LoadgenError(f"SLO: unknown preset {name!r}; known are {', '.join(sorted(PRESETS))}")
    return PRESETS[name]
