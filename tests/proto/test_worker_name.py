"""Names of workers need no quoting in paths, labels and tables."""

from urllib.parse import quote

import pytest

from proto.worker_name import MOST_CHARACTERS, name_fault


@pytest.mark.parametrize("name", ["w", "d0", "node-7.rack_2:9001", "a@b=c+d", "7", "x" * MOST_CHARACTERS])
def test_plain_names_are_taken_and_need_no_quoting_in_a_path(name: str) -> None:
    assert not name_fault(name)
    assert quote(name, safe=":@=+") == name


@pytest.mark.parametrize(
    "name",
    ["", "a/b", "a b", " a", "a\n", "Köln", "..", "-x", 'a"b', "a?b", "a#b", "a%2Fb", "x" * (MOST_CHARACTERS + 1)],
)
def test_other_names_are_refused_with_what_is_allowed(name: str) -> None:
    assert f"{MOST_CHARACTERS} at most" in name_fault(name)
    assert len(name_fault(name)) < 2 * MOST_CHARACTERS + 200
