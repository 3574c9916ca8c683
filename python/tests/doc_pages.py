"""Parses the pages of the documentation: blocks of code, links, headings, tables."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TREE = Path(__file__).resolve().parents[2]
PAGES = [*sorted((TREE / "docs").glob("*.md")), TREE / "README.md", TREE / "CONTRIBUTING.md", TREE / "SECURITY.md"]

_FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_MARK = re.compile(r'<!-- test: (.*) -->\n\Z')
_WORD = re.compile(r'(\w+)(?:=(?:"([^"]*)"|(\S+)))?')


@dataclass(frozen=True)
class Block:
    """The content of a fence. ``mark``: the words of ``<!-- test: ... -->`` on the line before it; None without one."""

    page: Path
    line: int
    language: str
    text: str
    mark: dict[str, str] | None

    @property
    def name(self) -> str:
        return f"{self.page.relative_to(TREE)}:{self.line}"


def languages(page: Path) -> Iterator[str]:
    """The language of every fence."""
    for fence in _FENCE.finditer(page.read_text()):
        yield fence[1]


def blocks(language: str) -> Iterator[Block]:
    for page in PAGES:
        text = page.read_text()
        for fence in _FENCE.finditer(text):
            if fence[1] == language:
                before = text[: fence.start()]
                mark = _MARK.search(before)
                words = None
                if mark:
                    words = {one[1]: one[2] or one[3] or "" for one in _WORD.finditer(mark[1])}
                yield Block(page, before.count("\n") + 2, fence[1], fence[2], words)


def without_code(text: str) -> str:
    return re.sub(r"`[^`\n]*`", "", _FENCE.sub("", text))


def anchors(page: Path) -> set[str]:
    """Anchors of the headings, as hosting sites and our own site make them."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.*)$", _FENCE.sub("", page.read_text()), re.MULTILINE):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        number = 0
        while (name := f"{slug}-{number}" if number else slug) in found:
            number += 1
        found.add(name)
    return found


def links(page: Path) -> Iterator[tuple[str, str]]:
    """(file, anchor) of each link within the tree."""
    for target in re.findall(r"\]\(([^)\s]+)\)", without_code(page.read_text())):
        if not re.match(r"[a-z]+:", target):
            file, _, anchor = target.partition("#")
            yield file, anchor


def first_cells(page: Path) -> Iterator[str]:
    """The first cell of every row of every table."""
    for row in re.findall(r"^\| (.*?) \|", page.read_text(), re.MULTILINE):
        yield row
