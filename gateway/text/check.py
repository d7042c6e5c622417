"""python -m gateway.text.check DIRECTORY: whether the gateway could use it, and if not, why.

A process of its own, so that whoever asks need not keep a vocabulary in memory.
"""

import sys
from pathlib import Path

from gateway.text.files import FileTokenizer, TokenizerError


def main() -> None:
    try:
        FileTokenizer(Path(sys.argv[1]))
    except TokenizerError as error:
        raise SystemExit(str(error)) from error


if __name__ == "__main__":
    main()
