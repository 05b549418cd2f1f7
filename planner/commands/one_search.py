"""A search in a process of its own, which can be ended at any time: ``python -m planner.commands.one_search FOLDER``.

The question comes as JSON on standard input; the plan's document, or what is wrong, goes as JSON to standard output.
Nothing is written: whoever asked keeps the answer when it is whole.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from planner.base.errors import ClusterwrightError, WrongQuestion
from planner.base.units import format_seconds


class OneSearch:
    """Searches one after the other; that under way may be ended."""

    def __init__(self, folder: Path, limit_s: float) -> None:
        """Models and clusters in files are read from `folder` alone; a search takes `limit_s` seconds at most."""
        self.folder, self.limit_s, self._turn = folder, limit_s, asyncio.Lock()
        self._process: asyncio.subprocess.Process | None = None

    def end(self) -> None:
        """Ends the search that is under way, if one is."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()

    async def document(self, asked: dict[str, Any]) -> str:
        """The document of the plans for a question (:meth:`planner.commands.agent_tools.AgentTools.planned`), as text.

        Raises:
            WrongQuestion: what cannot be, what does not fit, or no answer in time.
        """
        async with self._turn:
            try:
                text = await asyncio.wait_for(self._answered(json.dumps(asked).encode()), self.limit_s)
            except TimeoutError:
                raise WrongQuestion(
                    f"no answer within {format_seconds(self.limit_s)}: fix more (tp=8), ask for fewer clusters, or "
                    "begin the server with a longer --time-limit"
                ) from None
            finally:
                self.end()
        found: dict[str, str] = json.loads(text)
        if "problem" in found:
            raise WrongQuestion(found["problem"])
        return found["document"]

    async def _answered(self, asked: bytes) -> bytes:
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "planner.commands.one_search", str(self.folder)),
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
    from planner.commands.agent_tools import AgentTools

    try:
        answer = {"document": AgentTools(Path(sys.argv[1])).planned(**json.load(sys.stdin)).to_json()}
    except ClusterwrightError as error:
        answer = {"problem": str(error)}
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
