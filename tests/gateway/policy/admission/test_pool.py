"""R-11, R-12: the pool's use and its price add up."""

from gateway.policy.admission.pool import PoolAccount


def test_draws_are_counted_once_each_and_with_their_time() -> None:
    pool = PoolAccount(100)
    for now_s, used in ((0.0, 0), (1.0, 30), (3.0, 50), (4.0, 0), (6.0, 10), (7.0, 0)):
        pool.observe(used, now_s)
    report = pool.report()
    assert (report.draws, report.drawn_s, report.peak_used_blocks, report.used_blocks) == (2, 4.0, 50, 0)
    assert report.idle_block_s == 100 * 1 + 70 * 2 + 50 * 1 + 100 * 2 + 90 * 1
    assert report.observed_s == 7.0


def test_only_requests_that_the_pool_alone_kept_out_are_its_price() -> None:
    pool = PoolAccount(100)
    pool.refused("near", -60.0, 500.0)
    pool.refused("near", -40.0, 500.0)
    pool.refused("far", -160.0, 500.0)
    assert (pool.report().delayed_requests, pool.report().delayed_tokens) == (1, 500.0)


def test_what_is_remembered_of_requests_is_bounded() -> None:
    pool = PoolAccount(1)
    for number in range(10_000):
        pool.refused(str(number), -0.5, 1.0)
    assert pool.report().delayed_requests == 10_000
    assert len(pool._delayed) < 5_000
