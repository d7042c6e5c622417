from pathlib import Path

import pytest

from tandem.supervisor.log_line import last_told


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("2026-01-01 10:00:00,000 loading the model", "loading the model"),
        ('{"event": "ready"}', ""),
        ("2026-01-01 10:00:00,000 INFO tandem.worker.join: no gateway yet", ""),
        ("[W1130 20:01:02.345678901 utils.cpp:68] Warning: NUMA binding: Using MEMBIND policy", ""),
        ("[I1130 20:01:02.345678901 x.cpp:1] on its way", ""),
        ("[E1130 20:01:02.345678901 x.cpp:1] no memory", "[E1130 20:01:02.345678901 x.cpp:1] no memory"),
    ],
)
def test_a_start_shows_news_and_not_what_libraries_warn_of(tmp_path: Path, line: str, told: str) -> None:
    log = tmp_path / "worker.log"
    log.write_text(f"before\n{line}\n")
    assert last_told(log) == told
