"""A search in a process of its own, which can be ended at any time: ``python -m planner.commands.one_search DIR PID``.

The question comes as JSON on standard input; what a tool of agents answers, or what is wrong, goes as JSON to standard
output. The process ends with who began it: when its answer is no longer waited for, when its time is over, and when
its parent is gone.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from planner.base.errors import ClusterwrightError, WrongQuestion
from planner.base.processes import end_with_parent
from planner.base.units import format_seconds

MOST_WAITING = 4
"""Questions that wait for their turn; more are told to come again."""
LIMIT_S = 600.0
"""Seconds that a search takes at most where nothing else is said."""


class OneSearch:
    """Searches one after the other; that under way may be ended."""

    def __init__(self, folder: Path, limit_s: float = LIMIT_S, longer: str = "") -> None:
        """Tools read and write by name in `folder`; a search takes `limit_s` seconds at most; `longer`: how more."""
        self.folder, self.limit_s, self.longer = folder, limit_s, longer
        self._turn = asyncio.Lock()
        self._waiting = 0
        self._process: asyncio.subprocess.Process | None = None

    def end(self) -> None:
        """Ends the search that is under way, if one is."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()

    async def answer(self, tool: str, asked: dict[str, Any]) -> Any:
        """What a tool of :class:`planner.commands.agent_tools.AgentTools` answers; cancelled, its process ends.

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
                    text = await asyncio.wait_for(self._answered(question), self.limit_s)
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
        answer = json.loads(text)
        if "problem" in answer:
            raise WrongQuestion(answer["problem"])
        return answer["answer"]

    async def _answered(self, asked: bytes) -> bytes:
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "planner.commands.one_search", str(self.folder), str(os.getpid())),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
            start_new_session=True,  # Ctrl-C is for the server, which ends it
        )
        text, _ = await self._process.communicate(asked)
        if self._process.returncode:
            raise WrongQuestion("the search was ended; the terminal of the server may say why")
        return text


def main() -> None:
    """The other end."""
    end_with_parent(int(sys.argv[2]))
    from planner.commands.agent_tools import AgentTools

    question = json.load(sys.stdin)
    try:
        tool = getattr(AgentTools(Path(sys.argv[1])), question["tool"])
        answer = {"answer": tool(**question["asked"])}
    except ClusterwrightError as error:
        answer = {"problem": str(error)}
    except OSError as error:
        answer = {"problem": error.strerror or str(error)}
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
