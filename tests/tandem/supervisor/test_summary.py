import json
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from tandem.client import snapshot_of
from tandem.supervisor.summary import curl, summary
from tandem.units import rate, size
from tests.tandem.cli.fake_gateway import STATUS
from tests.tandem.supervisor.cluster import plan_of


def test_the_summary_tells_endpoint_workers_and_the_transport_of_each_pair(tmp_path: Path) -> None:
    text = "\n".join(summary(plan_of(tmp_path), snapshot_of(STATUS), "toy", False, 12.3))
    assert "ready after 12 s, disaggregated, at http://127.0.0.1:8000" in text
    assert "vllm 0.32.0 on cpu, TP 1, KV for 12,800 tokens" in text
    assert "prefill-0 → decode-0: usable, KV over shm, 3.5 GB/s measured" in text
    assert "curl -N http://127.0.0.1:8000/v1/chat/completions" in text


def test_the_commands_that_it_names_reach_this_cluster_on_any_port(tmp_path: Path) -> None:
    """`tandem status` as it was printed asked port 8000, and a cluster in the background was to be ended by Ctrl-C."""
    text = "\n".join(summary(replace(plan_of(tmp_path), port=9100), snapshot_of(STATUS), "toy", False, 1.0))
    assert "`tandem status --endpoint http://127.0.0.1:9100`" in text
    assert "`tandem down --port 9100`" in text


@pytest.mark.parametrize("needs_key", [False, True])
def test_the_curl_line_is_one_that_a_shell_understands(needs_key: bool) -> None:
    words = shlex.split(curl("http://127.0.0.1:8000", "it's a model", needs_key))
    body = json.loads(words[words.index("-d") + 1])
    assert body["stream"] is True
    assert body["model"] == "it's a model"
    assert any(word.startswith("Authorization") for word in words) is needs_key


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (999, "999 B"), (1500, "1.5 KB"), (3.5e9, "3.5 GB"), (2e15, "2000.0 TB")]
)
def test_sizes_are_decimal(count: float, text: str) -> None:
    assert size(count) == text
    assert rate(count) == f"{text}/s"


def test_an_older_gateways_document_reads_with_empty_fields() -> None:
    snapshot = snapshot_of({"workers": [{"worker_id": "w"}]})
    assert snapshot.workers[0].worker_id == "w"
    assert snapshot.workers[0].state_age_s is None
    assert snapshot.pairs == ()


def test_a_large_fleet_is_counted_instead_of_listed(tmp_path: Path) -> None:
    document = {"workers": STATUS["workers"] * 20, "pairs": STATUS["pairs"] * 30}
    text = "\n".join(summary(plan_of(tmp_path), snapshot_of(document), "toy", False, 1.0))
    assert "20 workers     decode" in text
    assert "30 pairs: usable, KV over shm" in text
    assert len(text.splitlines()) < 20
