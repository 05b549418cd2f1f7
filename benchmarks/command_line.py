"""CPU seconds of whole commands in a new process, user and system together: the median of five.

One run before those compiles the sources, as an installation does; the compiled files go to a folder of their own.
With --tiny a command is run once, as it is.

python benchmarks/command_line.py [--json] [--tiny]
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import measure

ROOT = Path(__file__).resolve().parent.parent
COMMANDS = ("--help", "plan llama3-70b --cluster dgx-h100:16")


def environment(compiled: str) -> dict[str, str]:
    """The caller's environment, with compiled files kept in the given folder."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return kept | {"PYTHONPYCACHEPREFIX": compiled}


def run(command: str, around: dict[str, str]) -> tuple[float, float]:
    """CPU and wall seconds of one run, its output thrown away.

    Raises:
        SystemExit: the command failed.
    """
    started = time.perf_counter()
    line = [sys.executable, str(ROOT / "cli.py"), *command.split()]
    with subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=around) as child:
        assert child.stderr is not None
        said = child.stderr.read()
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"clusterwright {command}: exit code {child.returncode}\n{said}")
    return usage.ru_utime + usage.ru_stime, time.perf_counter() - started


def measured(command: str, runs: int) -> dict[str, object]:
    """One command's medians."""
    with tempfile.TemporaryDirectory() as compiled:
        around = environment(compiled) if runs > 1 else dict(os.environ)
        taken = [run(command, around) for _ in range(runs + (runs > 1))][-runs:]
    cpu, wall = zip(*taken, strict=True)
    return {"command": command, "cpu_s": statistics.median(cpu), "wall_s": statistics.median(wall), "runs": runs}


def main(argv: Sequence[str] | None = None) -> None:
    """Measures every command and prints what was found."""
    options = measure.arguments(__doc__, argv)
    rows = [measured(command, 1 if options.tiny else 5) for command in COMMANDS]
    measure.show({"commands": rows, "machine": measure.machine()}, rows, options.json)


if __name__ == "__main__":
    main()
