"""A search in a process of its own, which can be ended at any time: ``python -m planner.commands.one_search DIR PID``.

The question comes as JSON on standard input; how far the search is, and last what a tool of agents answers, or what is
wrong, goes as lines of JSON to standard output. The process ends with who began it: when its answer is no longer waited
for, when its time is over, and when its parent is gone.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from planner.base.errors import ClusterwrightError, WrongQuestion
from planner.base.processes import end_with_parent
from planner.base.stopping import best_so_far
from planner.base.units import format_seconds

MOST_WAITING = 4
"""Questions that wait for their turn; more are asked to come again."""
LIMIT_S = 600.0
"""Seconds that a search takes at most where nothing else is said."""
WATCHED = ("document", "fit_document", "design_document")
"""Tools that tell how far they are, and end with the best so far where they are asked to."""
SELDOM_S = 0.2
"""Seconds between two lines that tell how far a search is."""
LONGEST_BYTES = 2**30
"""Longest answer."""
Progress = dict[str, Any]
"""How far a search is: ``what`` is done, the ``share`` of it, and a ``note`` on the best so far."""
BEGINS: Progress = {"what": "begins", "share": 0.0, "note": ""}
"""Told when a question's turn has come, and again when its process can be asked to stop."""


def _unheard(_: Progress) -> None:
    """Tell nobody."""


class OneSearch:
    """Searches one after the other; that under way may be ended."""

    def __init__(self, folder: Path, limit_s: float = LIMIT_S, longer: str = "") -> None:
        """Tools read and write by name in `folder`; a search takes `limit_s` seconds at most; `longer`: how more."""
        self.folder, self.limit_s, self.longer = folder, limit_s, longer
        self._turn = asyncio.Lock()
        self._waiting = 0
        self._process: asyncio.subprocess.Process | None = None
        self._is_stopped = self._hears = False
        """Whether the search under way was asked to stop, and whether its process is ready to be."""

    def end(self) -> None:
        """Ends the search that is under way, if one is."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()

    def stop(self) -> None:
        """Asks the search that is under way to end with the best so far: once, as a second signal would end it without
        an answer, and not before its process is ready.
        """
        if self._hears and not self._is_stopped:
            self._interrupt()
        self._is_stopped = True

    def _interrupt(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal.SIGINT)

    async def answer(self, tool: str, asked: dict[str, Any], tell: Callable[[Progress], None] = _unheard) -> Any:
        """What a tool of :class:`planner.commands.agent_tools.AgentTools` answers; cancelled, its process ends.

        `tell` hears how far it is, first when its turn has come.

        Raises:
            WrongQuestion: what cannot be, what does not fit, no answer in time, or too many questions before this one.
        """
        if self._waiting > MOST_WAITING:
            raise WrongQuestion(f"{MOST_WAITING} questions wait already; ask again when one is answered")
        self._waiting += 1
        try:
            async with self._turn:
                try:
                    question = json.dumps({"tool": tool, "asked": asked}).encode()
                    self._is_stopped = self._hears = False
                    tell(BEGINS)
                    answer = await asyncio.wait_for(self._answered(question, tell), self.limit_s)
                finally:
                    self.end()
                    if self._process is not None:
                        await self._process.wait()
        except TimeoutError:
            limit = format_seconds(self.limit_s)
            raise WrongQuestion(
                f"no answer within {limit}: fix more (tp=8), or ask for fewer clusters{self.longer}"
            ) from None
        finally:
            self._waiting -= 1
        if "problem" in answer:
            raise WrongQuestion(answer["problem"])
        return answer["answer"]

    async def _answered(self, asked: bytes, tell: Callable[[Progress], None]) -> dict[str, Any]:
        process = self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "planner.commands.one_search", str(self.folder), str(os.getpid())),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
            start_new_session=True,  # Ctrl-C is for the server, which ends it
            limit=LONGEST_BYTES,
        )
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(asked)
        process.stdin.close()
        message: dict[str, Any] = {}
        async for line in process.stdout:
            message = json.loads(line)
            if "progress" in message:
                if self._is_stopped and not self._hears:
                    self._interrupt()
                self._hears = True
                tell(message["progress"])
        if await process.wait() or "progress" in message or not message:
            raise WrongQuestion("the search was ended; the terminal of the server may say why")
        return message


@contextmanager
def telling(what: str, total: float | None) -> Iterator[Callable[..., None]]:
    """Progress of a search as lines of JSON on standard output."""
    done = 0.0
    printed_s = -SELDOM_S
    latest = ""

    def advance(n: float = 1, note: str = "") -> None:
        nonlocal done, printed_s, latest
        done += n
        latest = note or latest
        if time.monotonic() - printed_s >= SELDOM_S:
            printed_s = time.monotonic()
            share = min(done / total, 1.0) if total else None
            print(json.dumps({"progress": {"what": what, "share": share, "note": latest}}), flush=True)

    vars(advance)["notes"] = True
    advance(0)
    yield advance


def main() -> None:
    """The other end."""
    end_with_parent(int(sys.argv[2]))
    from planner.commands.agent_tools import AgentTools

    question = json.load(sys.stdin)
    try:
        tool = getattr(AgentTools(Path(sys.argv[1])), question["tool"])
        watched = {"progress": telling} if question["tool"] in WATCHED else {}
        with best_so_far():
            print(json.dumps({"progress": BEGINS}), flush=True)
            answer = {"answer": tool(**question["asked"], **watched)}
    except KeyboardInterrupt:
        answer = {"problem": "stopped before a plan was found"}
    except ClusterwrightError as error:
        answer = {"problem": str(error)}
    except OSError as error:
        answer = {"problem": error.strerror or str(error)}
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the answer is found
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
