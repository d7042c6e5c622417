"""Outlives the supervisor by a moment, to stop what it left behind.

Reads "+PGID" and "-PGID" lines. At end of input the supervisor is gone, even by kill -9: every process group
still on the list is stopped. Run as a plain file with `python -I -S`, so that it starts in milliseconds and
imports nothing but the standard library.
"""

import contextlib
import os
import signal
import sys
import time

GRACE_S = 5.0
POLL_S = 0.05


def main() -> None:
    for harmless in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(harmless, signal.SIG_IGN)
    groups: set[int] = set()
    for line in sys.stdin:
        change, group = line[0], int(line[1:])
        if change == "+":
            groups.add(group)
        else:
            groups.discard(group)
    stop(groups)


def stop(groups: set[int]) -> None:
    """Asks every group to end, waits a moment, then insists."""
    deadline = time.monotonic() + GRACE_S
    alive = {group for group in groups if send(group, signal.SIGTERM)}
    while alive and time.monotonic() < deadline:
        time.sleep(POLL_S)
        alive = {group for group in alive if send(group, 0)}
    for group in alive:
        send(group, signal.SIGKILL)


def send(group: int, number: int) -> bool:
    """Signals a process group; False when nobody is left in it."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
        return True
    return False


if __name__ == "__main__":
    main()
