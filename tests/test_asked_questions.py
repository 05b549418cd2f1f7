"""Questions of the page of ``serve``: messages of Python in the words of the form, each at its field."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from planner.commands.asked_questions import LEFT, Questions, at_field
from planner.commands.one_search import OneSearch
from planner.commands.web import LABELS, _cookies
from tests.sweeps import sweep


@sweep(
    "problem, place, words",
    [
        ("no model 'gtp2'. Did you mean gpt2?", "model", "no model 'gtp2'. Did you mean gpt2?"),
        ("cluster='dgx-v100': how many?", "cluster", "dgx-v100: how many?"),
        ("tokens='many' is not a quantity", "tokens", "many is not a quantity"),
        ("tp=3: 8 accelerators don't split that way", "pin", "tp=3: 8 accelerators don't split that way"),
        ("No plan keeps it: 9 h would (deadline='9 h').", "deadline", "No plan keeps it: 9 h would (Deadline: 9 h)."),
        ("4 questions wait already", "", "4 questions wait already"),
    ],
)
def test_a_problem_stands_at_its_field_in_the_words_of_the_form(problem: str, place: str, words: str) -> None:
    assert at_field(problem, LABELS) == (place, words)


def test_another_program_s_cookie_does_not_lock_out() -> None:
    assert _cookies("a/b:c=1; clusterwright-8080=token") == [("a/b:c", "1"), ("clusterwright-8080", "token")]


@sweep("keep, viewed, problem", [("", False, LEFT), ("on", False, ""), ("", True, "")])
def test_a_search_ends_when_its_page_is_left_unless_it_was_asked_to_go_on(
    tmp_path: Path, keep: str, viewed: bool, problem: str
) -> None:
    async def asked() -> str:
        questions = Questions(OneSearch(tmp_path), left_s=0.2)
        question = questions.ask({"keep": keep}, lambda _: asyncio.sleep(30, ""))
        for _ in range(10):
            await asyncio.sleep(0.05)
            question.seen_s = time.monotonic() if viewed else question.seen_s
        questions.cancel(question)
        return question.problem

    assert asyncio.run(asked()) == problem
