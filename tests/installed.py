"""Every example of README and of the helps with an installed program: ``python -m tests.installed CLUSTERWRIGHT``.

Run by ``make installed`` on a wheel in an environment of its own, in a folder where nothing of the checkout is. What an
example reads and no example writes is put there first. Each must answer (0) or find no plan (1). Prints one line each.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests import fuzzing, profiles_of_steps, training_logs
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
    "learn shortlist-megatron+slurm": "needs logs of a cluster",
    "learn train.log": "several plans of the set could be what ran: --rank",
    "learn --share": "asks before it writes",
    "report": "needs clusterwright[report]",
    "mcp": "answers until it is ended",
    "serve": "answers until it is ended",
    "design merge": "needs all shards",
    "export plan.json --to torchtitan": "needs a plan that torchtitan can run: of ZeRO 0, 2 or 3",
    "profile import profile.json": "needs a file of Sailor",
}
"""How an example begins, and why it is not run."""
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
    "comm choose plan.json -o mixed.json",
    "profile import profiles.csv --model opt-350m -o my-catalog",
    "comm import measured.csv --from csv -o table.csv",
    "design study.toml --trials 20 --quick --storage study.journal",
)
"""Commands whose files the examples read."""


def texts() -> dict[str, str]:
    """Files that a user brings along."""
    start = (ROOT / "tests/golden/export/megatron/start.sh").read_text(encoding="utf-8")
    steps = [each for n in range(3) for each in profiles_of_steps.a_step(n, 20.0 * n)]
    trace = json.dumps(profiles_of_steps.kineto(steps))
    runs = (ROOT / "benchmarks/data/measured_runs.csv").read_text(encoding="utf-8").splitlines(keepends=True)
    collectives = (
        (ROOT / "benchmarks/data/measured_collectives.csv").read_text(encoding="utf-8").splitlines(keepends=True)
    )
    return {
        "train.sh": start, "megatron.sh": start, "config.json": json.dumps(CONFIG),
        "path/config.json": json.dumps(CONFIG), "my-runs.csv": "".join(runs[:30]),
        "ds_config.json": (ROOT / "tests/golden/export/deepspeed/ds_config.json").read_text(encoding="utf-8"),
        "train.log": "\n".join([*training_logs.megatron([1.1 * s for s in training_logs.STEADY]), ""]),
        "profiles.csv": "".join([fuzzing.PROFILE_HEADER, *fuzzing.PROFILE_ROWS]), "measured.csv": fuzzing.COLLECTIVES,
        "all_reduce.txt": NCCL, "rank0.json": trace, "rank8.json": trace,
        "nccl.csv": "".join(collectives[:400]),
    }  # fmt: skip


def examples() -> Iterator[str]:
    """Lines of README and of the helps, without the program's name."""
    pages = (ROOT / "README.md").read_text(encoding="utf-8")
    lines = re.findall(r"^(?:\$ )?clusterwright (.*)$", pages, re.MULTILINE)
    lines += [
        line for _, text in generate.all_commands() for line in re.findall(r"^    clusterwright (.*)$", text, re.M)
    ]
    yield from dict.fromkeys(line.partition("  #")[0].strip() for line in lines if "..." not in line)


def asked(program: Path, line: str, folder: Path) -> tuple[int, float, str]:
    """Exit code, seconds, and the last that an example said."""
    began = time.monotonic()
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("CLUSTERWRIGHT", "PYTHON"))
    }
    words = [
        "bash",
        "-c",
        f"{shlex.quote(str(program))} {line}",
    ]  # as it is typed: patterns, quotes and > are a shell's
    done = subprocess.run(words, cwd=folder, env=environment | {"HOME": str(folder)}, capture_output=True, text=True,
                          check=False, timeout=600)  # fmt: skip
    return done.returncode, time.monotonic() - began, (done.stderr or done.stdout).strip().splitlines()[-1:][0]


def main(program: Path) -> int:
    """Asks all of them; how many went wrong."""
    wrong = 0
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for name, text in texts().items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
        for trace in folder.glob("rank*.json"):
            trace.with_suffix(".json.gz").write_bytes(gzip.compress(trace.read_bytes()))
        for line in [*FIRST, *examples()]:
            if reason := next((why for start, why in LEFT_OUT.items() if line.startswith(start)), ""):
                print(f"left out  {line}: {reason}", flush=True)
                continue
            code, seconds, said = asked(program, line, folder)
            there = "exists already" in said
            wrong += code not in (0, 1) and not there
            print(f"{code}  {seconds:5.1f} s  {line}{f'  {said}' if code else ''}", flush=True)
    return wrong


if __name__ == "__main__":
    sys.exit(bool(main(Path(sys.argv[1]).absolute())))
