"""The pages of ``clusterwright serve``: a form, and the report on what was asked with it.

A request must name this machine's own address (another name in ``Host`` is refused: DNS rebinding) and carry the token
of this run: first in the address, then in a cookie that the pages of no other site send.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Coroutine
from http.cookies import SimpleCookie
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from planner.base import writing
from planner.base.errors import ClusterwrightError, WrongQuestion
from planner.base.secrets import scrubbed
from planner.commands.agent_tools import AgentTools
from planner.commands.one_search import OneSearch
from planner.report.html_page import rendered

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
    "price": ("Price", "the catalog's, or $2.10/h an accelerator"),
    "deadline": ("Deadline", "30 d"),
    "max_cost": ("Most to pay", "$500k"),
    "pin": ("Fixed", "tp=8,pp=1..4"),
}
"""Field -> its label, and an example."""
NUMBERS = ("batch", "seq")
LISTED = re.compile(r" \(list_\w+\(\)\)")
"""What Python's messages add; the form lists these itself."""


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
        Route("/plans/{name}", pages.report, methods=["GET"]),
    ]
    hosts = Middleware(TrustedHostMiddleware, allowed_hosts=[HOST, "localhost"])
    return Starlette(routes=routes, middleware=[hosts])


class Pages:
    """What is answered to whom."""

    def __init__(self, tools: AgentTools, token: str, search: OneSearch) -> None:
        """`tools` read and keep, `search` answers; `token` is of this run."""
        self.tools, self.token, self.search = tools, token, search

    async def form(self, request: Request) -> Response:
        """The form; with the token in the address, a cookie of it and the address without."""
        from starlette.responses import RedirectResponse

        if self._is_token(request.query_params.get("token", "")):
            found = RedirectResponse("/", status_code=303, headers=HEADERS)
            found.set_cookie(f"{COOKIE}-{request.url.port}", self.token, httponly=True, samesite="strict")
            return found
        return self._refused(request) or self._page({}, "")

    async def asked(self, request: Request) -> Response:
        """A plan is made, kept, and shown; what cannot be is said above the form."""
        from starlette.responses import RedirectResponse

        if refused := self._refused(request):
            return refused
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > MOST_BYTES:
                return _text("a question is shorter than that", 413)
        given = {name: values[0].strip() for name, values in parse_qs(body.decode("utf-8", "replace")).items()}
        try:
            name = await _while_connected(request, self._planned(given))
        except ClusterwrightError as error:
            return self._page(given, LISTED.sub("", scrubbed(str(error))), 400)
        return RedirectResponse(f"/plans/{name}", status_code=303, headers=HEADERS)

    async def report(self, request: Request) -> Response:
        """The report on a plan that is kept."""
        from starlette.concurrency import run_in_threadpool
        from starlette.responses import HTMLResponse

        if refused := self._refused(request):
            return refused
        try:
            html = await run_in_threadpool(self._reported, request.path_params["name"])
        except ClusterwrightError as error:
            return _text(scrubbed(str(error)), 404)
        return HTMLResponse(html, headers=HEADERS)

    async def _planned(self, given: dict[str, str]) -> str:
        """The name of the file that holds the answer."""
        asked: dict[str, Any] = {name: given[name] for name in FIELDS if given.get(name)}
        for name in NUMBERS:
            if name in asked:
                asked[name] = _whole(name, asked[name])
        if not asked.get("model") or not asked.get("cluster"):
            raise WrongQuestion("a model and a cluster, at least: llama3-8b on dgx-h100:4")
        kept = f"plan-{secrets.token_hex(6)}.json"
        asked["cluster"] = asked["cluster"].split()
        text = await self.search.answer("document", asked)
        writing.write(self.tools.folder / kept, text, replace=True)
        return kept

    def _reported(self, name: str) -> str:
        from planner.api import documents

        path = self.tools.folder / name
        if name not in {each.name for each in self.tools.folder.glob("plan-*.json") if not each.is_symlink()}:
            raise WrongQuestion(f"no plan {name!r} is kept here")
        return documents.written([path], None)

    def _page(self, given: dict[str, str], problem: str, status: int = 200) -> Response:
        from starlette.responses import HTMLResponse

        import planner

        kept = sorted(self.tools.folder.glob("plan-*.json"), key=lambda path: path.stat().st_mtime, reverse=True)
        html = rendered(
            "question.html",
            fields=FIELDS,
            given=given,
            problem=problem,
            kept=[path.name for path in kept[:20]],
            known={
                "model": [each.id for each in planner.list_models()],
                "cluster": [f"{each.id}:1" for each in planner.list_nodes()],
            },
        )
        return HTMLResponse(html, status, headers={**HEADERS, "content-security-policy": STRICT})

    def _refused(self, request: Request) -> Response | None:
        cookies = SimpleCookie(request.headers.get("cookie", ""))
        origin = request.headers.get("origin")
        if origin not in (None, f"http://{request.headers['host']}"):
            return _text("asked from another page", 403)
        if any(self._is_token(cookie.value) for name, cookie in cookies.items() if name.startswith(COOKIE)):
            return None
        return _text("open the address that clusterwright serve has printed: it holds the token", 403)

    def _is_token(self, text: str) -> bool:
        return secrets.compare_digest(text.encode(), self.token.encode())


async def _while_connected(request: Request, answer: Coroutine[Any, Any, str]) -> str:
    """The answer; who has gone away meanwhile is not answered, and what was begun for him ends.

    Raises:
        WrongQuestion: he has.
    """
    task = asyncio.ensure_future(answer)
    gone = asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise WrongQuestion("nobody waits for the answer any longer")
        return task.result()
    finally:
        task.cancel()
        gone.cancel()


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _whole(name: str, text: str) -> int:
    """A field that takes a whole number, with ``8k`` as everywhere."""
    from planner.question.values import sequence_length

    try:
        return sequence_length(text) or 0
    except WrongQuestion:
        raise WrongQuestion(f"{FIELDS[name][0]}: {text!r} is no whole number; write 8192 or 8k") from None


def _text(message: str, status: int) -> Response:
    from starlette.responses import PlainTextResponse

    return PlainTextResponse(message + "\n", status, headers=HEADERS)
