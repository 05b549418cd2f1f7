"""Which options of a program on Hugging Face's Trainer change what is predicted.

All that a program has are in two tables: ``trainer_options.toml`` names those on which nothing depends, and
``trainer_arguments.toml`` those that are read, predicted otherwise or refused. One in neither is refused by name.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from planner.base.errors import WrongQuestion
from planner.launchers.reading.trainer_dialects import OTHERWISE, REFUSED, UNDERSTOOD, WORDS, Dialect, Values

OFF = ("none", "null", "false", "no", "", "0", "0.0", "[]", "{}")
"""How values are spelt that switch nothing on."""
LISTED = 6
"""Options that a message names."""
_ONLY: Mapping[str, str] = WORDS["only"]
_WHERE: Mapping[str, Mapping[str, str]] = WORDS["where"]
_READ = {*WORDS["read"]["keys"], *UNDERSTOOD, *_ONLY, *(key for keys in _WHERE.values() for key in keys)}


@cache
def _table() -> Mapping[str, Mapping[str, str]]:
    path = Path(__file__).resolve().parent.parent / "trainer_options.toml"
    return tomllib.loads(path.read_text(encoding="utf-8"))


@cache
def _harmless(sections: tuple[str, ...]) -> frozenset[str]:
    return frozenset(name for section in sections for name in _table()[section]["names"].split())


def _of_data(sections: tuple[str, ...], name: str) -> bool:
    """Whether an option of people's own scripts holds, by its name, what is read, written, logged or evaluated."""
    rules = _table()["scripts"]
    return (
        "scripts" in sections
        and re.fullmatch(rules["patterns"].strip(), name) is not None
        and re.fullmatch(rules["never"].strip(), name) is None
    )


def off(value: Any) -> bool:
    """Whether a value switches nothing on."""
    return value is None or value is False or str(value).lower() in OFF


def refuse(dialect: Dialect, values: Values) -> None:
    """Refuses what no plan says, and what is not known of the program.

    Raises:
        WrongQuestion: such an option is set.
    """
    ruled = next((name for name in values if name in REFUSED and not off(values[name])), None)
    if ruled is not None:
        raise WrongQuestion(
            f"--from {dialect.name}: {ruled}: {REFUSED[ruled]} cannot be taken over; --ignore {ruled} prices the rest "
            "without"
        )
    unknown = [name for name in sorted(values) if not off(values[name]) and not _known(dialect, name, values[name])]
    if unknown:
        named = ", ".join(f"{name} {_shown(values[name])}".strip() for name in unknown[:LISTED])
        more = f" and {len(unknown) - LISTED} more" if unknown[LISTED:] else ""
        left = " ".join(f"--ignore {name}" for name in unknown)
        raise WrongQuestion(
            f"--from {dialect.name}: {named}{more}: may change precision, memory or time, and no plan holds it; "
            f"{left} prices the rest without"
        )


def classified(section: str, values: Values, read: Collection[str]) -> None:
    """Refuses what of a launcher's configuration is neither read nor known to change nothing.

    Raises:
        WrongQuestion: such a key is set.
    """
    known = {*read, *_harmless((section,))}
    if unknown := [name for name in values if name not in known and not off(values[name])]:
        named = f"{unknown[0]} {_shown(values[unknown[0]])}".strip()
        raise WrongQuestion(
            f"--from trainer: {section}'s {named}: may change precision, memory or time, and no plan holds it; "
            f"--ignore {unknown[0]} prices the rest without"
        )


def otherwise(values: Values) -> Iterator[tuple[str, str]]:
    """(option, what is predicted otherwise) of all that are set so."""
    for name, what in OTHERWISE.items():
        if name in values and not off(values[name]):
            yield name, f"{what}; predicted without"
    for what, options in _WHERE.items():
        for name, words in options.items():
            if name in values and re.fullmatch(words, str(values[name]).lower()):
                yield name, what


def _known(dialect: Dialect, name: str, value: Any) -> bool:
    if name in _ONLY:
        return re.fullmatch(_ONLY[name], str(value).lower()) is not None
    return name in _READ or name in _harmless(dialect.options) or _of_data(dialect.options, name)


def _shown(value: Any) -> str:
    """A number or a word of a kind; nothing else of what may be somebody's file is repeated in a message."""
    text = str(value)
    return text if value is not True and re.fullmatch(r"[\d.eE+-]{1,20}|[a-z_]{1,16}", text) else ""
