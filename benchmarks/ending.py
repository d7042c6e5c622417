"""How a benchmark that has started something is ended."""

import signal
from types import FrameType


def sigterm_as_ctrl_c() -> None:
    """From now on SIGTERM ends the process as Ctrl-C does: what it has started is stopped first."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell's background job, which would ignore SIGTERM, too
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> None:
    signal.raise_signal(signal.SIGINT)
