"""What the pages tell people to type exists, and what they point to is there."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from loadgen.cli.app import app as loadgen_app
from loadgen.simulate.words import parse_layout
from tandem.cli.app import app as tandem_app

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
APPS = {"tandem": typer.main.get_command(tandem_app), "loadgen": typer.main.get_command(loadgen_app)}
_COMMAND = re.compile(r"(?:\| `| *)(?:\.venv/bin/)?((?:tandem|loadgen) [^\n`|]*)")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_CODE = re.compile(r"`[^`\n]*`")


def lines(page: Path) -> Iterator[str]:
    """Command lines in code and in the first column of tables, those that go on with a backslash in one piece."""
    text = re.sub(r"\\\n\s*", " ", page.read_text(encoding="utf-8"))
    fenced = False
    for line in text.replace(r"\|", ",").splitlines():
        fenced ^= line.startswith("```")
        if (fenced or line.startswith(("    ", "| `"))) and (found := _COMMAND.match(line)):
            yield found[1].partition(" #")[0].partition(" …")[0]


def unknown(line: str) -> list[str]:
    """Words of a command line that there is no command or option for."""
    name, *words = shlex.split(line)
    command: Any = APPS[name]
    while words and (below := getattr(command, "commands", None)):
        if (word := words.pop(0)) not in below:
            return [word] if word.isidentifier() and word.islower() else []
        command = below[word]
    options = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    options |= {"--help", "-h"}
    given = [word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word) and " " not in word]
    inside = [part for word in words if (part := re.sub(r"^\w+=", "", word)).startswith("up:")]
    return [each for each in given if each not in options] + [
        each for part in inside for each in unknown("tandem up " + part.removeprefix("up:"))
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_commands_of_a_page_exist(page: Path) -> None:
    assert {line: found for line in lines(page) if (found := unknown(line))} == {}


def test_commands_are_looked_at() -> None:
    assert len(list(lines(ROOT / "README.md"))) > 10
    assert unknown("tandem up --prefil 1") == ["--prefil"]
    assert unknown("tandem stauts") == ["stauts"]
    assert unknown("loadgen compare a='up:--no-such 1'") == ["--no-such"]


def anchors(page: Path) -> set[str]:
    heads = re.findall(r"^#+\s+(.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    plain = [re.sub(r"[^\w\- ]", "", head.lower()) for head in heads]
    return {head.strip().replace(" ", "-") for head in plain}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    dead = []
    for link in _LINK.findall(_CODE.sub("", page.read_text(encoding="utf-8"))):
        path, _, place = link.partition("#")
        if "://" in link:
            continue
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (place and target.suffix == ".md" and place not in anchors(target)):
            dead.append(link)
    assert dead == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_simulated_layouts_of_a_page_are_understood(page: Path) -> None:
    text = re.sub(r"\\\n\s*", " ", page.read_text(encoding="utf-8"))
    for words in re.findall(r"""['"]sim:(--[^'"\n]*)['"]""", text):
        parse_layout(words, 600.0)
