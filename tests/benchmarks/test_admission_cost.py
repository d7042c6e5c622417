"""The benchmark of an admission measures what it says."""

from benchmarks.admission_cost import Scene, measure, summary


def test_a_small_fleet_admits_from_the_queue_and_is_timed() -> None:
    scene = Scene(workers=4, running=20, queued=50, seed=1)
    rows = summary(measure(scene, decisions=10))
    assert set(rows) == {"admission", "plan", "turn", "reserve", "place", "tend", "admission / place"}
    assert all(0 < row["p50_us"] <= row["p99_us"] for name, row in rows.items() if "/" not in name)
    assert len(scene.dispatch) == 50  # one admitted, one arrived, in each of 60 turns
    assert len(scene.running) == 20
