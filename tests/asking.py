"""The command line as a person types it, run in this process."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from planner.commands import command_line

CPU_TIME = re.compile(r"^(Search .*), [\d.]+ s$", re.MULTILINE)


class Answer(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def report(self) -> str:
        """What was printed, without the time that the search took."""
        return CPU_TIME.sub(r"\1, (time)", self.out)

    @property
    def document(self) -> dict[str, Any]:
        """The JSON that was printed, without `meta` and its digest."""
        found: dict[str, Any] = json.loads(self.out)
        found.pop("meta", None)
        found.pop("digest", None)
        return found


def ask(capsys: pytest.CaptureFixture[str], line: str) -> Answer:
    """Run ``clusterwright LINE``; no answer leaves as anything but 0, 1 or 2, and none with a traceback."""
    capsys.readouterr()
    code = command_line.main(shlex.split(line))
    out, err = capsys.readouterr()
    assert code in (0, 1, 2), f"{line}: exit code {code}\n{err}"
    assert "Traceback" not in out + err
    return Answer(code, out, err)


def refused(capsys: pytest.CaptureFixture[str], line: str, code: int = 2) -> str:
    """The one message of a question that gets no answer; nothing is printed and nothing is written."""
    before = _files()
    answer = ask(capsys, line)
    assert (answer.code, answer.out) == (code, ""), f"{line}: {answer}"
    assert answer.err.startswith("clusterwright: ") and answer.err.count("clusterwright: ") == 1, answer.err
    assert _files() == before
    return answer.err.removeprefix("clusterwright: ").rstrip("\n")


def _files() -> dict[Path, int]:
    return {path: path.stat().st_size for path in Path.cwd().iterdir() if path.is_file()}
