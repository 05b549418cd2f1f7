"""Texts of a plan or a person as data in every syntax that the files use: shell, YAML, comments, names."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from planner.launchers.target import LaunchProgram, Shell

_OVERRIDE = re.compile(r"\+?[a-z_]+[\w.]*=")
"""``key=value``, as OmegaConf has options."""


def word(text: str) -> str:
    """One word of a shell command: what is :class:`Shell` is expanded, all else is taken as it is."""
    return f'"{text}"' if isinstance(text, Shell) else shlex.quote(text)


def command(words: Sequence[str], indent: str = "  ") -> str:
    """A command, one option with its values a line."""
    lines: list[str] = []
    for text in words:
        starts = not lines or isinstance(text, LaunchProgram) or text.startswith("--") or _OVERRIDE.match(text)
        if starts:
            lines.append(word(text))
        else:
            lines[-1] += " " + word(text)
    return f" \\\n{indent}".join(lines)


def exports(environment: Mapping[str, str]) -> list[str]:
    """``export NAME=VALUE`` lines."""
    return [f"export {name}={shlex.quote(value)}" for name, value in environment.items()]


def line(text: str) -> str:
    """Any text on one printable line, for comments and READMEs: what would end or steer the line is escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def comments(text: str) -> str:
    """Lines as comments of shell, YAML and Python."""
    return "".join(f"# {line(part)}".rstrip() + "\n" for part in text.splitlines())


def slug(text: str) -> str:
    """A name that every scheduler takes (a DNS label of RFC 1123): a-z, 0-9 and ``-``, at most 40 characters."""
    name = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:40].strip("-")
    return name if name[:1].isalpha() else f"job-{name}".strip("-")


def yaml(document: Mapping[str, Any]) -> str:
    """A YAML document; texts of several lines as blocks, texts that look like something else quoted."""
    import yaml as library

    class Dumper(library.SafeDumper):  # type: ignore[misc]  # the library is not typed
        """Lists indented under their key, and no anchors."""

        def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
            super().increase_indent(flow, False)

        def ignore_aliases(self, data: Any) -> bool:
            return True

    def text(dumper: Any, value: str) -> Any:
        # Some characters are line ends to a reader of YAML and nothing special to its writer: escaped, they stay.
        plain = all(c.isprintable() or c == "\n" for c in value)
        style = '"' if not plain else "|" if "\n" in value else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    Dumper.add_representer(str, text)
    return str(library.dump(dict(document), Dumper=Dumper, sort_keys=False, allow_unicode=True, width=1000))
