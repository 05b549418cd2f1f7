"""What can go wrong with a question, and the nearest thing that exists. Messages are one line and need no traceback."""

from __future__ import annotations

import difflib
import sys
import warnings
from collections.abc import Iterable


class ClusterwrightError(Exception):
    """Any error whose message is meant for the person who asked."""

    exit_code = 2


class WrongQuestion(ClusterwrightError):
    """The question cannot be asked so: an unknown name, an impossible value, a malformed file."""

    exit_code = 2


class NoAnswer(ClusterwrightError):
    """The question is right, and no plan answers it; the message says what binds and what would relax it."""

    exit_code = 1


class DocumentChanged(UserWarning):
    """A document is not what the program wrote, or what it was made from has changed since."""


def warn_of_change(message: str) -> None:
    """Warns with :class:`DocumentChanged` at the line outside this package that gave the document."""
    frame = sys._getframe(1).f_back
    level = 3
    while frame and frame.f_globals.get("__name__", "").startswith("planner."):
        frame = frame.f_back
        level = level + 1
    warnings.warn(DocumentChanged(message), stacklevel=level)


def malformed(error: Exception) -> str:
    """What is wrong with a text that was read, in words that do not name the reader."""
    return "nested too deeply" if isinstance(error, RecursionError) else str(error)


def nearest(name: str, choices: Iterable[str]) -> list[str]:
    """Up to three of the choices that are spelt most like the name, best first, else the shortest that hold it; upper
    and lower case are one.
    """
    spelling = {choice.lower(): choice for choice in choices}
    alike = difflib.get_close_matches(name.lower(), spelling, n=3, cutoff=0.6)
    holding = sorted((choice for choice in spelling if len(name) > 1 and name.lower() in choice), key=len)
    return [spelling[match] for match in alike or holding[:3]]


def same_but_case(name: str, choices: Iterable[str]) -> str | None:
    """The one choice that differs from the name in upper and lower case alone; None of none or several."""
    same = [choice for choice in choices if choice.lower() == name.lower()]
    return same[0] if len(same) == 1 else None


def meant(name: str, choices: Iterable[str], otherwise: str, most: int = 1) -> str:
    """``did you mean a?``: the nearest choices, `most` of them; what to say `otherwise` where none is near."""
    near = nearest(name, choices)[:most]
    return f"did you mean {', '.join(near)}?" if near else otherwise


def did_you_mean(name: str, choices: Iterable[str], most: int = 3) -> str:
    """``; did you mean a, b?`` or nothing."""
    hint = meant(name, choices, "", most)
    return hint and f"; {hint}"


def suggestion(name: str, choices: Iterable[str], most: int = 3) -> str:
    """`` Did you mean a, b?`` as a sentence of its own, or nothing."""
    hint = meant(name, choices, "", most)
    return hint and f" D{hint[1:]}"
