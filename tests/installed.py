"""Every example of README, tutorials and helps with an installed program: ``python -m tests.installed CLUSTERWRIGHT``.

Run by ``make installed`` on a wheel in an environment of its own. Every page's examples run in their order in a folder
where nothing of the checkout is: what they read and none of them writes is put there first, what they write is not.
Each must answer (0), but for those that are known to find no plan (1). Prints one line each.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests import profiles_of_steps, right_files, training_logs
from tests.test_comm_table import NCCL
from tests.test_docs import ROOT, generate
from tests.test_killed import CONFIG

LEFT_OUT = {
    "calibrate --measure": "needs PyTorch",
    "comm tune": "needs PyTorch",
    "catalog import-prices": "needs SkyPilot's lists",
    "calibrate benchmarks/data/measured_runs.csv": "takes minutes",
    "calibrate my-runs.csv": "needs runs of one's own; the journal's are fitted",
    "calibrate --site": "needs measured runs of one's own in number",
    "comm import osu_alltoall.txt": "needs a table of the OSU benchmarks",
    "comm import comms.json": "needs a file of DeepSpeed's logger",
    "design study.toml --trials 1000": "takes minutes; with 20 trials before",
    "design study.toml --engine dask": "needs clusterwright[dask], and a Dask cluster",
    "learn shortlist-megatron+slurm": "needs logs of a cluster",
    "learn train.log": "several plans of the set could be what ran: --rank",
    "learn --share": "asks before it writes",
    "report": "needs clusterwright[report]",
    "mcp": "answers until it is ended",
    "serve": "answers until it is ended",
    "design merge": "needs all shards",
    "profile import profile.json": "needs a file of Sailor",
}
"""How an example begins, and why it is not run."""
NO_PLAN = (
    "plan llama3.1-405b --cluster dgx-a100-40gb:4",
    "estimate llama3-70b --cluster dgx-h100:16 tp=4 pp=4 vpp=5",
    "import ds_config.json",
)
"""How those begin that find no plan: what was asked does not fit."""
TIMED = "H100-SXM5-80GB"
TABLE = "backend,op,ranks,bytes,seconds\n" + "".join(
    f"nccl,{op},{ranks},{size},{1e-5 + size * ranks / 8e12}\n"
    for op in ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "send")
    for ranks in (2, 8, 32)
    for size in (1 << 10, 1 << 20, 1 << 30)
)
"""Times of every operation of a plan, as a user's own would be."""
FIRST = (
    "examples --all .",
    "init portfolio lab.toml",
    "init study study.toml",
    "init site my-site",
    "init cluster my-cluster.toml",
    "plan llama3-8b --cluster dgx-h100:4 --shortlist 5 --to megatron+slurm -o shortlist.json",
    "plan llama3-8b --cluster dgx-h100:4 --batch 128 --top 3 -o plan.json",
    "plan llama3-70b --cluster dgx-h100:16 -o best.json",
    "procure examples/portfolios/pretrain-8b.toml --quick -o offer.json",
    "import train.sh --from megatron --cluster dgx-h100:16 --model llama3-8b -o mine.json",
    "profile import profiles.csv --model opt-350m -o my-catalog",
    "comm import measured.csv --from csv -o table.csv",
    "design study.toml --trials 20 --quick --storage study.journal",
)
"""Commands whose files the examples read."""


def texts() -> dict[str, str]:
    """Files that a user brings along."""
    start = (ROOT / "tests/golden/export/megatron/start.sh").read_text(encoding="utf-8")
    steps = [each for n in range(3) for each in profiles_of_steps.a_step(n, 20.0 * n)]
    runs = (ROOT / "benchmarks/data/measured_runs.csv").read_text(encoding="utf-8").splitlines(keepends=True)
    return {
        "train.sh": start, "megatron.sh": start, "config.json": json.dumps(CONFIG),
        "path/config.json": json.dumps(CONFIG), "my-runs.csv": "".join(runs[:30]),
        "ds_config.json": (ROOT / "tests/golden/export/deepspeed/ds_config.json").read_text(encoding="utf-8"),
        "train.log": "\n".join([*training_logs.megatron([1.1 * s for s in training_logs.STEADY]), ""]),
        "profiles.csv": "".join([right_files.PROFILE_HEADER, *right_files.PROFILE_ROWS]), "measured.csv": TABLE,
        "all_reduce.txt": NCCL, "rank0.json": json.dumps(profiles_of_steps.kineto(steps)),
        "rank8.json": json.dumps(profiles_of_steps.kineto(steps, 8)), "nccl.csv": collectives(),
    }  # fmt: skip


def collectives() -> str:
    """Timed collectives of one accelerator within a node, as its owner has them."""
    with (ROOT / "benchmarks/data/measured_collectives.csv").open(encoding="utf-8", newline="") as there:
        rows = [row for row in csv.DictReader(there) if row["accelerator"] == TIMED and row["nodes"] == "1"]
    table = io.StringIO()
    writer = csv.DictWriter(table, ["op", "gpus", "message_bytes", "time_us"], extrasaction="ignore")
    writer.writeheader()
    writer.writerows(rows)
    return table.getvalue()


def pages() -> Iterator[tuple[str, list[str]]]:
    """README, the tutorials and the helps, each with its examples in their order, without the program's name."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    yield "README.md", _commands(re.findall(r"^clusterwright (.*)$", readme, re.MULTILINE))  # excerpts are of these:
    for page in sorted((ROOT / "docs").glob("tutorial-*.md")):
        yield (
            page.name,
            _commands(re.findall(r"^\$ clusterwright (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)),
        )
    for path, text in generate.all_commands():
        yield path, _commands(re.findall(r"^    clusterwright (.*)$", text, re.MULTILINE))


def _commands(lines: list[str]) -> list[str]:
    return list(dict.fromkeys(line.partition("  #")[0].strip() for line in lines if "..." not in line))


def asked(program: Path, line: str, folder: Path) -> tuple[int, float, str]:
    """Exit code, seconds, and the last that an example said."""
    began = time.monotonic()
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("CLUSTERWRIGHT", "PYTHON"))
    }
    words = ["bash", "-c", f"{shlex.quote(str(program))} {line}"]  # as it is typed: quotes and > are a shell's
    done = subprocess.run(words, cwd=folder, env=environment | {"HOME": str(folder)}, capture_output=True, text=True,
                          check=False, timeout=600)  # fmt: skip
    said = (done.stderr or done.stdout).strip().splitlines()
    return done.returncode, time.monotonic() - began, said[-1] if said else ""


def main(program: Path) -> int:
    """Asks all of them; how many went wrong."""
    wrong = 0
    with tempfile.TemporaryDirectory() as place:
        brought = Path(place) / "brought"
        bring(brought)
        wrong += sum(not goes(program, line, brought) for line in FIRST)
        for number, (page, lines) in enumerate(pages()):
            print(f"\n{page}" if lines else "", end="\n" if lines else "", flush=True)
            folder = Path(place) / str(number)
            shutil.copytree(brought, folder)
            forget(folder, lines)
            wrong += sum(not goes(program, line, folder) for line in lines)
    print(f"\n{wrong} went wrong", flush=True)
    return wrong


def bring(folder: Path) -> None:
    """Writes what a user has before the first command; fish makes the folder of its completions itself."""
    for name, text in texts().items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    for trace in folder.glob("rank*.json"):
        trace.with_suffix(".json.gz").write_bytes(gzip.compress(trace.read_bytes()))
    (folder / ".config/fish/completions").mkdir(parents=True)


def forget(folder: Path, lines: list[str]) -> None:
    """Removes what a page's own lines write before they read it."""
    for number, line in enumerate(lines):
        written = re.search(r"^init \w+ (\S+)|-o (\S+)", line)
        name = written and (written[1] or written[2])
        if not name or left_out(line) or any(name in earlier.split() for earlier in lines[:number]):
            continue
        there = folder / name
        shutil.rmtree(there) if there.is_dir() else there.unlink(missing_ok=True)


def left_out(line: str) -> str:
    """Why an example is not run, or nothing."""
    return next((why for start, why in LEFT_OUT.items() if line.startswith(start)), "")


def goes(program: Path, line: str, folder: Path) -> bool:
    """Runs and prints one example; whether it did what it should, or is left out."""
    if why := left_out(line):
        print(f"left out  {line}: {why}", flush=True)
        return True
    code, seconds, said = asked(program, line, folder)
    right = code == int(line.startswith(NO_PLAN))
    print(f"{code}  {seconds:5.1f} s  {line}{'' if right else f'  WRONG: {said}'}", flush=True)
    return right


if __name__ == "__main__":
    sys.exit(bool(main(Path(sys.argv[1]).absolute())))
