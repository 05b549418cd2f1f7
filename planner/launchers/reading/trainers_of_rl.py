"""Which trainer of post-training a configuration is for, and its stated step."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from planner.launchers.reading import nemo_rl, openrlhf, trl_rl, verl
from planner.launchers.reading.post_training import StatedStep
from planner.launchers.reading.shell.script import Script
from planner.launchers.reading.started import Started, of_script, text_of

_MARKS = {
    openrlhf.SOURCE: re.compile(r"\btrain_ppo_ray\b"),
    "verl": re.compile(
        r"\bverl\.(trainer|experimental)\.(?!\w*sft)\w|^actor_rollout_ref\s*:|\bactor_rollout_ref\.rollout\.",
        re.MULTILINE,
    ),
    "nemo-rl": re.compile(r"run_grpo\w*\.py|^(grpo|loss_fn)\s*:|^defaults\s*:.*grpo.*yaml", re.MULTILINE),
    "trl": re.compile(
        r"\btrl (grpo|rloo)\b|\w*(grpo|rloo)\w*\.py\b.*--|^(num_generations|vllm_mode)\s*:", re.MULTILINE
    ),
}
COMMANDS: Mapping[str, Callable[[Script, int | None], StatedStep]] = {
    openrlhf.SOURCE: lambda commands, machines: openrlhf.read(commands),
    "verl": lambda commands, machines: verl.read(commands),
    "nemo-rl": lambda commands, machines: nemo_rl.read(commands),
    "trl": trl_rl.read,
}
FILES: Mapping[str, Callable[[str, Path, tuple[Path, ...], frozenset[str], int | None], StatedStep]] = {
    "verl": lambda text, folder, given, ignored, machines: verl.read_file(text, folder, given, ignored),
    "nemo-rl": lambda text, folder, given, ignored, machines: nemo_rl.read_file(text, folder, given, ignored),
    "trl": trl_rl.read_file,
}
SOURCES = tuple(COMMANDS)
_FILE = re.compile(r"\A(\s*#[^\n]*\n|\s*\n|---\n)*[\w.]+:(\s|$)")


def detected(text: str) -> str | None:
    """The trainer by whose words a configuration is known; `text` is a command, or names a file."""
    inner = text_of(text)
    return next((source for source, mark in _MARKS.items() if mark.search(inner)), None)


def read(source: str, text: str, started: Started, machines: int | None = None) -> StatedStep:
    """What a configuration states.

    Args:
        source: One of :data:`SOURCES`.
        text: A command line, or the name of a file.
        started: How a script is started, and what of it is left out.
        machines: Accelerators that it is priced on, where a trainer leaves its processes to who starts it.

    Raises:
        WrongQuestion: it cannot be read, or says what no stated step holds.
    """
    folder = Path(text).parent if len(text) < 4096 and Path(text).is_file() else Path()
    how = ""
    if source in FILES and _FILE.match(text_of(text)):
        step = FILES[source](text_of(text), folder, tuple(started.files), started.ignored, machines)
    else:
        step, how = of_script(lambda commands: COMMANDS[source](commands, machines), text, folder, started)
    assumed = [*([how] if how else [])]
    if started.ignored:
        assumed.append(f"left out as asked: {', '.join(sorted(started.ignored))}")
    return replace(step, assumed=(*step.assumed, *assumed))
