"""Every figure of a run against arithmetic done by hand."""

import math

import numpy as np
import pytest

from loadgen.failure import LoadgenError
from loadgen.measure.cost import Price, cost_of
from loadgen.measure.distribution import Distribution
from loadgen.measure.interval import mean_interval, paired_difference, share_over_time, t95, wilson
from loadgen.measure.measures import Measures, Setting, measure, peak_concurrency
from loadgen.measure.saturation import detect
from loadgen.result import Ending, Result
from loadgen.slo.policy import build_policy
from tests.loadgen.build import result


def _setting(goodput: str = "ttft:200 tpot:20", **more: float) -> Setting:
    return Setting(build_policy([goodput]), window_s=more.pop("window_s", 10.0), **more)  # type: ignore[arg-type]  # keywords of several types in one dict


def _mixed() -> list[Result]:
    return [
        result(0, at=0, first=0.1, gaps=[0.01] * 9),
        result(1, at=1, first=0.3, gaps=[0.01] * 9),
        result(2, at=2, first=0.1, gaps=[0.05] * 9),
        result(3, at=3, first=None, ending=Ending.REJECTED, reason="queue_full", end_after=0.01),
        result(4, at=4, first=None, ending=Ending.FAILED, reason="no_tokens", end_after=0.5),
        result(5, at=5, first=0.1, ending=Ending.TIMED_OUT, reason="timeout", end_after=5),
        result(6, at=6, first=None, ending=Ending.ABANDONED, reason="patience", end_after=1),
        result(7, at=7, first=0.15),
        result(8, at=8, first=0.1, ending=Ending.CANCELLED, end_after=2),
    ]


def test_the_five_classes_add_up_to_offered() -> None:
    m = measure(_mixed(), _setting())
    assert m.overall.counts == {"good": 2, "slo_missed": 2, "rejected": 1, "failed": 1, "timed_out": 2}
    assert sum(m.overall.counts.values()) == m.overall.offered == 8
    assert m.cancelled == 1
    assert m.overall.abandoned == 1
    assert m.overall.attainment == 2 / 8
    assert m.overall.reasons == {"queue_full": 1, "no_tokens": 1, "timeout": 1, "patience": 1}


def test_goodput_rates_are_over_duration_and_gpus() -> None:
    m = measure(_mixed(), _setting(gpus=4))
    assert m.duration_s == pytest.approx(10)
    assert m.goodput.requests_ps == pytest.approx(0.2)
    assert m.goodput.output_tokens_ps == pytest.approx(1.1)
    assert m.goodput.requests_ps_per_gpu == pytest.approx(0.05)
    assert m.goodput.output_tokens_ps_per_gpu == pytest.approx(0.275)
    assert m.load.offered_rps == pytest.approx(0.8)
    assert m.load.completed_rps == pytest.approx(0.4)


def test_b68_requests_without_tokens_stay_out_of_latency_and_in_the_denominator() -> None:
    m = measure(_mixed(), _setting())
    ttft = m.overall.latency_ms["ttft"]
    assert ttft.count == 4
    assert ttft.p50 == pytest.approx(125)
    assert ttft.min == pytest.approx(100)


def test_one_token_outputs_are_counted_where_tpot_was_skipped() -> None:
    m = measure(_mixed(), _setting())
    assert m.not_applicable == 1
    assert m.overall.latency_ms["tpot"].count == 3


def test_percentiles_are_interpolated_linearly() -> None:
    m = measure([result(i, at=i, first=0.001 * (i + 1)) for i in range(100)], _setting())
    ttft = m.overall.latency_ms["ttft"]
    assert (ttft.mean, ttft.p50, ttft.p90, ttft.p99) == pytest.approx((50.5, 50.5, 90.1, 99.01))
    assert ttft.std == pytest.approx(math.sqrt((100**2 - 1) / 12))


def test_groups_by_class_tenant_and_bucket() -> None:
    run = [
        result(0, klass="chat", tenant="a", gaps=[0.01]),
        result(1, klass="chat", tenant="b", gaps=[0.05]),
        result(2, klass="reason", tenant="a", gaps=[0.01] * 600),
        result(3, klass="reason", tenant="a", first=None, ending=Ending.REJECTED, planned_output=20000),
    ]
    m = measure(run, _setting())
    assert {k: (g.offered, g.counts["good"]) for k, g in m.by_class.items()} == {"chat": (2, 1), "reason": (2, 1)}
    assert {k: g.offered for k, g in m.by_tenant.items()} == {"a": 3, "b": 1}
    assert list(m.by_bucket) == ["0-500", "501-1000", ">10000"]
    assert m.by_bucket[">10000"].counts["rejected"] == 1


def test_send_lag_beyond_the_bound_makes_the_run_invalid() -> None:
    late = [result(i, at=i, lag=0.02) for i in range(10)]
    m = measure(late, _setting())
    assert m.load.send_lag_ms.p99 == pytest.approx(20)
    (reason,) = m.invalid
    assert reason.startswith("send lag p99 ")
    assert reason.endswith("(--max-send-lag MS)")  # what to do about it
    assert not measure(late, _setting(max_send_lag_ms=25)).invalid


def test_latency_counts_from_the_intended_time_whatever_the_lag() -> None:
    m = measure([result(0, at=1, first=0.5, lag=0.4)], _setting("ttft:200"))
    assert m.overall.latency_ms["ttft"].p50 == pytest.approx(500)
    assert m.overall.counts["slo_missed"] == 1


def test_interrupted_run_is_invalid() -> None:
    setting = Setting(build_policy([]), window_s=1, complete=False)
    assert measure([result(0)], setting).invalid == ("interrupted before the schedule was done",)


def test_peak_concurrency_counts_overlap() -> None:
    assert peak_concurrency([result(i, at=i * 0.1, end_after=0.35) for i in range(10)]) == 4


def test_cost_per_thousand_good_requests() -> None:
    cost = cost_of(8, 1800, completed=900, good=500, price=Price.parse("2.5"))
    assert cost.gpu_hours == 4
    assert cost.completed_per_gpu_hour == 225
    assert cost.good_per_gpu_hour == 125
    assert cost.per_1000_good == pytest.approx(20)
    assert cost_of(8, 1800, 900, 0, Price.parse("h200")).per_1000_good is None
    with pytest.raises(LoadgenError, match="neither a number"):
        Price.parse("cheap")


def _poisson_run(rate: float, service_s: float, seed: int = 1, count: int = 800) -> list[Result]:
    """One server, first come first served: stable when rate * service < 1."""
    rng = np.random.default_rng(seed)
    free, run = 0.0, []
    for i, at in enumerate(np.cumsum(rng.exponential(1 / rate, count))):
        start = max(free, float(at))
        free = start + float(rng.exponential(service_s))
        run.append(result(i, at=float(at), first=start - float(at) + 1e-4, end_after=free - float(at)))
    return run


@pytest.mark.parametrize("seed", range(5))
def test_overload_is_seen_and_stable_load_is_not(seed: int) -> None:
    assert detect(_poisson_run(1.4, 1.0, seed)).saturated
    assert not detect(_poisson_run(0.5, 1.0, seed)).saturated


def test_saturation_is_not_judged_on_a_handful() -> None:
    assert not detect(_poisson_run(1.4, 1.0, count=20)).judged


def test_wilson_interval_matches_known_values() -> None:
    interval = wilson(90, 100)
    assert (interval.low, interval.high) == pytest.approx((0.8256, 0.9448), abs=1e-4)
    assert (wilson(0, 0).low, wilson(0, 0).high) == (0, 1)
    assert wilson(10, 10).high == pytest.approx(1)


def test_clustered_misses_widen_the_interval() -> None:
    mixed = [i % 10 != 0 for i in range(1000)]
    clustered = [not 400 <= i < 500 for i in range(1000)]
    plain, burst = share_over_time(mixed), share_over_time(clustered)
    assert burst.high - burst.low > 2 * (plain.high - plain.low)


def test_repetitions_give_a_t_interval() -> None:
    interval = mean_interval([10, 12, 14])
    assert (interval.low, interval.high) == pytest.approx(
        (12 - 4.303 * 2 / math.sqrt(3), 12 + 4.303 * 2 / math.sqrt(3))
    )
    assert mean_interval([5]).high == math.inf
    assert t95(17) == pytest.approx(2.131)
    assert paired_difference([3, 4, 5], [1, 2, 3]).low == pytest.approx(2)


def test_measures_of_nothing_are_empty_not_an_error() -> None:
    m: Measures = measure([], _setting())
    assert m.overall.offered == 0
    assert m.overall.attainment is None
    assert m.goodput.requests_ps == 0
    assert "no request was sent" in m.invalid


@pytest.mark.parametrize("counts", [[1], [3], [1, 1], [5, 1, 7, 2], [1000, 1, 1, 1]])
def test_a_weighed_distribution_is_that_of_its_values_written_out(counts: list[int]) -> None:
    values = np.array([float(n * n) for n in range(1, len(counts) + 1)])
    written = np.repeat(values, counts)
    weighed = Distribution.weighed(values, np.array(counts), float(written.sum()))
    assert weighed.as_dict() == pytest.approx(Distribution.of(written).as_dict())
