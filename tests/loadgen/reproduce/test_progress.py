"""A minute of silence looks like a hang, to a log as well as to a person."""

import time

import pytest

from loadgen.reproduce.command import progress


def test_without_a_terminal_progress_is_told_in_lines(capsys: pytest.CaptureFixture[str]) -> None:
    told = ""
    with progress("model sizes", quiet=False, every_s=0.001) as watch:
        while "model sizes, 0 s" not in told:  # before the first answer there is no number
            time.sleep(0.001)
            told += capsys.readouterr().err
        watch(1, 2)
        while "model sizes: 1 of 2" not in told:
            time.sleep(0.001)
            told += capsys.readouterr().err


def test_who_asks_for_quiet_gets_it(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("model sizes", quiet=True, every_s=0.001) as watch:
        watch(1, 2)
        time.sleep(0.02)
    assert capsys.readouterr().err == ""
