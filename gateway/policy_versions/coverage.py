"""What of a policy can be tried out on a share of the requests. Pure.

All requests of a gateway stand in one line, under one set of accounts, and teach one length model. What says how those
work cannot differ from request to request; what is decided for one request alone can.
"""

from dataclasses import dataclass

from gateway.policy_config import ClassPolicy, PolicyConfig
from gateway.policy_versions.document import differences

#: Settings of one request, by the beginning of their path.
_OWN = ("rule", "classes", "early_rejection.", "lengths.headroom")
#: Settings of a class that are not of one request: its share, its budgets, what is done to answers that run.
_SHARED_OF_CLASS = frozenset(ClassPolicy.model_fields) - {"tenants", "efforts", "band", "ttft_s", "queue_s"}


@dataclass(frozen=True, slots=True)
class Coverage:
    """Paths of settings that differ."""

    tried: tuple[str, ...]
    not_tried: tuple[str, ...]


def coverage(in_force: PolicyConfig, canary: PolicyConfig) -> Coverage:
    paths = [each.path for each in differences(in_force, canary)]
    return Coverage(tuple(path for path in paths if _is_own(path)), tuple(path for path in paths if not _is_own(path)))


def _is_own(path: str) -> bool:
    if path.startswith("classes."):
        return path.rpartition(".")[2] not in _SHARED_OF_CLASS
    return path.startswith(_OWN)
