"""How `--set` becomes a part of the configuration, and what it says when it cannot."""

import re

import pytest

from tandem.cli.failure import CliError, Exit
from tandem.cli.options import load_config


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (("gateway.host=[",), "is not a YAML value"),
        (("gateway=5", "gateway.port=9000"), "gateway has been set to 5 before"),
        (("engine.model=a", "engine.model.name=b"), "model has been set to 'a' before"),
    ],
)
def test_a_setting_that_cannot_be_read_is_wrong_usage(settings: tuple[str, ...], said: str) -> None:
    with pytest.raises(CliError, match=re.escape(said)) as caught:
        load_config(None, {"gateway": {"host": None}}, settings)
    assert caught.value.status is Exit.USAGE


def test_a_setting_goes_before_flags_that_were_not_given() -> None:
    config = load_config(
        None, {"gateway": None, "layout": {"prefill": None}}, ["gateway.port=9000", "layout.prefill.tp=2"]
    )
    assert (config.gateway.port, config.layout.prefill.tp) == (9000, 2)
