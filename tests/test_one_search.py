"""One search in a process of its own: it ends with its time, with who asked, and with its parent; few wait for it."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from planner.base.errors import WrongQuestion
from planner.commands import one_search
from planner.commands.one_search import OneSearch

LONG = {"model": "deepseek-v3", "cluster": ["dgx-h100:1..2000"]}
SHORT = {"model": "gpt2", "cluster": ["dgx-h100:1"], "pin": "micro=1,tp=1", "batch": 64}
PARENT = """
import os, subprocess, sys, time
child = "import time; from planner.base.processes import end_with_parent; end_with_parent(%d); time.sleep(60)"
print(subprocess.Popen([sys.executable, "-c", child % os.getpid()]).pid, flush=True)
time.sleep(60)
"""


def lives(number: int) -> bool:
    """Whether a process runs; one that nobody has buried yet does not."""
    try:
        status = Path(f"/proc/{number}/stat").read_text(encoding="utf-8")
    except FileNotFoundError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_process_ends_with_its_parent() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert lives(child)
        os.kill(parent.pid, signal.SIGKILL)
    over = time.monotonic() + 20
    while lives(child) and time.monotonic() < over:
        time.sleep(0.1)
    assert not lives(child)


def test_who_goes_away_ends_his_search(tmp_path: Path) -> None:
    search = OneSearch(tmp_path)

    async def ask() -> Any:
        task = asyncio.ensure_future(search.answer("document", LONG))
        while search._process is None:
            await asyncio.sleep(0.05)
        begun = search._process
        task.cancel()
        await asyncio.wait([task])
        return task.cancelled(), await asyncio.wait_for(begun.wait(), 10)

    assert asyncio.run(ask()) == (True, -signal.SIGKILL)


def test_a_search_that_is_asked_to_stop_from_its_beginning_on_and_again_tells_its_best(tmp_path: Path) -> None:
    search = OneSearch(tmp_path)
    asked = {"model": "llama3-8b", "cluster": ["dgx-h100:1"], "pin": "tp=1|2|4", "batch": 64}

    def stop(told: dict[str, Any]) -> None:
        if told["what"] == "begins":
            time.sleep(0.3)  # so that two signals would not become one
            search.stop()

    found = json.loads(asyncio.run(search.answer("document", asked, stop)))
    assert found["plans"]  # of a busy machine's short search, all of it: then it was over before the stop came


def test_time_is_bounded_and_the_queue_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_search, "MOST_WAITING", 1)

    async def ask() -> list[Any]:
        search = OneSearch(tmp_path, 0.2, ", or wait")
        answers = [search.answer("document", LONG) for _ in range(3)]
        return await asyncio.gather(*answers, return_exceptions=True)

    said = [*map(str, asyncio.run(ask()))]
    assert [text.partition(":")[0] for text in said[:2]] == ["no answer within 200 ms"] * 2
    assert said[0].endswith("fewer clusters, or wait")
    assert said[2] == "1 questions wait already; ask again when one is answered"


def test_tools_answer_and_refuse(tmp_path: Path) -> None:
    search = OneSearch(tmp_path)
    assert asyncio.run(search.answer("plan", {**SHORT, "save": "plan.json"}))["saved"] == "plan.json"
    with pytest.raises(WrongQuestion, match="gpt9"):
        asyncio.run(search.answer("plan", {**SHORT, "model": "gpt9"}))
