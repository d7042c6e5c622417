"""Every row has tests of its kind, every test was shown able to fail, and the page says so."""

import pytest

from tests.conformance.catalogue import ROOT, Row, rows
from tests.conformance.catalogue import tests as catalogued
from tests.conformance.document import page
from tests.conformance.mutants import MUTATIONS
from tests.conformance.results import Results


@pytest.mark.parametrize("row", rows(), ids=lambda row: str(row.id))
def test_every_row_has_tests_of_its_kind(row: Row) -> None:
    found = catalogued().get(row.number, [])
    if "F" in row.kind or "L" in row.kind:
        assert [test for test in found if not test.engine]
    if "E" in row.kind:
        assert [test for test in found if test.engine]
    assert [mutation for mutation in MUTATIONS if mutation.id == row.id], "add one to mutants/"


def test_the_mutations_still_fit_the_product() -> None:
    objections = [objection for mutation in MUTATIONS if (objection := mutation.objection())]
    assert not objections, "say in mutants/ what the line has become, and run the mutation again"


def test_every_mutation_turned_its_test_red() -> None:
    shown = Results.load().mutations
    assert [m.key for m in MUTATIONS if not shown.get(m.key)] == [], "run `python -m tests.conformance.mutations`"


def test_the_page_is_current() -> None:
    assert (ROOT / "docs/conformance.md").read_text() == page(Results.load()), "run `make docs`"
