"""Admission: who waits for KV, what each decode worker is going to hold, and who may join it. Pure (docs/admission.md)."""

from gateway.policy.admission.book import Forecast, KvBook
from gateway.policy.admission.queue import RETRY_AFTER_MAX_S, RETRY_AFTER_MIN_S, DrainRate, Entry, FifoQueue
from gateway.policy.admission.risk import Budget, Outlook
from gateway.policy.admission.rows import Candidate
from gateway.policy.admission.rules import (
    AdmissionRule,
    Anything,
    Decision,
    ErrorBudget,
    Oracle,
    PastFuture,
    PerRequest,
    ReserveLimit,
    Verdict,
    mean_rule,
    quantile_rule,
)

__all__ = [
    "RETRY_AFTER_MAX_S",
    "RETRY_AFTER_MIN_S",
    "AdmissionRule",
    "Anything",
    "Budget",
    "Candidate",
    "Decision",
    "DrainRate",
    "Entry",
    "ErrorBudget",
    "FifoQueue",
    "Forecast",
    "KvBook",
    "Oracle",
    "Outlook",
    "PastFuture",
    "PerRequest",
    "ReserveLimit",
    "Verdict",
    "mean_rule",
    "quantile_rule",
]
