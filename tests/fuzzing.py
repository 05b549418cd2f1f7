"""Wrong input for all that is read: ``python -m tests.fuzzing --seconds 60 --seed 0 --workers 1 [READER ...]``.

Each reader has files that are right. What stands in them is replaced, left out and repeated: leaves of a JSON document,
words and lines of other texts. A wrong file may be refused, never crash (exit 70), hang (10 s) or fill the memory.
Prints JSON: inputs by reader, and what failed with the file that did it; exits with 1 if anything did.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
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

from planner import catalog
from planner.base.errors import ClusterwrightError
from planner.base.processes import Workers, spread
from planner.commands.command_line import DEFECT, main

ROOT = Path(__file__).parents[1]
SAVED = ROOT / "tests" / "data" / "fuzzed"
"""Files that once crashed a reader or made it hang, in a folder of its name; `make fuzz` adds what it finds."""
HANGS_S = 10.0
CLOCKS = ((signal.SIGPROF, signal.ITIMER_PROF, 1), (signal.SIGALRM, signal.ITIMER_REAL, 6))
"""Of its own time; of the wall's more, since others may use the machine."""
MOST_BYTES = 2_000_000_000
SLICE_S = 1.0
"""What a reader gets before the next one's turn: equal time, so that quick ones see most."""
MOST_EDITS = 3
IN_MEMORY = Path("/dev/shm")
"""Where files cost nothing, on Linux: on a disk, writing them takes as long as reading them."""
STRANGE: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 0.5, 2**31, 10**18, 10**400, -(10**30), 1e-308, 1e308, -0.0),
    *("", " ", "0", "nan", "inf", "-inf", "1e999", "null", "x" * 300, "\u0000", "\ud800", "ü²³", "\u202e"),
    *("../..", "~", "10 Gbit/s", "5 %", "2026-13-45", "1..2", "$1", "--", "[", "{", "}", "\n", "a=b", "1,2"),
    *([], {}, [[]], {"": {}}, [None], [1, "x"], {"id": 1}),
)
COLLECTIVES = "backend,op,ranks,bytes,seconds\ngloo,all-reduce,2,8,1e-5\ngloo,all-reduce,2,1024,2e-5\n"
PROFILE_HEADER = "model,accelerator,micro_batch,tp,layer_first,layer_last,forward_s,backward_s,update_s\n"
PROFILE_ROWS = tuple(
    f"opt-350m,GH200-96GB,1,1,{row}\n"
    for row in ("0,0,0.0002,0.0001,0.001", "1,24,0.002,0.004,0.001", "25,25,0.003,0.004,0.001")
)
PRICES = (
    "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,SpotPrice,Region,AvailabilityZone\n"
    "p4d.24xlarge,A100,8.0,96,1152,,21.9576,8.12,us-east-1,us-east-1a\n"
    "p5.48xlarge,H100,8,192,2048,,55.04,,us-east-2,us-east-2b\n"
)
Edit = tuple[int, int, Any]
"""Where (counted round), how, with what."""


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


def spoilt_json(text: str, edits: Sequence[Edit]) -> str:
    """The document with leaves and branches replaced, left out, or put elsewhere."""
    document = json.loads(text)
    for where, how, value in edits:
        found = [*places(document)]
        if not found:
            break
        holder, key = found[where % len(found)]
        if how % 4 == 0:
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


def spoilt_text(text: str, edits: Sequence[Edit]) -> str:
    """The text with words replaced and lines left out, repeated and cut."""
    for where, how, value in edits:
        lines = text.splitlines()
        words = [*re.finditer(r"[^\s=,;:\"'()\[\]{}]+", text)]
        if how % 4 >= 2 and words:
            word = words[where % len(words)]
            text = text[: word.start()] + (value if isinstance(value, str) else json.dumps(value)) + text[word.end() :]
        elif lines:
            line = where % len(lines)
            text = "\n".join([*lines[:line], *([lines[line]] * 2 if how % 2 else []), *lines[line + 1 :], ""])
    return text


# ---- what reads ------------------------------------------------------------------------------------------------------


def command(*words: str) -> Callable[[Path], object]:
    """Asks the command line; FILE is the spoilt one, FOLDER the catalog that it is in."""

    def ask(file: Path) -> int:
        places = {"FILE": file, "FOLDER": file.parent.parent}
        if (code := main([str(places.get(word, word)) for word in words])) == DEFECT:
            raise AssertionError("exit code 70")
        return code

    return ask


def flags(file: Path) -> object:
    """Asks for an estimate with the words of a file."""
    return command("estimate", "llama3-8b", *file.read_text(encoding="utf-8", errors="replace").split())(file)


def texts(pattern: str) -> list[str]:
    """What files of the project hold."""
    return [path.read_text(encoding="utf-8") for path in sorted(ROOT.glob(pattern))]


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
    from tests import profiles_of_steps, training_logs
    from tests.test_comm_table import NCCL

    known, timed = catalog.load(), answered.estimate("llama3-8b", "dgx-h100:1", tp=2)
    images = answered.plan_images("resnet50", "dgx-a100-40gb:2").to_json()
    offer = answered.procure(model="llama3-8b", tokens=1e9, deadline="60 d", quick=True,
                             node="dgx-h100", ways="on-demand").to_json()  # fmt: skip

    def traced(file: Path) -> None:
        explain(timed, trace=str(file))

    configurations = json.loads((ROOT / "tests/data/huggingface_configs.json").read_text(encoding="utf-8"))["models"]
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
        Reader("runs", "runs.csv", ["\n".join([runs[0], *runs[n : n + 2], ""]) for n in (1, 900, 1500, 2000)],
               command("validate", "FILE")),
        Reader("collectives", "table.csv", [COLLECTIVES],
               command("comm", "import", "FILE", "--from", "csv", "-o", "table")),
        Reader("nccl-tests", "all_reduce.txt", [NCCL],
               command("comm", "import", "FILE", "--from", "nccl-tests", "-o", "table")),
        Reader("megatron", "start.sh", texts("tests/golden/export/megatron/start.sh"), command(
            "import", "FILE", "--from", "megatron", *on)),
        Reader("torchtitan", "start.sh", texts("tests/golden/export/torchtitan/start.sh"), command(
            "import", "FILE", "--from", "torchtitan", "--cluster", "dgx-h100:8", "--model", "llama3-8b")),
        Reader("deepspeed", "deepspeed.json", texts("tests/golden/export/deepspeed/ds_config.json"), command(
            "import", "FILE", "--from", "deepspeed", "--cluster", "dgx-h100:4", "--model", "llama3-8b")),
        Reader("profile", "layers.csv", ["".join([PROFILE_HEADER, *PROFILE_ROWS])],
               command("profile", "import", "FILE", "-o", "own")),
        Reader("prices", "aws/vms.csv", [PRICES], command("catalog", "import-prices", "FOLDER", "-o", "own")),
        Reader("recheck", "plan.json", [answered.plan("llama3-8b", "dgx-h100:1", top=2).to_json()],
               command("explain", "FILE", "--recheck")),
        Reader("images", "plan.json", [images], command("explain", "FILE")),
        Reader("images again", "plan.json", [images], command("explain", "FILE", "--recheck")),
        Reader("offer", "offer.json", [offer], command("explain", "FILE")),
        Reader("offer again", "offer.json", [offer], command("explain", "FILE", "--recheck")),
        Reader("logs", "train.log", ["\n".join([*form([4.0] * 20), ""]) for form, *_ in training_logs.FORMS.values()],
               logs.read),
        Reader("trace", "trace.json", [json.dumps(profiles_of_steps.kineto(
                   [each for n in range(3) for each in profiles_of_steps.a_step(n, 20.0 * n)]))],
               traced),
        Reader("flags", "flags", ["--cluster dgx-h100:2 --precision bf16 --batch 64 --seq 4096 tp=2 pp=2 micro=1",
                             "--cluster dgx-a100-80gb:1 --method lora --rank 8 --optimizer adamw --tokens 1B"], flags),
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
    # Copies: what one edit puts into a document, the next may change.
    return [(chance.randrange(10**5), chance.randrange(4), deepcopy(chance.choice(kinds)())) for _ in range(count)]


def once(reader: Reader, text: str, folder: Path) -> None:
    """Asks a reader for one file; raises where it neither answers nor refuses."""

    def late(*_: object) -> None:
        raise Hang(f"more than {HANGS_S:g} s")

    file = folder / reader.file
    file.parent.mkdir(exist_ok=True)
    file.write_text(text, encoding="utf-8", errors="surrogatepass")
    for each, timer, limit in CLOCKS:
        signal.signal(each, late)
        signal.setitimer(timer, limit * HANGS_S)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            reader.ask(file)
    except ClusterwrightError:
        pass
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


def failure(reader: Reader, text: str, folder: Path) -> str:
    """What went wrong with a file; empty if it was answered or refused."""
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            once(reader, text, folder)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return "".join(traceback.format_exception_only(error))
    return ""


def turn(reader: Reader, number: int, folder: Path, most: int | None = None) -> tuple[int, dict[str, str] | None]:
    """Asks a reader for spoilt files for a second, or `most` of them: how many it was, and the simplest that failed."""
    spoil = spoilt_json if reader.file.endswith(".json") else spoilt_text
    chance, ends, count = random.Random(f"{reader.name} {number}"), time.monotonic() + SLICE_S, 0
    while (count < most) if most else (time.monotonic() < ends):
        right, edits = chance.choice(reader.right), drawn(chance)
        count += 1
        if failure(reader, spoil(right, edits), folder):
            tries = [[each] for each in edits] + [[e for e in edits if e is not each] for each in edits] + [edits]
            for text in (spoil(right, fewer) for fewer in tries):
                if error := failure(reader, text, folder):
                    return count, {"reader": reader.name, "error": error, "file": text}
            return count, {"reader": reader.name, "error": "once, not again", "file": spoil(right, edits)}
    return count, None


def fuzz(seconds: float, first: int, chosen: Sequence[Reader], most: int | None = None) -> dict[str, Any]:
    """All readers in turns until the time is over; each one turn at least, of a second or of `most` inputs."""
    began, number, counts, failures = time.monotonic(), first, dict.fromkeys((r.name for r in chosen), 0), []
    before = Path.cwd()
    with tempfile.TemporaryDirectory(dir=IN_MEMORY if IN_MEMORY.is_dir() else None) as place:
        os.chdir(place)
        try:
            while number == first or time.monotonic() - began < seconds:
                for reader in chosen:
                    folder = Path(tempfile.mkdtemp(dir=place))
                    count, failed = turn(reader, number, folder, most)
                    counts[reader.name] += count
                    failures += [failed] if failed else []
                    shutil.rmtree(folder)
                number += 1
        finally:
            os.chdir(before)
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    if most > MOST_BYTES:
        failures.append({"reader": "all", "error": f"{most:,} bytes of memory", "file": ""})
    return {"inputs": sum(counts.values()), "by_reader": counts, "seconds": round(time.monotonic() - began, 1),
            "peak_bytes": most, "failures": failures}  # fmt: skip


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
    return {"inputs": sum(each["inputs"] for each in found),
            "by_reader": {name: n for each in found for name, n in each["by_reader"].items()},
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
