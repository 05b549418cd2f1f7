"""CPU seconds of whole commands in a new process, user and system together: the median of five.

python benchmarks/command_line.py [--json] [--tiny]
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import measure

measure.one_thread()

COMMANDS = ("--help", "plan llama3-70b --cluster dgx-h100:16")


def run(command: str) -> tuple[float, float]:
    """CPU and wall seconds of one run, its output thrown away.

    Raises:
        SystemExit: the command failed.
    """
    started = time.perf_counter()
    line = [sys.executable, str(ROOT / "cli.py"), *command.split()]
    with subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as child:
        assert child.stderr is not None
        said = child.stderr.read()
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"clusterwright {command}: exit code {child.returncode}\n{said}")
    return usage.ru_utime + usage.ru_stime, time.perf_counter() - started


def measured(command: str, runs: int) -> dict[str, object]:
    """One command's medians, after one run that only warms the file cache."""
    if runs > 1:
        run(command)
    cpu, wall = zip(*(run(command) for _ in range(runs)), strict=True)
    return {"command": command, "cpu_s": statistics.median(cpu), "wall_s": statistics.median(wall), "runs": runs}


def main(argv: Sequence[str] | None = None) -> None:
    """Measures every command and prints what was found."""
    options = measure.arguments(__doc__, argv)
    rows = [measured(command, 1 if options.tiny else 5) for command in COMMANDS]
    measure.show({"commands": rows, "machine": measure.machine()}, rows, options.json)


if __name__ == "__main__":
    main()
