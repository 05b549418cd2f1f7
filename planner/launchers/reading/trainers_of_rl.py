"""Which trainer of post-training a configuration is for, and its stated step."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from planner.launchers.reading import nemo_rl, openrlhf, trl_rl, verl
from planner.launchers.reading.post_training import StatedStep
from planner.launchers.reading.started import Started, of_script, text_of

_MARKS = {
    openrlhf.SOURCE: re.compile(r"\btrain_ppo_ray\b"),
    "verl": re.compile(r"\bverl\.(trainer|experimental)\.(?!\w*sft)\w|^actor_rollout_ref\s*:", re.MULTILINE),
    "nemo-rl": re.compile(r"run_grpo\w*\.py|^(grpo|loss_fn)\s*:|^defaults\s*:.*grpo.*yaml", re.MULTILINE),
    "trl": re.compile(
        r"\btrl (grpo|rloo)\b|\w*(grpo|rloo)\w*\.py\b.*--|^(num_generations|vllm_mode)\s*:", re.MULTILINE
    ),
}
COMMANDS = {openrlhf.SOURCE: openrlhf.read, "verl": verl.read, "nemo-rl": nemo_rl.read, "trl": trl_rl.read}
FILES = {"verl": verl.read_file, "nemo-rl": nemo_rl.read_file, "trl": trl_rl.read_file}
SOURCES = tuple(COMMANDS)
_FILE = re.compile(r"\A(\s*#[^\n]*\n|\s*\n|---\n)*[\w.]+:(\s|$)")


def detected(text: str) -> str | None:
    """The trainer by whose words a configuration is known; `text` is a command, or names a file."""
    inner = text_of(text)
    return next((source for source, mark in _MARKS.items() if mark.search(inner)), None)


def read(source: str, text: str, started: Started) -> StatedStep:
    """What a configuration states.

    Raises:
        WrongQuestion: it cannot be read, or says what no stated step holds.
    """
    folder = Path(text).parent if len(text) < 4096 and Path(text).is_file() else Path()
    how = ""
    if source in FILES and _FILE.match(text_of(text)):
        step = FILES[source](text_of(text), folder, tuple(started.files), started.ignored)
    else:
        step, how = of_script(COMMANDS[source], text, folder, started)
    assumed = [*([how] if how else [])]
    if started.ignored:
        assumed.append(f"left out as asked: {', '.join(sorted(started.ignored))}")
    return replace(step, assumed=(*step.assumed, *assumed))
