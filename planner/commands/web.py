"""The pages of ``clusterwright serve``: a form, and the report on what was asked with it.

A request must name this machine's own address (another name in ``Host`` is refused: DNS rebinding) and carry the token
of this run: first in the address, then in a cookie that the pages of no other site send.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, get_args
from urllib.parse import parse_qs

from planner.base import writing
from planner.base.errors import ClusterwrightError, WrongQuestion
from planner.base.secrets import scrubbed
from planner.commands.agent_tools import AgentTools
from planner.commands.asked_questions import LEFT, LEFT_S, PageQuestion, Questions, at_field, summary
from planner.commands.one_search import OneSearch
from planner.question.option import asked
from planner.question.plan_options import EstimateQuestion, FitQuestion, PlanQuestion
from planner.question.purchase_options import DesignQuestion, ProcureQuestion
from planner.question.rl_options import RLQuestion
from planner.report.html_page import TEMPLATES, rendered, script_hash
from planner.schema.choices import METHODS, RLTask, Task

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

HOST = "127.0.0.1"
COOKIE = "clusterwright"
"""With the port behind it: cookies know none, and another server of this machine has another."""
MOST_BYTES = 10_000
"""Longest question, in bytes: longer ones are not of this form."""
HEADERS = {
    "cache-control": "no-store",
    "referrer-policy": "same-origin",  # without one, browsers send the form with the origin "null"
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
STRICT = "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
"""Content policy of the form, which has no script; a report's own stands in its page."""
FIELDS: dict[str, tuple[str, str]] = {
    "model": ("Model", "llama3-8b"),
    "cluster": ("Cluster", "dgx-h100:4; several make one job: dgx-h100:2 dgx-a100-80gb:2"),
    "batch": ("Batch, sequences", "the model's own"),
    "seq": ("Tokens per sequence", "the model's own, or 8192"),
    "tokens": ("Tokens to train on", "the model's own, or 1T"),
    "precision": ("Precision", "the model's own; fp8, or fp8,bf16"),
    "runtime": ("Runtime", "the usual one; fsdp2"),
    "method": ("What is trained", "all of it; lora, qlora, freeze:4"),
    "task": ("Learned by", "texts; dpo, reward; by RL grpo, ppo, rloo"),
    "region": ("Region", "us"),
    "price": ("Price", "the catalog's, or $2.10/h an accelerator"),
    "deadline": ("Deadline", "30 d"),
    "max_cost": ("Most to pay", "$500k"),
    "pin": ("Fixed", "tp=8,pp=1..4"),
    "settings": ("Your configuration", "tp=8 pp=2; what is left out is the usual"),
    "measured": ("A step took", "12.3s: then, is it normal? Or a log of this server's folder"),
    "response": ("Tokens of a response (RL)", "2k/8k: mean and longest"),
    "site": ("Site", "a folder of this server, with your own runs"),
    "study": ("Study", "study.toml, a file of this server"),
}
"""Field -> its label, and an example."""


class Asking(NamedTuple):
    """A question of the form."""

    label: str
    """Text of its button."""
    tool: str
    """The tool that answers."""
    record: type
    """What declares its fields."""
    needs: tuple[str, ...]
    example: str

    @property
    def taken(self) -> list[str]:
        """Fields of the form that it uses; an offer's budget is the most to pay."""
        declared = asked(self.record)
        return [name for name in FIELDS if name in declared or (name == "max_cost" and "budget" in declared)]


MACHINES = ("model", "cluster")
QUESTIONS = {
    "plan": Asking("Plan", "document", PlanQuestion, MACHINES, "llama3-8b on dgx-h100:4"),
    "estimate": Asking(
        "Does mine fit?",
        "estimate_document",
        EstimateQuestion,
        (*MACHINES, "settings"),
        "llama3-8b, dgx-h100:4 and tp=2 pp=2",
    ),
    "fit": Asking("Where does it fit?", "fit_document", FitQuestion, ("model",), "llama3-8b"),
    "offer": Asking("What to buy or rent?", "offer_document", ProcureQuestion, ("model",), "llama3-8b"),
    "rl": Asking("Train by RL", "rl_document", RLQuestion, (*MACHINES, "response"), "llama3-8b, dgx-h100:4 and 1k/4k"),
    "design": Asking("What to build?", "design_document", DesignQuestion, ("study",), "study.toml"),
}
"""Question, which begins its answer's file name -> how it is asked."""
NUMBERS = ("batch", "seq")
LABELS = {name: label for name, (label, _) in FIELDS.items()}
WATCHING = (TEMPLATES / "waiting.js").read_text(encoding="utf-8")
"""What looks how far a question is, in place of loading its page anew, which loses the focus."""
PATIENCE_S = 2.0
"""Seconds that an answer is waited for before the page says how far it is."""
SELDOM_S = 1.0
"""Seconds between two looks of a page at how far its question is."""
MOST_LISTED = 20
"""Answers that the form lists, newest first."""


def application(folder: Path, token: str, search: OneSearch) -> Any:
    """The pages as an ASGI application; plans are kept in `folder`, `token` is of this run, `search` answers.

    Raises:
        WrongQuestion: Starlette is not installed.
    """
    try:
        from starlette.applications import Starlette
        from starlette.middleware import Middleware
        from starlette.middleware.trustedhost import TrustedHostMiddleware
        from starlette.routing import Route
    except ImportError:
        raise WrongQuestion("the page needs Starlette: pip install 'clusterwright[serve]'") from None
    pages = Pages(AgentTools(folder), token, search)
    routes = [
        Route("/", pages.form, methods=["GET"]),
        Route("/", pages.asked, methods=["POST"]),
        Route("/questions/{id}", pages.question, methods=["GET"]),
        Route("/questions/{id}", pages.ended, methods=["POST"]),
        Route("/compared", pages.compared, methods=["GET"]),
        Route("/plans/{name}", pages.report, methods=["GET"]),
    ]
    hosts = Middleware(TrustedHostMiddleware, allowed_hosts=[HOST, "localhost"])
    return Starlette(routes=routes, middleware=[hosts])


class Pages:
    """What is answered to whom."""

    def __init__(self, tools: AgentTools, token: str, search: OneSearch) -> None:
        """`tools` read and keep, `search` answers; `token` is of this run."""
        self.tools = tools
        self.token = token
        self.search = search
        self.questions = Questions(search)

    async def form(self, request: Request) -> Response:
        """The form; with the token in the address, a cookie of it and the address without."""
        from starlette.responses import RedirectResponse

        if self._is_token(request.query_params.get("token", "")):
            found = RedirectResponse("/", status_code=303, headers=HEADERS)
            found.set_cookie(f"{COOKIE}-{request.url.port}", self.token, httponly=True, samesite="strict")
            return found
        return self._refused(request) or self._page({}, "")

    async def asked(self, request: Request) -> Response:
        """A question waits for its turn; what cannot be is said at its field."""
        if refused := self._refused(request):
            return refused
        given = await _sent(request)
        if given is None:
            return _text("a question is shorter than that", 413)
        question = self.questions.ask(given, self._planned)
        assert question.task is not None
        await asyncio.wait([question.task], timeout=PATIENCE_S)
        return self._state(question)

    async def question(self, request: Request) -> Response:
        """How far a question is, or where its answer stands."""
        if refused := self._refused(request):
            return refused
        question = self.questions.asked.get(request.path_params["id"])
        if question is None:
            return _text("no such question; the form lists the answers that are kept", 404)
        question.seen_s = time.monotonic()
        if "next" in request.query_params and question.task is not None:
            await asyncio.wait([question.task], timeout=SELDOM_S)
        return self._state(question) if question.is_over else self._waiting(question)

    async def ended(self, request: Request) -> Response:
        """A question that is stopped, with the best so far, or cancelled, or kept on when its page is left."""
        if refused := self._refused(request):
            return refused
        question = self.questions.asked.get(request.path_params["id"])
        given = await _sent(request)
        if question is None or given is None:
            return _text("no such question", 404)
        if given.get("do") in ("stop", "keep"):
            question.seen_s = time.monotonic()
            if given["do"] == "keep":
                question.is_kept_on = True
            else:
                self.questions.stop(question)
            return _elsewhere(f"/questions/{question.id}")
        self.questions.cancel(question)
        if question.task is not None:
            await asyncio.wait([question.task], timeout=PATIENCE_S)
        return _elsewhere("/")

    async def compared(self, request: Request) -> Response:
        """Two kept answers or more on one page; of two, the second against the first."""
        if refused := self._refused(request):
            return refused
        return await self._shown(request.query_params.getlist("plan")[:MOST_LISTED])

    async def report(self, request: Request) -> Response:
        """The report on a plan that is kept."""
        return self._refused(request) or await self._shown([request.path_params["name"]])

    async def _shown(self, names: list[str]) -> Response:
        from starlette.concurrency import run_in_threadpool
        from starlette.responses import HTMLResponse

        try:
            html = await run_in_threadpool(self._reported, names)
        except ClusterwrightError as error:
            return _text(scrubbed(str(error)), 404)
        return HTMLResponse(html, headers=HEADERS)

    def _state(self, question: PageQuestion) -> Response:
        """The answer's address, the form with what is wrong, or the question's own address."""
        if question.kept:
            return _elsewhere(f"/plans/{question.kept}")
        if question.problem:
            return self._page(question.given, question.problem, 410 if question.problem == LEFT else 400)
        return _elsewhere(f"/questions/{question.id}")

    async def _planned(self, question: PageQuestion) -> str:
        """The name of the file that holds the answer."""
        kind = question.given.get("question", "plan")
        wanted = QUESTIONS.get(kind, QUESTIONS["plan"])
        given: dict[str, Any] = {name: question.given[name] for name in FIELDS if question.given.get(name)}
        if unused := next((name for name in given if name not in wanted.taken), None):
            raise WrongQuestion(f'{unused}={given[unused]!r}: "{wanted.label}" does not use it; leave it empty')
        for name in NUMBERS:
            if name in given:
                given[name] = _whole(name, given[name])
        if missing := next((name for name in wanted.needs if name not in given), None):
            are = "are" if len(wanted.needs) > 1 else "is"
            needed = f"{' and '.join(f'a {name}' for name in wanted.needs)} {are} needed"
            raise WrongQuestion(f"{missing}: {needed}, at least: {wanted.example}")
        kept = f"{kind if kind in QUESTIONS else 'plan'}-{secrets.token_hex(6)}.json"
        if "cluster" in given:
            given["cluster"] = given["cluster"].split()

        def tell(progress: dict[str, Any]) -> None:
            question.progress = progress

        text = await self.search.answer(wanted.tool, given, tell)
        writing.write(self.tools.folder / kept, text, replace=True)
        return kept

    def _reported(self, names: list[str]) -> str:
        from planner.api import documents

        kept = {path.name: path for path in self._kept()}
        if missing := [name for name in names if name not in kept]:
            raise WrongQuestion(f"no plan {missing[0]!r} is kept here")
        if not names:
            raise WrongQuestion("choose the answers to compare in the list below the form")
        paths = [kept[name] for name in names]
        plans = [name for name in names if name.startswith(("plan-", "estimate-"))]
        compared = [documents.compare(*paths)] if len(plans) == len(paths) == 2 else []
        return documents.written([*compared, *paths], None)

    def _kept(self) -> list[Path]:
        """Answers, newest first."""
        every = (path for kind in QUESTIONS for path in self.tools.folder.glob(f"{kind}-*.json"))
        files = [path for path in every if not path.is_symlink()]
        return sorted(files, key=lambda path: path.stat().st_mtime, reverse=True)

    def _page(self, given: Mapping[str, str], problem: str, status: int = 200) -> Response:
        import planner

        axes = "settings" if given.get("question") == "estimate" else "pin"
        place, words = at_field(problem, LABELS, axes)
        html = rendered(
            "question.html",
            fields=FIELDS,
            questions={kind: wanted.label for kind, wanted in QUESTIONS.items()},
            given=given,
            problem=words,
            place=place,
            left=problem == LEFT,
            open=[question for question in self.questions.asked.values() if not question.is_over],
            kept=[(path.name, *summary(path, path.stat().st_mtime_ns)) for path in self._kept()[:MOST_LISTED]],
            known={
                "model": [model.id for model in planner.list_models()],
                "cluster": [f"{node.id}:1" for node in planner.list_nodes()],
                "runtime": [str(runtime.id) for runtime in planner.list_runtimes()],
                "region": [region.id for region in planner.list_regions()],
                "method": METHODS,
                "task": [*get_args(RLTask), *get_args(Task)],
            },
        )
        return _html(html, status)

    def _waiting(self, question: PageQuestion) -> Response:
        lasted = time.monotonic() - question.asked_s
        before = self.questions.before(question)
        html = rendered(
            "waiting.html",
            question=question,
            lasted=f"{lasted:,.0f} s",
            before=before,
            labels=LABELS,
            left_s=f"{LEFT_S:.0f}",
            script=WATCHING,
        )
        policy = f"{STRICT}; script-src '{script_hash(WATCHING)}'; connect-src 'self'"
        return _html(html, 200, policy)

    def _refused(self, request: Request) -> Response | None:
        cookies = _cookies(request.headers.get("cookie", ""))
        origin = request.headers.get("origin")
        if origin not in (None, f"http://{request.headers['host']}"):
            return _text("asked from another page", 403)
        if any(self._is_token(value) for name, value in cookies if name.startswith(COOKIE)):
            return None
        return _text("open the address that clusterwright serve has printed: it holds the token", 403)

    def _is_token(self, text: str) -> bool:
        return secrets.compare_digest(text.encode(), self.token.encode())


def _cookies(header: str) -> list[tuple[str, str]]:
    """Names and values; those of other programs of this machine come along, also some that `http.cookies` refuses."""
    split = (part.partition("=") for part in header.split(";"))
    return [(name.strip(), value.strip()) for name, _, value in split]


async def _sent(request: Request) -> dict[str, str] | None:
    """Fields of a form; None where they are longer than any of ours."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MOST_BYTES:
            return None
    return {name: values[0].strip() for name, values in parse_qs(body.decode("utf-8", "replace")).items()}


def _elsewhere(address: str) -> Response:
    from starlette.responses import RedirectResponse

    return RedirectResponse(address, status_code=303, headers=HEADERS)


def _html(html: str, status: int, policy: str = STRICT) -> Response:
    from starlette.responses import HTMLResponse

    return HTMLResponse(html, status, headers={**HEADERS, "content-security-policy": policy})


def _whole(name: str, text: str) -> int:
    """A field that takes a whole number, with ``8k`` as everywhere."""
    from planner.question.values import sequence_length

    try:
        return sequence_length(text) or 0
    except WrongQuestion:
        raise WrongQuestion(f"{name}: {text!r} is no whole number; write 8192 or 8k") from None


def _text(message: str, status: int) -> Response:
    from starlette.responses import PlainTextResponse

    return PlainTextResponse(message + "\n", status, headers=HEADERS)
