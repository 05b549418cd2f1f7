"""A launcher's options as a table, ``planner/launchers/NAME.toml``: which say an axis of a plan, and in which words.

One table serves the writer (``export``), the reader (``import``) and the reader of logs. An option may say six things
and no more; whatever needs a decision is Python, and gives the table a fact by its name:

    [flag]
    tensor-model-parallel-size = { axis = "tp" }
    moe-flex-dispatcher-backend = { axis = "dispatcher", values = { deepep = "deepep", hybridep = "hybridep" } }
    rdzv_backend = "static"

The last is the same in every job. Dots in an option's name lead into mappings of a file. Of two rows that say one
option in turn, at different places of a file, the second is called as it likes and names its ``option``.

The table of a family's member begins with ``extends``: it has the options of that table, and its own.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args

Format = Literal["text", "switch", "count", "integer", "measure", "share", "or-null"]
"""How an option's words are spelt: a text; nothing at all (its presence is the value); a whole number from 1, or any;
a number above zero, or from zero; in a file, null where a plan says nothing."""
FOLDER = Path(__file__).resolve().parent.parent / "launchers"
SECTIONS = ("says", "expresses", "loses")
"""Sections of which a table takes over row by row what it does not say itself."""
KEYS = {"axis", "fact", "values", "unless", "format", "option"}
SPLICED = "*"
"""A row called so names another table, whose options stand in its place."""
JOB = "job."
"""Facts that begin so belong to the job rather than to the plan (paths, what every fast configuration has): they are
written, and nothing is read from them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagRow:
    """An option of a launcher.

    Attributes:
        name: Without dashes.
        says: The axis or fact that it says.
        is_axis: Whether that is an axis of plans.
        values: Value of the plan -> what the option says; a value that is not here is left unsaid. Empty: as it is.
        unless: The value at which it is left out, which is the launcher's own default.
        format: How its words are spelt.
    """

    name: str
    says: str
    is_axis: bool
    values: Mapping[str, Any]
    unless: Any
    format: Format

    @property
    def is_job(self) -> bool:
        """Whether it is none of the plan's."""
        return self.says.startswith(JOB)


@dataclass(frozen=True, slots=True, kw_only=True)
class LauncherTable:
    """What a launcher's table says.

    Attributes:
        head: Everything but its options: titles, sections of words.
        options: Name -> option, in the order in which they are written.
    """

    head: Mapping[str, Any]
    options: Mapping[str, FlagRow]

    def saying(self, fact: str) -> Iterator[FlagRow]:
        """The options that say an axis or a fact."""
        return (option for option in self.options.values() if option.says == fact)

    def starting(self, prefix: str) -> Iterator[FlagRow]:
        """The options whose facts begin so."""
        return (option for option in self.options.values() if option.says.startswith(prefix))

    def words(self, name: str) -> dict[str, Any]:
        """What an option says -> value of a plan; of several values that it says alike, the first."""
        value_of_word: dict[str, Any] = {}
        for value, word in self.options[name].values.items():
            value_of_word.setdefault(word, value)
        return value_of_word


@cache
def launcher_table(name: str) -> LauncherTable:
    """The table of a launcher, read once.

    One that extends another takes over what it does not say itself; where it lists options, it has those alone.
    """
    data = _data(name)
    options: dict[str, FlagRow] = {}
    for key, row in data.pop("flag", {}).items():
        options |= launcher_table(row).options if key == SPLICED else {key: _option(key, row)}
    data["expresses"] = _allowed(data.get("expresses", {}))
    if "extends" not in data:
        return LauncherTable(head=data, options=options)
    family = launcher_table(data["extends"])
    sections = {key: family.head.get(key, {}) | data.get(key, {}) for key in SECTIONS}
    return LauncherTable(head={**family.head, **data, **sections}, options=options or family.options)


def _data(name: str) -> dict[str, Any]:
    """A launcher's own file; of a scheduler its section of ``schedulers.toml``."""
    path = FOLDER / f"{name.replace('-', '_')}.toml"
    if path.is_file():
        return tomllib.loads(path.read_text(encoding="utf-8"))
    sections = tomllib.loads((FOLDER / "schedulers.toml").read_text(encoding="utf-8"))
    return {"extends": "schedulers", **sections[name]}


def _allowed(section: Mapping[str, Any]) -> dict[str, Any]:
    """Axis -> its values; those that are listed behind ``any`` have all of theirs."""
    lists = {axis: tuple(values) for axis, values in section.items() if axis != "any"}
    return dict.fromkeys(section.get("any", ()), "any") | lists


def _option(name: str, row: Any) -> FlagRow:
    if not isinstance(row, Mapping):
        row = {"fact": f"{JOB}always", "values": {"on": row}}
    if (unknown := row.keys() - KEYS) or ("axis" in row) == ("fact" in row):
        raise ValueError(f"flag {name}: {', '.join(sorted(unknown)) or 'either an axis or a fact'} ({', '.join(KEYS)})")
    values = row.get("values", {})
    switch = bool(values) and all(value is True for value in values.values())
    form = row.get("format", "switch" if switch else "text")
    if form not in get_args(Format):
        raise ValueError(f"flag {name}: no format {form!r}")
    return FlagRow(
        name=row.get("option", name),
        says=row.get("axis") or row["fact"],
        is_axis="axis" in row,
        values=values,
        unless=row.get("unless"),
        format=form,
    )


def spelt(value: object) -> str:
    """A plan's value as tables spell it: switches are on and off."""
    return ("on" if value else "off") if isinstance(value, bool) else str(value)
