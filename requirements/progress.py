"""`pip install … | python requirements/progress.py` says now and then how far it is: of silence nobody knows how long it lasts."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator

EVERY_S = 10.0


def told(said: Iterable[str], clock: Callable[[], float] = time.monotonic) -> Iterator[str]:
    """`said`: what pip writes to its output; its errors go elsewhere."""
    fetched, told_s = 0, clock()
    for line in said:
        if line.startswith(("Collecting ", "Processing ")):
            fetched += 1
            if clock() - told_s >= EVERY_S:
                told_s = clock()
                yield f"  package {fetched}: {line.split()[1]}"
        elif line.startswith("Installing collected packages"):
            yield f"  {fetched} fetched; unpacking them"


def main() -> None:
    for line in told(sys.stdin):
        print(line, flush=True)


if __name__ == "__main__":
    main()
