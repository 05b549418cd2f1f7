"""The journal of an enumeration: what was asked, then a line for every point that was evaluated.

Points are worth the same whenever they are evaluated, so that an enumeration which finds its own journal goes on.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from planner.base.errors import WrongQuestion
from planner.base.locking import Lock
from planner.base.secrets import shown
from planner.study.program import optuna_storage

KIND = "enumeration"
_KEPT = {"objectives", "measures", "violations", "plan", "why"}
"""Of an outcome (see :func:`planner.study.program.optuna_trials.stored`)."""


class Ledger:
    """Outcomes by the numbers of their points, in a file that is only appended to."""

    def __init__(self, where: str, question: Mapping[str, Any], *, resume: bool) -> None:
        """Opens a journal, or begins it.

        Raises:
            WrongQuestion: another kind of file, of another question, or one to be resumed that is not there.
        """
        if "://" in where:
            raise WrongQuestion(
                f"--storage {shown(where)}: every point of this study is evaluated, which keeps a file and no "
                "database; --storage study.journal, or more machines by --shard"
            )
        self.path = optuna_storage.placed(where)
        self.kept: dict[int, dict[str, Any]] = {}
        """Outcomes that the file held."""
        if resume and not self.path.exists():
            raise WrongQuestion(f"--resume: {where} is not there; leave it out to begin")
        optuna_storage.mended(self.path, "kind", "of an enumeration, and here every point is evaluated; name another")
        if self.path.exists() and self.path.stat().st_size:
            self._load(question)
        else:
            self._append([{"kind": KIND, "schema_version": 1, "question": question}])

    def _load(self, question: Mapping[str, Any]) -> None:
        with self.path.open(encoding="utf-8") as file:
            for place, line in enumerate(file, 1):
                try:
                    found = json.loads(line)
                    if place == 1:
                        self._same(found, question)
                    else:
                        self.kept[_number(found)] = found["outcome"]
                except (ValueError, KeyError, TypeError):
                    raise WrongQuestion(f"--storage {self.path}:{place}: not a line of an enumeration") from None

    def _same(self, header: Mapping[str, Any], question: Mapping[str, Any]) -> None:
        if header.get("kind") != KIND or header.get("schema_version") != 1:
            raise ValueError
        optuna_storage.unchanged(
            header.get("question"), question, f"{self.path} is of another study, or of this one before"
        )

    def add(self, outcomes: Mapping[int, Mapping[str, Any]]) -> None:
        """Keeps what points are worth: all of them or, if the process is killed, those whose lines are whole."""
        self._append([{"number": number, "outcome": outcome} for number, outcome in outcomes.items()])

    def _append(self, lines: list[dict[str, Any]]) -> None:
        text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
        try:
            with Lock(self.path), self.path.open("a", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise WrongQuestion(f"--storage {self.path}: {error.strerror or error}") from None


def _number(line: Mapping[str, Any]) -> int:
    number, outcome = line["number"], line["outcome"]
    if not isinstance(number, int) or not isinstance(outcome, dict) or set(outcome) != _KEPT:
        raise ValueError
    return number
