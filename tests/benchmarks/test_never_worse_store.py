"""What the never-worse experiment keeps of its runs."""

from pathlib import Path

from benchmarks.never_worse.store import Seen, Store, policy_version


def never() -> Seen:
    raise AssertionError("measured again")


def test_what_was_seen_is_not_measured_again(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs.jsonl")
    assert store.find("a 7", lambda: Seen(True, 3)) == Seen(True, 3)
    assert store.find("a 7", never) == Seen(True, 3)
    again = Store(tmp_path / "runs.jsonl")
    assert again.find("a 7", never) == Seen(True, 3)
    assert len(again) == 1


def test_without_a_path_it_is_kept_in_memory() -> None:
    store = Store()
    store.find("a", lambda: Seen(False, 0))
    assert store.find("a", never) == Seen(False, 0)


def test_another_policy_is_another_version(tmp_path: Path) -> None:
    folder = tmp_path / "gateway" / "policy" / "roles"
    folder.mkdir(parents=True)
    (folder / "knobs.py").write_text("SHARE = 0.9\n")
    before = policy_version(tmp_path)
    assert policy_version(tmp_path) == before
    (folder / "knobs.py").write_text("SHARE = 0.8\n")
    assert policy_version(tmp_path) != before
