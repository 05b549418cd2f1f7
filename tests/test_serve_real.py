"""``clusterwright serve`` over real HTTP on loopback (``make test-report``): who is answered, and with what."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from http.client import HTTPConnection, HTTPException
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import pytest

from planner.commands.asked_questions import LEFT, LEFT_S
from tests.test_report_real import BROWSER

MISSING = [name for name in ("starlette", "uvicorn", "vl_convert") if find_spec(name) is None]
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"no {', '.join(MISSING)} (make test-report)")
ROOT = Path(__file__).parents[1]
QUESTION = {"model": "gpt2", "cluster": "dgx-v100:1", "batch": "64", "pin": "micro=1"}


STUDY = """name = "small"
[base]
node = "dgx-v100"
count = 1
[axes]
"cluster.accelerators" = [8, 16]
[[workloads]]
model = "gpt2"
"""


class Served:
    """A server that runs, and what it answers."""

    def __init__(self, folder: Path, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        found = re.search(r"http://\S+", process.stdout.readline())
        assert found, process.communicate(timeout=5)
        self.folder, self.address = folder, urlsplit(found[0])
        self.token = self.address.query.removeprefix("token=")

    def ask(
        self, method: str, path: str, body: str = "", token: str | None = None, **headers: str
    ) -> tuple[int, str, str]:
        """Status, ``Location`` and text."""
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        if token is not None:
            given["Cookie"] = f"clusterwright={token}"
        connection = HTTPConnection("127.0.0.1", self.address.port or 0, timeout=60)
        connection.request(method, path, body or None, given)
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer.status, answer.headers.get("Location", ""), text

    def own(self, method: str, path: str, body: str = "", **headers: str) -> tuple[int, str, str]:
        """The same by who holds the token."""
        return self.ask(method, path, body, self.token, **headers)

    def answered(self, question: dict[str, str], **headers: str) -> tuple[int, str, str]:
        """What a question comes to; its own address says how far it is until then."""
        found = self.own("POST", "/", urlencode(question), **headers)
        end = time.monotonic() + 120
        place = ""
        while (found[0], found[1][:11]) == (303, "/questions/") or found[0] == 200:
            assert time.monotonic() < end
            place = found[1] or place
            found = self.own("GET", place)
            time.sleep(0.1)
        return found


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("served") / "own"
    with _begun(folder) as process:
        yield Served(folder, process)
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=20)
        assert "Traceback" not in rest


@pytest.mark.parametrize("token", [None, "", "wrong", "é"])
@pytest.mark.parametrize(("method", "path"), [("GET", "/"), ("POST", "/"), ("GET", "/plans/plan-0.json")])
def test_nobody_is_answered_without_the_token(served: Served, method: str, path: str, token: str | None) -> None:
    sent = token.encode().decode("latin-1") if token else token
    status, _, text = served.ask(method, path, urlencode(QUESTION) if method == "POST" else "", sent)
    assert (status, "holds the token" in text) == (403, True)
    assert served.ask("GET", "/?token=wrong")[0] == 403


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "[::1]", ""])
def test_another_host_s_name_is_refused(served: Served, host: str) -> None:
    assert served.own("GET", "/", Host=host)[0] == 400
    assert served.ask("GET", f"/?token={served.token}", Host=host)[0] == 400


def test_a_page_elsewhere_cannot_ask(served: Served) -> None:
    for origin in ("http://evil.example", "null", "http://127.0.0.1:1"):
        assert served.own("POST", "/", urlencode(QUESTION), Origin=origin)[0] == 403
    assert not list(served.folder.glob("*.json"))


def test_it_listens_on_loopback_alone(served: Served) -> None:
    with pytest.raises(OSError):
        HTTPConnection("127.0.0.2", served.address.port or 0, timeout=2).connect()


def test_the_token_becomes_a_cookie(served: Served) -> None:
    """Its name holds the port, which cookies do not know: two servers of one machine have two."""
    assert served.ask("GET", f"/?token={served.token}")[:2] == (303, "/")
    with closing(HTTPConnection("127.0.0.1", served.address.port or 0, timeout=10)) as connection:
        connection.request("GET", f"/?token={served.token}")
        cookie = connection.getresponse().getheader("set-cookie") or ""
    assert cookie.startswith(f"clusterwright-{served.address.port}={served.token};")
    cookies = f"a/b:c=1; clusterwright-{served.address.port}={served.token}"  # of another program, and ours
    assert served.ask("GET", "/", Cookie=cookies)[0] == 200
    status, _, form = served.own("GET", "/")
    assert status == 200 and "<script" not in form
    assert all(f'name="{name}"' in form for name in ("model", "cluster", "deadline", "pin"))
    assert '<option value="llama3-8b">' in form


def test_a_question_is_answered_with_its_report(served: Served) -> None:
    own = f"http://127.0.0.1:{served.address.port}"
    status, place, _ = served.answered(QUESTION, Origin=own)
    assert status == 303 and re.fullmatch(r"/plans/plan-[0-9a-f]{12}\.json", place)
    assert (served.folder / place.removeprefix("/plans/")).exists()
    status, _, html = served.own("GET", place)
    assert status == 200 and "Recommended" in html and "tp=" in html
    assert place in served.own("GET", "/")[2]


@pytest.mark.parametrize(
    ("kind", "more", "title", "unused"),
    [
        ("estimate", {"cluster": "dgx-v100:1", "settings": "tp=2 dp=4"}, "GPT-2 (124M) on 1 × dgx-v100", "pin"),
        ("fit", {"seq": "1k", "tokens": "1M"}, "Where gpt2 fits", "pin"),
        ("offer", {"tokens": "1B", "max_cost": "$100k"}, "Offer: ", "pin"),
        (
            "rl",
            {"model": "qwen3-0.6b", "cluster": "dgx-h100:1", "response": "200/1k", "task": "ppo"},
            "PPO of qwen3-0.6b",
            "seq",
        ),
        ("design", {"model": "", "study": "study.toml"}, "Design study: small", "batch"),
    ],
)
def test_other_questions_are_answered_with_theirs(
    served: Served, kind: str, more: dict[str, str], title: str, unused: str
) -> None:
    (served.folder / "study.toml").write_text(STUDY, encoding="utf-8")
    status, place, _ = served.answered({"model": "gpt2", "question": kind, **more})
    assert status == 303 and place.startswith(f"/plans/{kind}-")
    assert f'<h1 id="d1">{title}' in served.own("GET", place)[2] and title in served.own("GET", "/")[2]
    text = served.answered({"question": kind, unused: "2"})[2]
    assert 'aria-invalid="true"' in text.partition(f'id="{unused}"')[2][:300] and "does not use it" in text


@pytest.mark.skipif(not BROWSER or find_spec("playwright") is None, reason="no browser or no driver (make test-report)")
def test_a_browser_asks_and_is_shown_the_report(served: Served) -> None:
    """What it sends of itself (Origin, the cookie) is what is let in."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        page = driver.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"]).new_page()
        page.goto(served.address.geturl())
        for name, value in QUESTION.items():
            page.fill(f"#{name}", value)
        page.click("form[action='/'] button[type=submit]")
        page.wait_for_url("**/plans/plan-*.json")
        assert "GPT-2" in page.title()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"model": "<script>alert(1)</script>"}, "&lt;script&gt;"),
        ({"model": "/etc/passwd.json"}, "below the server"),
        ({"cluster": "../own.toml"}, "below the server"),
        ({"model": "gtp2"}, "Did you mean gpt2?</p>"),
        ({"model": ""}, "a model and a cluster"),
        ({"question": "fit", "cluster": "", "pin": "", "model": ""}, "a model is needed"),
        ({"question": "fit", "cluster": "", "pin": "", "precision": "no"}, "choose bf16"),
        ({"question": "offer", "cluster": "", "pin": "", "max_cost": "x"}, "no currency"),
        ({"batch": "many"}, "no whole number"),
        ({"pin": "tp=3"}, "tp"),
        ({"method": "loar"}, "lora"),
        ({"region": "atlantis"}, "region"),
        ({"site": "../elsewhere"}, "below the server"),
        ({"question": "rl", "batch": "", "pin": "", "response": "/etc/hostname"}, "below the server"),
        ({"question": "rl", "batch": "", "pin": "", "response": "many"}, "mean and cap"),
        ({"question": "rl", "batch": "", "pin": "", "response": "1k/2k", "task": "dpo"}, "rloo"),
        ({"task": "gpro"}, "dpo"),
        ({"question": "estimate", "batch": "", "pin": "", "settings": "tp=three"}, "tp"),
        ({"question": "estimate", "batch": "", "pin": "", "settings": ""}, "tp=2 pp=2"),
        ({"question": "design", "model": "", "cluster": "", "batch": "", "pin": "", "study": "no.toml"}, "no.toml"),
        ({"deadline": "1 s"}, "No plan keeps a deadline"),
    ],
)
def test_what_cannot_be_is_said_at_its_field(served: Served, change: dict[str, str], says: str) -> None:
    before = sorted(served.folder.iterdir())
    status, _, text = served.answered({**QUESTION, **change})
    assert (status, says in text, "<script" in text) == (400, True, False)
    if not any("/" in value for value in change.values()):
        *_, field = change
        assert re.search(rf'id="{field}"[^>]*aria-describedby="problem"', text)
    assert sorted(served.folder.iterdir()) == before


def test_only_plans_that_are_kept_are_shown(served: Served) -> None:
    (served.folder / "other.json").write_text("{}", encoding="utf-8")
    (served.folder / "plan-link.json").symlink_to("/etc/hostname")
    for name in ("other.json", "plan-link.json", "plan-0.json", "..%2f..%2fetc%2fpasswd", "%00"):
        assert served.own("GET", f"/plans/{name}")[0] == 404
    assert served.own("POST", "/", "model=" + "x" * 20_000)[0] == 413
    assert served.own("DELETE", "/")[0] == 405


def test_a_port_that_is_taken_is_told(served: Served) -> None:
    command = [sys.executable, str(ROOT / "cli.py"), "serve", "--port", str(served.address.port)]
    found = subprocess.run(command, capture_output=True, text=True, cwd=served.folder, timeout=60)
    assert (found.returncode, "--port 0 takes a free one" in found.stderr) == (2, True)


SLOW = {**QUESTION, "model": "llama3-70b", "cluster": "dgx-h100:64 dgx-a100-80gb:64 dgx-h200:64 dgx-b200:64", "pin": ""}
"""Minutes of searching."""


def _begun(folder: Path, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(ROOT / "cli.py"), "serve", "--port", "0", "--folder", str(folder), *more]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)


def _searches(folder: Path) -> list[str]:
    """Processes that search for the server of a folder."""
    lines = [
        path.read_bytes().replace(b"\0", b" ").decode() for path in Path("/proc").glob("[0-9]*/cmdline") if _is(path)
    ]
    return [line for line in lines if "one_search" in line and str(folder) in line]


def _is(path: Path) -> bool:
    try:
        return bool(path.read_bytes())
    except OSError:
        return False


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="no /proc")
def test_ctrl_c_ends_a_search_at_once(tmp_path: Path) -> None:
    """The server, the search and the connection; nothing is left in the folder."""
    with _begun(tmp_path / "own") as process:
        served = Served(tmp_path / "own", process)
        answers: list[int] = []
        asking = threading.Thread(target=_ask_in_vain, args=(served, answers))
        asking.start()
        _until(lambda: bool(_searches(tmp_path)))
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=60)
        assert "Traceback" not in rest
        asking.join(10)
        _until(lambda: not _searches(tmp_path))
    assert answers in ([], [303], [400]) and not list((tmp_path / "own").iterdir()), "the search was waited for"


def _ask_in_vain(served: Served, answers: list[int]) -> None:
    with contextlib.suppress(OSError, HTTPException):
        answers.append(served.own("POST", "/", urlencode(SLOW))[0])


def _until(holds: Callable[[], bool], seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.1)


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="no /proc")
def test_a_search_out_of_time_is_ended_and_said(tmp_path: Path) -> None:
    with _begun(tmp_path / "own", "--time-limit", "1 s") as process:
        served = Served(tmp_path / "own", process)
        status, _, text = served.answered(SLOW)
        assert status == 400 and "no answer within" in text and "--time-limit" in text
        _until(lambda: not _searches(tmp_path))
        assert not list((tmp_path / "own").iterdir())
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="no /proc")
def test_a_second_question_waits_and_the_first_can_be_cancelled(tmp_path: Path) -> None:
    with _begun(tmp_path / "own") as process:
        served = Served(tmp_path / "own", process)
        _, first, _ = served.own("POST", "/", urlencode(SLOW))
        _, second, _ = served.own("POST", "/", urlencode(QUESTION))
        assert "so far" in served.own("GET", first)[2]
        assert "Waits for 1 question asked before" in served.own("GET", second)[2]
        assert first in served.own("GET", "/")[2] and second in served.own("GET", "/")[2]
        assert served.own("POST", first, "do=cancel")[:2] == (303, "/")
        assert "cancelled" in served.own("GET", first)[2]
        _until(lambda: served.own("GET", second)[1].startswith("/plans/"))
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=30)
        assert "Traceback" not in rest


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="no /proc")
def test_a_search_whose_page_is_left_is_ended_and_can_be_asked_again(tmp_path: Path) -> None:
    with _begun(tmp_path / "own") as process:
        served = Served(tmp_path / "own", process)
        _, left, _ = served.own("POST", "/", urlencode(SLOW))
        _until(lambda: bool(_searches(tmp_path)))
        _until(lambda: not _searches(tmp_path), LEFT_S + 10)
        status, _, text = served.own("GET", left)
        assert status == 410 and LEFT in text and "Ask again</button>" in text and f'value="{SLOW["model"]}"' in text
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)


def test_kept_answers_are_listed_and_compared(served: Served) -> None:
    """The best plan against a configuration of one's own."""
    mine = {**QUESTION, "pin": "", "question": "estimate", "settings": "tp=2 micro=1"}
    names = [served.answered(question)[1].removeprefix("/plans/") for question in (QUESTION, mine)]
    assert "GPT-2 (124M) on 1 × dgx-v100" in served.own("GET", "/")[2]
    status, _, html = served.own("GET", f"/compared?plan={names[0]}&plan={names[1]}")
    assert status == 200 and "Two plans compared" in html and "different" in html.lower()
    assert served.own("GET", f"/compared?plan={names[0]}&plan=../plan-0.json")[0] == 404
    assert served.ask("GET", f"/compared?plan={names[0]}")[0] == 403
