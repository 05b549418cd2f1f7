"""Wrong input for all that is read: ``python -m tests.fuzzing --seconds 60 --seed 0 --workers 1 [READER ...]``.

Each reader has files that are right. What stands in them is replaced, left out and repeated: leaves of a JSON document,
words and lines of other texts. Half of the changes are strange; the other half are such as a person makes, a number
scaled or a value that stands elsewhere behind the same word, so that what comes after reading is reached, too.
A wrong file may be refused, never crash (exit 70), hang (20 s) or fill the memory. Prints JSON: inputs by reader, how
many were accepted (exit 0) and how many answered (accepted, or exit 1: a valid question without an answer, a recheck
with differences), and what failed with the file that did it; exits with 1 if anything failed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import inspect
import io
import itertools
import json
import os
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock
from urllib.parse import parse_qs

from planner import SiteJournal, catalog
from planner.base.errors import ClusterwrightError
from planner.base.processes import Workers, spread
from planner.commands.command_line import DEFECT, main

ROOT = Path(__file__).parents[1]
SAVED = ROOT / "tests" / "data" / "fuzzed"
"""Files that once crashed a reader or made it hang, in a folder of its name; `make fuzz` adds what it finds."""
HANGS_S = 20.0
CLOCKS = ((signal.SIGPROF, signal.ITIMER_PROF, 1), (signal.SIGALRM, signal.ITIMER_REAL, 6))
"""Of its own time; of the wall's more, and only where it does next to nothing: others may use the machine."""
MOST_BYTES = 2_000_000_000
SLICE_S = 1.0
"""What a reader gets before the next one's turn: equal time, so that quick ones see most."""
MOST_EDITS = 3
WORD = re.compile(r"[^\s=,;:\"'()\[\]{}]+")
NUMBER = re.compile(r"(?<![\w.-])\d+(\.\d+)?")
IN_MEMORY = Path("/dev/shm")
"""Where files cost nothing, on Linux: on a disk, writing them takes as long as reading them."""
STRANGE: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 0.5, 2**31, 10**18, 10**400, -(10**30), 1e-308, 1e308, -0.0),
    *("", " ", "0", "nan", "inf", "-inf", "1e999", "null", "x" * 300, "\u0000", "\ud800", "ü²³", "\u202e"),
    *("../..", "~", "10 Gbit/s", "5 %", "2026-13-45", "1..2", "$1", "--", "[", "{", "}", "\n", "a=b", "1,2"),
    *([], {}, [[]], {"": {}}, [None], [1, "x"], {"id": 1}),
)
FACTORS = (0, 0.1, 0.5, 0.9, 1.1, 2, 3, 10, 100)
"""Of numbers that a person might have meant."""
Edit = tuple[int, int, Any]
"""Where (counted round), how, with what."""
MILD = 0.6
"""Share of the inputs whose changes are all mild."""
HARD = 4
"""Ways that are strange; from here on they are mild, and with what is a factor."""


@dataclass(frozen=True)
class Reader:
    """One thing that reads: right files of it, and how it is asked."""

    name: str
    file: str
    """Where the file stands in its folder."""
    right: Sequence[str]
    ask: Callable[[Path], object]


class Hang(BaseException):
    """It took longer than anything may."""


# ---- how files are spoiled -------------------------------------------------------------------------------------------


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every place in a JSON document: what holds it, and its key."""
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield value, key
        yield from places(inner)


def spoilt_json(text: str, edits: Sequence[Edit], right: Sequence[str] = ()) -> str:
    """The document with leaves and branches replaced, left out, or put elsewhere."""
    document = json.loads(text)
    for where, how, value in edits:
        found = [*places(document)]
        if how >= HARD:
            found = [each for each in found if not isinstance(each[0][each[1]], dict | list)]
        if not found:
            break
        holder, key = found[where % len(found)]
        if how >= HARD:
            holder[key] = _meant(holder[key], value, _behind(tuple(right)).get(str(key), ()), where)
        elif how % 4 == 0:
            del holder[key]
        elif how % 4 == 1 and isinstance(holder, dict):
            holder[str(value)] = holder[key]
        elif how % 4 == 1:
            holder.insert(0, holder[key])
        else:
            holder[key] = value
    with contextlib.suppress(ValueError):
        return json.dumps(document)
    return text


def spoilt_text(text: str, edits: Sequence[Edit], right: Sequence[str] = ()) -> str:
    """The text with words replaced and lines left out, repeated and cut."""
    for where, how, value in edits:
        lines = text.splitlines()
        words = [*WORD.finditer(text)]
        if how >= HARD:
            words = [each for each in words if any(letter.isdigit() for letter in each[0])] or words
        if how % 4 >= 2 and words:
            number = where % len(words)
            word = words[number]
            new = value if isinstance(value, str) else json.dumps(value)
            if how >= HARD:
                before = [each[0] for each in WORD.finditer(text[: word.start()])][-1:]
                new = str(_meant(word[0], value, _behind(tuple(right)).get("".join(before), ()), where))
            text = text[: word.start()] + new + text[word.end() :]
        elif lines:
            line = where % len(lines)
            if how >= HARD and ("=" in lines[line] or len(lines) == 1):
                continue  # nobody who edits by hand states a key, or a whole command, twice
            text = "\n".join([*lines[:line], *([lines[line]] * 2 if how % 2 else []), *lines[line + 1 :], ""])
    return text


def _meant(value: Any, factor: float, others: Sequence[Any], where: int) -> Any:
    """What a person may have written instead: another number of its kind, or a value that stands in such a place."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return type(value)(value * factor)
    if isinstance(value, str) and others and where % 2:
        return others[where // 2 % len(others)]
    number = NUMBER.search(value) if isinstance(value, str) else None
    if number is None:
        return others[where % len(others)] if others else value
    scaled = float(number[0]) * factor
    new = f"{scaled:.0f}" if number[0].isdecimal() else f"{scaled:g}"
    return value[: number.start()] + new + value[number.end() :]


@cache
def _behind(right: tuple[str, ...]) -> dict[str, list[Any]]:
    """Key, or word -> the values that stand behind it in right files."""
    found: dict[str, list[Any]] = {}
    for text in right:
        try:
            pairs = [(str(key), holder[key]) for holder, key in places(json.loads(text))]
        except ValueError:
            words = [each[0] for each in WORD.finditer(text)]
            pairs = [*itertools.pairwise(words)]
        for key, value in pairs:
            if isinstance(value, str):
                found.setdefault(key, []).append(value)
    return {key: sorted(set(values)) for key, values in found.items()}


# ---- what reads ------------------------------------------------------------------------------------------------------


def command(*words: str) -> Callable[[Path], object]:
    """Asks the command line; FILE is the spoilt one, FOLDER the catalog that it is in, NEW none yet, WORDS its own."""

    def ask(file: Path) -> int:
        places = {
            "FILE": [file],
            "FOLDER": [file.parent.parent],
            "NEW": [file.with_name(f"{time.monotonic_ns()}.journal")],
        }
        if "WORDS" in words:
            places["WORDS"] = file.read_text(encoding="utf-8", errors="replace").split()
        if (code := main([str(part) for word in words for part in places.get(word, [word])])) == DEFECT:
            raise AssertionError("exit code 70")
        return code

    return ask


def called(file: Path) -> object:
    """Calls a tool of agents: its name and arguments stand in a file, and have the types that it states."""
    from pydantic import ValidationError

    from planner.commands.agent_tools import AgentTools

    (file.parent / "small.json").write_text(_small(), encoding="utf-8")
    tools = {tool.__name__: tool for tool in AgentTools(file.parent).all()}
    asked = json.loads(file.read_text(encoding="utf-8", errors="replace"))
    if not isinstance(asked, dict) or str(asked.get("tool")) not in tools:
        return 2
    tool = tools[asked["tool"]]
    try:
        given = _arguments(tool.__name__, tool).model_validate(asked.get("arguments"))
    except ValidationError:
        return 2
    return tool(**{name: getattr(given, name) for name in given.model_fields_set})


def _arguments(name: str, tool: Callable[..., Any]) -> Any:
    from pydantic import create_model

    taken = inspect.signature(tool, eval_str=True).parameters.values()
    fields: Any = {each.name: (each.annotation, ... if each.default is each.empty else each.default) for each in taken}
    return create_model(name, __config__={"extra": "forbid"}, **fields)


def on_the_page(file: Path) -> None:
    """What the form of ``serve`` asks: its answer is kept, and its report made."""
    from planner.commands.agent_tools import AgentTools
    from planner.commands.asked_questions import PageQuestion
    from planner.commands.web import Pages

    tools = AgentTools(file.parent)

    class AtOnce:
        async def answer(self, tool: str, asked: dict[str, Any], tell: Callable[[Any], None]) -> Any:
            tell({"what": "begins", "share": 0.0, "note": ""})
            return getattr(tools, tool)(**asked)

    pages = Pages(tools, "", AtOnce())  # type: ignore[arg-type]
    given = {name: values[0].strip() for name, values in parse_qs(file.read_text("utf-8", "replace")).items()}
    with _without_charts():
        pages._reported([asyncio.run(pages._planned(PageQuestion("one", given)))])


def reported(file: Path) -> object:
    """A page with whatever is read, less the library of its charts."""
    with _without_charts():
        return command("report", "FILE", "-o", "page.html")(file)


def _without_charts() -> Any:
    return mock.patch("planner.report.html_page.library", lambda: "")


def sandboxed() -> bool:
    """Whether scripts can be run here."""
    from planner.launchers.reading.shell import sandbox

    with tempfile.TemporaryDirectory() as place:
        script = Path(place) / "start.sh"
        script.write_text("torchrun train.py\n", encoding="utf-8")
        try:
            sandbox.ran(script)
        except ClusterwrightError:
            return False
    return True


@cache
def _small() -> str:
    from planner import api

    return api.plan("llama3-8b", "dgx-h100:1", pin="cp=1,micro=1", batch=64, top=1).to_json()


def texts(pattern: str) -> list[str]:
    """What files of the project hold."""
    return [path.read_text(encoding="utf-8") for path in sorted(ROOT.glob(pattern))]


@cache
def a_site() -> dict[str, str]:
    """The files of a site that learned two runs, corrected one and removed the other."""
    from tests.test_site_runs import RAN

    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        there, cells = ("--site", folder), [text for cell in RAN for text in ("--set", cell)]
        said = [main(["init", "site", folder])]
        said += [main(["learn", "--step-time", time, *cells, *there]) for time in ("14.1s", "14.9s")]
        first, second = (run.row["id"] for run in SiteJournal(folder).runs())
        said += [main(["runs", "edit", first, "tp=4", *there]), main(["runs", "remove", second, *there])]
        assert said == [0] * len(said)
        return {name: (Path(folder) / name).read_text(encoding="utf-8") for name in SITE_FILES}


SITE_FILES = ("site.toml", "runs.csv", "history.jsonl")


def of_a_site(*words: str) -> Callable[[Path], object]:
    """Asks for a site of which one file is the spoilt one."""

    def ask(file: Path) -> object:
        (file.parent / "catalog").mkdir(exist_ok=True)
        for name, text in a_site().items():
            if name != file.name:
                (file.parent / name).write_text(text, encoding="utf-8")
        return command(*words, "--site", str(file.parent))(file)

    return ask


def readers() -> list[Reader]:
    """All of them."""
    from planner import api as answered
    from planner.catalog import cluster_from_file
    from planner.commands.screen.explained import explain
    from planner.models import files, workload
    from planner.procurement.question import reading as portfolio
    from planner.site import profile
    from planner.site.logs import reading as logs
    from planner.study.question import reading as study
    from tests import agent_questions, profiles_of_steps, towers, training_logs
    from tests import right_files as small
    from tests import test_import_formats as formats
    from tests.test_comm_table import NCCL

    known, timed = catalog.load(), answered.estimate("llama3-8b", "dgx-h100:1", tp=2)
    images = answered.plan_images("resnet50", "dgx-a100-40gb:2").to_json()
    offer = answered.procure(model="llama3-8b", tokens=1e9, deadline="60 d", quick=True,
                             node="dgx-h100", ways="on-demand").to_json()  # fmt: skip

    def traced(file: Path) -> None:
        explain(timed, trace=str(file))

    configurations = json.loads((ROOT / "tests/data/huggingface_configs.json").read_text(encoding="utf-8"))["models"]
    seeing = [json.dumps(each["config"]) for each in towers.DATA.values()]
    hearing = [json.dumps(each["config"]) for each in towers.SOUND.values()]
    questions = [json.dumps({"tool": each.tool, "arguments": each.arguments}) for each in agent_questions.QUESTIONS
                 if not isinstance(each.holds, str) and each.arguments.get("file", "small.json") == "small.json"
                 and not {"portfolio", "mine", "runs"} & {*each.arguments}
                 and not isinstance(each.arguments.get("cluster"), list)]  # fmt: skip
    log = "\n".join([*training_logs.megatron_arguments(), *training_logs.megatron([14.0] * 20), ""])
    runs = (ROOT / "benchmarks/data/measured_runs.csv").read_text(encoding="utf-8").splitlines()
    on = ("--cluster", "dgx-h100:16", "--model", "llama3-8b")
    return [
        Reader("plan", "plan.json", texts("tests/golden/plans/*/*.json"), command("explain", "FILE")),
        Reader("export", "plan.json", texts("tests/golden/plans/*/dense.json"), command(
            "export", "FILE", "--to", "megatron", "-o", "out", "--force")),
        Reader("hugging face", "config.json", [json.dumps(each["config"]) for each in configurations.values()],
               command("models", "show", "FILE")),
        Reader("model", "model.toml", [files.dump(workload.model(m)) for m in ("llama3-8b", "deepseek-v3")],
               lambda f: workload.model(str(f))),
        Reader("catalog", "nodes/nodes.toml", texts("hardware_catalog/nodes/*.toml")[:4],
               command("catalog", "check", "FOLDER")),
        Reader("cluster", "cluster.toml", ["node = 'dgx-h100'\ncount = 4\n"],
               lambda f: cluster_from_file(f, known)),
        Reader("portfolio", "portfolio.toml", texts("examples/portfolios/*.toml"), lambda f: portfolio.read(f, known)),
        Reader("study", "study.toml", texts("examples/studies/*.toml"), lambda f: study.read(f, known)),
        Reader("site", "site.toml", [profile.TEMPLATE.format(name="x")], profile.read),
        Reader("history", "history.jsonl", [a_site()["history.jsonl"]], of_a_site("runs", "undo")),
        Reader("journal", "runs.csv", [a_site()["runs.csv"]], of_a_site("runs", "list", "--json")),
        Reader("runs", "runs.csv", ["\n".join([runs[0], *runs[n : n + 2], ""]) for n in (1, 900, 1500, 2000)],
               command("validate", "FILE")),
        Reader("collectives", "table.csv", [small.COLLECTIVES],
               command("comm", "import", "FILE", "--from", "csv", "-o", "table")),
        Reader("nccl-tests", "all_reduce.txt", [NCCL],
               command("comm", "import", "FILE", "--from", "nccl-tests", "-o", "table")),
        Reader("megatron", "start.sh", texts("tests/golden/export/megatron/start.sh"), command(
            "import", "FILE", "--from", "megatron", *on)),
        Reader("torchtitan", "start.sh", texts("tests/golden/export/torchtitan/start.sh"), command(
            "import", "FILE", "--from", "torchtitan", "--cluster", "dgx-h100:8", "--model", "llama3-8b")),
        Reader("deepspeed", "deepspeed.json", texts("tests/golden/export/deepspeed/ds_config.json"), command(
            "import", "FILE", "--from", "deepspeed", "--cluster", "dgx-h100:4", "--model", "llama3-8b")),
        Reader("formats", "job.yaml", [
            formats.NEOX, formats.OLMO, formats.FOUNDRY, formats.TUNE, formats.NEMO, formats.NANOTRON,
            formats.ADAPTER], command("import", "FILE", "--cluster", "dgx-h100:16")),
        Reader("primus", "job.yaml", [formats.PRIMUS], command("import", "FILE", "--cluster", "mi300x-8:16")),
        Reader("profile", "layers.csv", ["".join([small.PROFILE_HEADER, *small.PROFILE_ROWS])],
               command("profile", "import", "FILE", "-o", "own")),
        Reader("prices", "aws/vms.csv", [small.PRICES], command("catalog", "import-prices", "FOLDER", "-o", "own")),
        Reader("recheck", "plan.json", [answered.plan("llama3-8b", "dgx-h100:1", top=2).to_json()],
               command("explain", "FILE", "--recheck")),
        Reader("images", "plan.json", [images], command("explain", "FILE")),
        Reader("images again", "plan.json", [images], command("explain", "FILE", "--recheck")),
        Reader("offer", "offer.json", [offer], command("explain", "FILE")),
        Reader("offer again", "offer.json", [offer], command("explain", "FILE", "--recheck")),
        Reader("logs", "train.log", ["\n".join([*form([4.0] * 20), ""]) for form, *_ in training_logs.FORMS.values()],
               lambda f: 0 if logs.read(f) else 2),
        Reader("trace", "trace.json", [json.dumps(profiles_of_steps.kineto(
                   [each for n in range(3) for each in profiles_of_steps.a_step(n, 20.0 * n)]))],
               traced),
        Reader("flags", "flags", small.FLAGS, command("estimate", "WORDS")),
        Reader("fit", "flags", small.FITS, command("fit", "WORDS")),
        Reader("procure", "portfolio.toml", small.PORTFOLIOS,
               command("procure", "FILE", "--top", "1", "--time-limit", "5", "--json")),
        Reader("procure flags", "flags", small.PURCHASES, command("procure", "WORDS", "--quick", "--time-limit", "5")),
        Reader("design", "study.toml", [small.STUDY],
               command("design", "FILE", "--trials", "2", "--time", "1 s", "--storage", "NEW", "--quick")),
        Reader("towers", "config.json", seeing, command("models", "import", "FILE", "--images", "2")),
        Reader("sounds", "config.json", hearing, command("models", "import", "FILE", "--audio", "2@10")),
        Reader("report", "plan.json", [*texts("tests/golden/plans/*/dense.json"), images, offer, timed.to_json()],
               reported),
        Reader("serve", "form", small.FORMS, on_the_page),
        Reader("mcp", "question.json", questions, called),
        Reader("learn", "train.log", [log],
               command("learn", "FILE", "--dry-run", "--set", f"accelerator={small.KIND}")),
        *([Reader("run script", "start.sh", texts("tests/golden/export/megatron/start.sh"), command(
            "import", "FILE", "--from", "megatron", "--run-script", "--env", "NODE_RANK=0", "--env", "MASTER_ADDR=x",
            *on))] if sandboxed() else []),
    ]  # fmt: skip


# ---- running ---------------------------------------------------------------------------------------------------------


def drawn(chance: random.Random) -> list[Edit]:
    """One to three ways to spoil a file."""
    kinds: tuple[Callable[[], Any], ...] = (
        lambda: chance.choice(STRANGE),
        lambda: chance.choice(STRANGE),
        lambda: int(chance.choice((-1, 1)) * 10 ** chance.uniform(0, 20)),
        lambda: chance.choice((-1, 1)) * 10 ** chance.uniform(-300, 300),
        lambda: "".join(chr(chance.choice((chance.randrange(32, 127), chance.randrange(0x11000)))) for _ in range(4)),
    )
    count = chance.randint(1, MOST_EDITS)
    if chance.random() < MILD:
        return [
            (chance.randrange(10**5), HARD + chance.choice((1, 2, 2, 3, 3)), chance.choice(FACTORS))
            for _ in range(count)
        ]
    # Copies: what one edit puts into a document, the next may change.
    return [(chance.randrange(10**5), chance.randrange(HARD), deepcopy(chance.choice(kinds)())) for _ in range(count)]


def once(reader: Reader, text: str, folder: Path) -> int:
    """Asks a reader for one file: the exit code of its answer; raises where it neither answers nor refuses."""

    worked = [time.process_time()]

    def late(number: int, _: object) -> None:
        worked.append(time.process_time())
        if number == signal.SIGPROF or worked[-1] - worked[-2] < HANGS_S / 40:
            raise Hang(f"more than {HANGS_S:g} s")

    file = folder / reader.file
    file.parent.mkdir(exist_ok=True)
    file.write_text(text, encoding="utf-8", errors="surrogatepass")
    for each, timer, limit in CLOCKS:
        signal.signal(each, late)
        signal.setitimer(timer, limit * HANGS_S, limit * HANGS_S)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            answer = reader.ask(file)
            return answer if isinstance(answer, int) else 0
    except ClusterwrightError as error:
        return error.exit_code
    finally:
        for _, timer, _ in CLOCKS:
            signal.setitimer(timer, 0)


def saved(reader: Reader) -> list[str]:
    """The files that failed once."""
    return [
        path.read_text(encoding="utf-8", errors="surrogatepass") for path in sorted((SAVED / reader.name).glob("*"))
    ]


def save(failed: dict[str, str]) -> None:
    """Keeps a file that failed, under the digest of its content."""
    content = failed["file"].encode("utf-8", "surrogatepass")
    if content:
        (SAVED / failed["reader"]).mkdir(parents=True, exist_ok=True)
        (SAVED / failed["reader"] / hashlib.sha256(content).hexdigest()[:16]).write_bytes(content)


def failure(reader: Reader, text: str, folder: Path) -> tuple[str, int]:
    """What went wrong with a file, empty if it was answered or refused; and the exit code."""
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            return "", once(reader, text, folder)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return "".join(traceback.format_exception_only(error)), DEFECT


class Turn(NamedTuple):
    """What came of a reader's turn."""

    inputs: int
    accepted: int
    """Exit 0."""
    answered: int
    """Accepted, or exit 1."""
    failed: dict[str, str] | None = None


def turn(reader: Reader, number: int, folder: Path, most: int | None = None) -> Turn:
    """Asks a reader for spoilt files for a second, or `most` of them, until one fails: the simplest that does."""
    spoil = spoilt_json if reader.file.endswith(".json") else spoilt_text
    chance, ends, count = random.Random(f"{reader.name} {number}"), time.monotonic() + SLICE_S, 0
    accepted = answered = 0
    while (count < most) if most else (time.monotonic() < ends):
        right, edits = chance.choice(reader.right), drawn(chance)
        count += 1
        error, code = failure(reader, spoil(right, edits, reader.right), folder)
        accepted += code == 0
        answered += code <= 1
        if error:
            tries = [[each] for each in edits] + [[e for e in edits if e is not each] for each in edits] + [edits]
            for text in (spoil(right, fewer, reader.right) for fewer in tries):
                if again := failure(reader, text, folder)[0]:
                    return Turn(count, accepted, answered, {"reader": reader.name, "error": again, "file": text})
            # A clock that rang once alone tells of a busy machine, not of the file.
            if not error.startswith(f"{Hang.__module__}.{Hang.__name__}"):
                text = spoil(right, edits, reader.right)
                told = {"reader": reader.name, "error": f"once, not again: {error}", "file": text}
                return Turn(count, accepted, answered, told)
    return Turn(count, accepted, answered)


def fuzz(seconds: float, first: int, chosen: Sequence[Reader], most: int | None = None) -> dict[str, Any]:
    """All readers in turns until the time is over; each one turn at least, of a second or of `most` inputs."""
    began, number, failures = time.monotonic(), first, []
    counts, accepted, answered = (dict.fromkeys((r.name for r in chosen), 0) for _ in range(3))
    before = Path.cwd()
    with tempfile.TemporaryDirectory(dir=IN_MEMORY if IN_MEMORY.is_dir() else None) as place:
        os.chdir(place)
        try:
            over = False
            while not over:
                for reader in chosen:
                    over = time.monotonic() - began >= seconds
                    if over and number > first:
                        break
                    folder = Path(tempfile.mkdtemp(dir=place))
                    done = turn(reader, number, folder, most)
                    counts[reader.name] += done.inputs
                    accepted[reader.name] += done.accepted
                    answered[reader.name] += done.answered
                    failures += [done.failed] if done.failed else []
                    shutil.rmtree(folder)
                number += 1
        finally:
            os.chdir(before)
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    if most > MOST_BYTES:
        failures.append({"reader": "all", "error": f"{most:,} bytes of memory", "file": ""})
    return {"inputs": sum(counts.values()), "accepted": sum(accepted.values()), "answered": sum(answered.values()),
            "by_reader": counts, "accepted_by_reader": accepted, "answered_by_reader": answered,
            "seconds": round(time.monotonic() - began, 1), "peak_bytes": most, "failures": failures}  # fmt: skip


class Asked(NamedTuple):
    """What every reader is asked for."""

    seconds: float
    first: int
    most: int | None = None


def fuzzed(asked: Asked, name: str) -> dict[str, Any]:
    """One reader alone, in whatever process this is called in."""
    return fuzz(asked.seconds, asked.first, [each for each in _known() if each.name == name], asked.most)


_known = cache(readers)


def side_by_side(asked: Asked, names: Sequence[str], workers: int) -> dict[str, Any]:
    """Readers by several processes, each for its share of the time; the same inputs as by one, while time lasts."""
    began, share = time.monotonic(), asked._replace(seconds=asked.seconds * workers / len(names))
    found = [each for _, each in sorted(spread(fuzzed, share, names, Workers(workers)), key=lambda pair: pair[0])]
    return {**{name: sum(each[name] for each in found) for name in ("inputs", "accepted", "answered")},
            **{name: {reader: n for each in found for reader, n in each[name].items()}
               for name in ("by_reader", "accepted_by_reader", "answered_by_reader")},
            "seconds": round(time.monotonic() - began, 1), "peak_bytes": max(each["peak_bytes"] for each in found),
            "failures": [one for each in found for one in each["failures"]]}  # fmt: skip


def _main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("readers", nargs="*", metavar="READER")
    asked.add_argument("--seconds", type=float, default=60.0)
    asked.add_argument("--seed", type=int, default=0)
    asked.add_argument("--workers", type=int, default=1, metavar="K")
    given = asked.parse_args()
    os.environ.setdefault("CLUSTERWRIGHT_DEBUG", "0")
    every = [each.name for each in _known()]
    if strange := {*given.readers} - {*every}:
        asked.error(f"no reader {', '.join(sorted(strange))}; there are {', '.join(every)}")
    wanted = [name for name in every if not given.readers or name in given.readers]
    if given.workers > 1:
        result = side_by_side(Asked(given.seconds, given.seed), wanted, given.workers)
    else:
        result = fuzz(given.seconds, given.seed, [each for each in _known() if each.name in wanted])
    for each in result["failures"]:
        save(each)
    print(json.dumps(result, indent=2))
    sys.exit(bool(result["failures"]))


if __name__ == "__main__":
    from tests import fuzzing  # by its name, by which other processes find it

    fuzzing._main()
