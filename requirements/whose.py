"""Says if this environment runs the code of another checkout: several may share one, and the last that installs wins."""

import json
import sys
from importlib import metadata
from pathlib import Path
from urllib.parse import unquote, urlsplit

HERE = Path(__file__).resolve().parents[1]


def owner() -> Path | None:
    """The checkout that is installed here; None without one."""
    try:
        text = metadata.distribution("tandem-serve").read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        return None
    return Path(unquote(urlsplit(json.loads(text)["url"]).path)).resolve() if text else None


def main() -> None:
    other = owner()
    if other is not None and other != HERE:
        print(
            f"warning: {sys.prefix} is also the environment of {other}, and runs its code. Installing here makes it run "
            f"the code of {HERE}, for both. To have one of your own: make VENV=DIR, with a new directory",
            file=sys.stderr,
        )


if __name__ == "__main__":
    main()
