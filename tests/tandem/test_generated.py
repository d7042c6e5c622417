"""What is generated and committed must be what would be generated now."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tandem.reference import reference

ROOT = Path(__file__).parents[2]
PROTO = ROOT / "proto/tandem/v1"
LOCKS = ROOT / "requirements"


def pins(name: str) -> dict[str, str]:
    lines = (LOCKS / name).read_text().splitlines()
    return dict(line.split("==") for line in lines if line and not line.startswith("#"))


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_the_configuration_reference_is_current() -> None:
    assert (ROOT / "docs/configuration.md").read_text() == reference(), "run `make docs`"


def test_defaults_are_written_as_a_document_has_them() -> None:
    assert re.findall(r"<\w+\.\w+[^|]*", reference()) == []


def test_the_grpc_stubs_are_current(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I.", f"--python_out={tmp_path}", f"--pyi_out={tmp_path}"]
    files = [str(file.relative_to(ROOT)) for file in sorted(PROTO.glob("*.proto"))]
    subprocess.run([*command, f"--grpc_python_out={tmp_path}", *files], cwd=ROOT, check=True)
    made = {file.name: file.read_text() for file in (tmp_path / "proto/tandem/v1").iterdir()}
    committed = {file.name: file.read_text() for file in PROTO.glob("*_pb2*") if file.suffix in (".py", ".pyi")}
    assert made == committed, "run `make proto`"


def test_every_dependency_is_pinned_in_its_lock_file() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    base = pins("base.txt")
    wanted = {"base.txt": project["dependencies"]}
    wanted |= {f"{extra}.txt": lines for extra, lines in project["optional-dependencies"].items()}
    for file, lines in wanted.items():
        if not (LOCKS / file).exists():
            continue
        locked = base | pins(file)
        for line in lines:
            name, _, version = line.partition("==")
            name = normal(re.match(r"[\w.-]+", name)[0])  # type: ignore[index]  # every line begins with a name
            assert name in locked, f"{file} lacks {name}; run `make lock`"
            assert not version or locked[name].split("+")[0] == version, f"{file}: {name}; run `make lock`"


@pytest.mark.parametrize("engine", ["cpu.txt", "cuda.txt"])
def test_lock_files_that_are_installed_together_agree(engine: str) -> None:
    base, dev, own = pins("base.txt"), pins("dev.txt"), pins(engine)
    assert not base.keys() & (own.keys() | dev.keys())
    assert {name: (own[name], dev[name]) for name in own.keys() & dev.keys() if own[name] != dev[name]} == {}


def test_the_cpu_engine_leaves_out_what_breaks_beside_it() -> None:
    assert not {"torchvision", "torchaudio", "torchcodec"} & pins("cpu.txt").keys()


def test_no_registry_is_named() -> None:
    """pip is told by the machine where packages come from."""
    hosts = re.compile(r"\b(?:[\w-]+\.)*(?:pypi|pythonhosted|anaconda)\.\w+|download\.pytorch\.\w+", re.IGNORECASE)
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    here = Path(__file__).relative_to(ROOT).as_posix()
    texts = [ROOT / name for name in listed if name != here and not name.endswith((".gz", ".png"))]
    found = {file.name: match[0] for file in texts if file.is_file() and (match := hosts.search(file.read_text()))}
    assert not found
