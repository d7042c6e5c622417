"""What the never-worse experiment keeps of its runs."""

from pathlib import Path

from benchmarks.never_worse.store import Seen, Store, policy_version


def test_what_was_seen_is_known_again(tmp_path: Path) -> None:
    store, seen = Store(tmp_path / "runs.jsonl"), Seen(60, 3, cut=False, handed=2)
    assert store.find("a 7") is None
    store.keep("a 7", Seen(60, 1, cut=True, handed=0))
    store.keep("a 7", seen)  # run again, and whole
    assert store.find("a 7") == seen
    again = Store(tmp_path / "runs.jsonl")
    assert again.find("a 7") == seen
    assert len(again) == 1


def test_without_a_path_it_is_kept_in_memory() -> None:
    store, seen = Store(), Seen(60, 3, cut=False, handed=2)
    store.keep("a", seen)
    assert store.find("a") == seen


def test_another_policy_is_another_version(tmp_path: Path) -> None:
    folder = tmp_path / "gateway" / "policy" / "roles"
    folder.mkdir(parents=True)
    (folder / "knobs.py").write_text("SHARE = 0.9\n")
    before = policy_version(tmp_path)
    assert policy_version(tmp_path) == before
    (folder / "knobs.py").write_text("SHARE = 0.8\n")
    assert policy_version(tmp_path) != before
