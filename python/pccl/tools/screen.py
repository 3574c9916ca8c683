"""Lines with colours, printed one below the other, or drawn in place of the last ones."""

from __future__ import annotations

import os
import shutil
import sys
from typing import TextIO

_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
Line = list[tuple[str, str]]  # texts with the name of a style, or ""


def line(*parts: str | tuple[str, str]) -> Line:
    return [part if isinstance(part, tuple) else (part, "") for part in parts]


def printable(text: str) -> str:
    """Text of others, without characters that a terminal would obey."""
    return "".join(character if character.isprintable() else "?" for character in text)


def plain_text(content: Line) -> str:
    return "".join(text for text, _ in content).rstrip()


def age(milliseconds: int) -> str:
    """For example 0.4 s, 12 s, 3 min 5 s, 2 h 10 min, 3 d 4 h."""
    seconds = milliseconds // 1000
    if seconds < 10:
        return f"{milliseconds / 1000:.1f} s"
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60} s"
    if seconds < 86_400:
        return f"{seconds // 3600} h {seconds // 60 % 60} min"
    return f"{seconds // 86_400} d {seconds // 3600 % 24} h"


def rate(bytes_per_second: float) -> str:
    for unit, size in (("GB/s", 1e9), ("MB/s", 1e6), ("kB/s", 1e3)):
        if bytes_per_second >= size:
            return f"{bytes_per_second / size:.3g} {unit}"
    return f"{bytes_per_second:.0f} B/s"


def wants_drawing(stream: TextIO | None, plain: bool) -> bool:
    """``stream``: None if this process was started with a closed standard output."""
    return not plain and stream is not None and stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def drop_output() -> None:
    """For a program that ends because the reader of its output is gone: otherwise Python would complain when it flushes
    the rest."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class Screen:
    """Draws pictures of lines into a terminal, each over the last one. A context manager."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._colours = "NO_COLOR" not in os.environ

    def __enter__(self) -> Screen:
        # Switch to the alternate screen; the shell's screen comes back at the end. Hide the cursor, which would jump.
        self._stream.write("\x1b[?1049h\x1b[?25l")
        self._stream.flush()
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.write("\x1b[?25h\x1b[?1049l")
        self._stream.flush()

    def draw(self, lines: list[Line]) -> None:
        columns, rows = shutil.get_terminal_size()
        shown = lines
        if len(lines) > rows:
            shown = [*lines[: rows - 1], line((f"... {len(lines) - rows + 1} more lines", "dim"))]
        text = "\x1b[K\r\n".join(self._fit(content, columns) for content in shown)
        self._stream.write(f"\x1b[H{text}\x1b[K\x1b[J")
        self._stream.flush()

    def _fit(self, content: Line, columns: int) -> str:
        text = ""
        for part, style in content:
            part = part[: max(columns, 0)]
            columns -= len(part)
            code = _CODES.get(style) if self._colours else None
            text += f"\x1b[{code}m{part}\x1b[0m" if code and part else part
        return text
