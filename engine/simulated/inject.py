"""Gives a running simulated engine another fault script: `python -m engine.simulated.inject HOST:PORT FILE`."""

import asyncio
import sys
from pathlib import Path

from engine.simulated.channel import PeerChannel


async def inject(host: str, port: int, script: str, timeout_s: float = 5.0) -> str:
    """Empty when the engine took the script, else why it did not."""
    channel = PeerChannel(host, port, lambda message: None)
    try:
        answer = await channel.call(timeout_s, op="faults", script=script)
    except (OSError, TimeoutError) as error:
        return f"no answer from {host}:{port}: {error}"
    finally:
        await channel.close()
    return "" if answer.get("ok") else str(answer.get("error"))


def main(arguments: list[str]) -> int:
    if len(arguments) != 2 or ":" not in arguments[0]:
        print(__doc__, file=sys.stderr)
        return 2
    host, _, port = arguments[0].rpartition(":")
    problem = asyncio.run(inject(host, int(port), Path(arguments[1]).read_text()))
    if problem:
        print(problem, file=sys.stderr)
    return 1 if problem else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
