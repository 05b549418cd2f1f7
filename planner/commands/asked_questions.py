"""Questions of the page of ``clusterwright serve``: each has an address and a turn, and tells how far it is."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from planner.base.errors import ClusterwrightError
from planner.base.secrets import scrubbed
from planner.base.stopping import STOPPED
from planner.base.units import format_usd
from planner.commands.one_search import OneSearch, Progress
from planner.report import quantities

LEFT_S = 15.0
"""Seconds after which a question whose page nobody has asked for is ended: its page polls, so its tab is closed."""
LEFT = "The search was ended because its page was left."
"""What the address of such a question says."""
MOST_KEPT = 100
"""Questions that are remembered; what they were answered stays in the folder."""
LISTED = re.compile(r" \(list_\w+\(\)\)")
"""What Python's messages add; the form lists these itself."""
NAMED = re.compile(r"\b(\w+)='?([^'\s,()]+(?: [^'\s,()]+)?)'?")
"""An argument of Python in a message, and its value."""


@dataclass
class PageQuestion:
    """One question, from when it was asked until it is answered."""

    id: str
    given: Mapping[str, str]
    """Field of the form -> what stands in it."""
    progress: Progress | None = None
    """How far its search is; None while it waits for its turn."""
    asked_s: float = field(default_factory=time.monotonic)
    seen_s: float = field(default_factory=time.monotonic)
    """When its page was asked for last."""
    is_kept_on: bool = False
    """Whether it goes on when nobody looks at its page."""
    is_stopped: bool = False
    """Whether its search was asked to end with the best so far."""
    kept: str = ""
    """The file that holds the answer."""
    problem: str = ""
    """Why there is none."""
    task: asyncio.Task[None] | None = None

    @property
    def title(self) -> str:
        """What is asked about: a model, and the cluster where one is given."""
        named = (self.given.get(name) for name in ("model", "cluster"))
        return " on ".join(filter(None, named)) or self.given.get("study", "")

    @property
    def is_under_way(self) -> bool:
        """Whether its search runs."""
        return self.progress is not None and not self.is_over

    @property
    def is_over(self) -> bool:
        """Whether it is answered, or will never be."""
        return bool(self.kept or self.problem)


class Questions:
    """All questions of this run, oldest first."""

    def __init__(self, search: OneSearch, left_s: float = LEFT_S) -> None:
        """`search` answers them one after the other; one whose page is left for `left_s` seconds is ended."""
        self.search = search
        self.left_s = left_s
        self.asked: dict[str, PageQuestion] = {}

    def ask(self, given: Mapping[str, str], answer: Callable[[PageQuestion], Awaitable[str]]) -> PageQuestion:
        """A question that waits for its turn; `answer` names the file that holds the answer."""
        question = PageQuestion(secrets.token_hex(6), given, is_kept_on=bool(given.get("keep")))
        question.task = asyncio.ensure_future(self._answered(question, answer))
        self.asked[question.id] = question
        for old in list(self.asked)[:-MOST_KEPT]:
            if self.asked[old].is_over:
                del self.asked[old]
        return question

    async def _answered(self, question: PageQuestion, answer: Callable[[PageQuestion], Awaitable[str]]) -> None:
        watch = asyncio.ensure_future(self._watched(question))
        try:
            question.kept = await answer(question)
        except ClusterwrightError as error:
            question.problem = LISTED.sub("", scrubbed(str(error)))
        except asyncio.CancelledError:
            question.problem = question.problem or "cancelled"
            raise
        finally:
            watch.cancel()

    async def _watched(self, question: PageQuestion) -> None:
        """Ends a question when its page is left."""
        while question.is_kept_on or time.monotonic() - question.seen_s < self.left_s:
            await asyncio.sleep(self.left_s / 10)
        self.cancel(question)
        question.problem = LEFT

    def before(self, question: PageQuestion) -> int:
        """How many questions are answered before this one."""
        earlier = list(self.asked.values())[: list(self.asked).index(question.id)]
        return sum(not other.is_over for other in earlier)

    def stop(self, question: PageQuestion) -> None:
        """Ends the search of a question with the best so far; one that still waits is not asked any longer."""
        if question.is_under_way:
            question.is_stopped = True
            self.search.stop()
        else:
            self.cancel(question)

    def cancel(self, question: PageQuestion) -> None:
        """Ends a question without an answer."""
        if question.task is not None and not question.is_over:
            question.task.cancel()


def at_field(problem: str, labels: Mapping[str, str], axes: str = "pin") -> tuple[str, str]:
    """The field at which a problem stands, empty where it is of none, and the problem in the words of the form.

    `labels`: field -> label; `axes`: the field that holds a plan's axes.
    What messages call ``deadline='9 h'`` is there the value of a labelled field.
    """
    unknown = re.match(r"no (\w+)", problem)
    if unknown and (kind := "cluster" if unknown[1] == "node" else unknown[1]) in labels:
        return kind, problem
    first = re.match(r"(\w+)(?:=|: )", problem)
    names = [name for name, _ in NAMED.findall(problem) if name in labels]
    place = first[1] if first and first[1] in labels else axes if first and "=" in first[0] else "".join(names[:1])
    words = NAMED.sub(lambda named: f"{labels[named[1]]}: {named[2]}" if named[1] in labels else named[0], problem)
    return place, words.removeprefix(f"{labels.get(place, '')}: ") if place else words


@lru_cache(maxsize=256)
def summary(path: Path, changed: int) -> tuple[str, str]:
    """What a kept answer is of, and its step, days and dollars; `changed`: when the file was."""
    del changed
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
        if held["kind"] == "fit":
            return f"Where {held['fits'][0]['model']} fits", f"{len(held['fits'])} trainings that fit"
        if held["kind"] == "rl-plan":
            work = f"{held['work']['task'].upper()} of {held['work']['model']}"
            return f"{work} on {' + '.join(held['pools'])}", f"{quantities.seconds(held['plans'][0]['step_s'])} a step"
        if held["kind"] == "study":
            return f"Design study: {held['question']['name']}", f"{len(held['trials'])} points"
        if held["kind"] == "procurement":
            best = held["alternatives"][0]
            return f"Offer: {held['question']['name']}", f"{format_usd(best['cost']['total_usd'])}, {best['what']}"
        plan = next((plan for plan in held["plans"] if plan["rank"] == held.get("recommended")), held["plans"][0])
        pools = " + ".join(f"{pool['count']} × {pool['node']}" for pool in plan["cluster"]["pools"])
        usd = plan["money"].get("usd_total")
        cost = "" if usd is None else f", {format_usd(usd)}"
        step = quantities.seconds(plan["prediction"]["step_time_s"])
        stopped = ", search stopped" if held["search"]["method"].endswith(STOPPED) else ""
        return (
            f"{plan['workload']['name']} on {pools}",
            f"{step} a step, {quantities.days(plan['money']['days'])}{cost}{stopped}",
        )
    except (OSError, ValueError, KeyError, IndexError, TypeError):
        return path.name, ""
