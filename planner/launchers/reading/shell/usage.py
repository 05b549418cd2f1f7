"""Arguments with which a script says itself that it is started: in a comment, or in a README beside it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from planner.launchers.reading.shell.sourced import LARGEST
from planner.models.files import read_text

_ASKED = re.compile(r"=[\"']?\$(?:\{([1-9]\d?)\}|([1-9]))")


def asked(text: str) -> int:
    """How many arguments a script puts into variables."""
    return max((int(one or other) for one, other in _ASKED.findall(text)), default=0)


@dataclass(frozen=True, slots=True)
class Example:
    """Arguments of a call, and where it stands."""

    arguments: tuple[str, ...] = ()
    place: str = ""

    def __str__(self) -> str:
        return f"started as {self.place} shows: {' '.join(self.arguments)}" if self.place else ""


def shown(text: str, path: Path) -> Example:
    """An example call of a script; an empty one where no example has as many arguments as the script reads."""
    needed = asked(text)
    if not needed:
        return Example()
    for where, lines in _texts(text, path):
        for call in re.findall(rf"(?:^|[\s/`]){re.escape(path.name)}[ \t]+((?:[^\n\\`]|\\\n|\\[ \t]+\n)+)", lines):
            try:
                words = shlex.split(re.sub(r"\\[ \t]*\n", " ", call), comments=True)
            except ValueError:
                continue
            if len(words) >= needed and not any(re.search(r"[<>$|]", word) for word in words[:needed]):
                return Example(tuple(words[:needed]), where)
    return Example()


def _texts(text: str, path: Path) -> Iterator[tuple[str, str]]:
    comments = [line.lstrip("# \t") for line in text.splitlines() if line.lstrip().startswith("#")]
    yield "a comment in it", "\n".join(comments)
    for readme in sorted(path.parent.glob("README*.md")):
        if readme.is_file() and not readme.is_symlink() and readme.stat().st_size < LARGEST:
            yield readme.name, read_text(readme)
