"""Seeds, as commands take them."""

import sys

import pytest

from loadgen.cli import main


@pytest.mark.parametrize(
    "words",
    [
        ("run", "http://127.0.0.1:9", "-w", "fixed", "-r", "1"),
        ("simulate", "sim:--colocated 1", "-w", "fixed", "-r", "1"),
        ("workload", "record", "fixed"),
        ("workload", "sample", "azure-code"),
    ],
)
def test_a_seed_below_0_is_one_message_of_every_command(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["loadgen", *words, "--seed", "-1"])
    with pytest.raises(SystemExit) as ended:
        main()
    error = capsys.readouterr().err
    assert ended.value.code == 2
    assert "--seed" in error
    assert "Traceback" not in error
