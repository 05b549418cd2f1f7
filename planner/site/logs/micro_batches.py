"""Steps of a framework that prints each micro-batch and marks the last one of a step (litgpt), or whose bar counts them
(Lightning, where gradients of several batches add up).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from planner.site.logs import formats
from planner.site.logs.records import LoggedStep


def of_bar(match: re.Match[str]) -> str:
    """Why a bar's time is none of a step, in words: it counts twice the steps and more; empty where it does not."""
    groups = match.groupdict()
    done = groups.get("done") or groups.get("step_of_bar")
    bar = groups.get("bar") or (groups.get("step") if groups.get("done") else None)
    if bar is None or done is None or int(bar) <= 2.0 * (float(done) + 1.0):
        return ""
    return f"its bar is at {int(bar):,} after {float(done):,.0f} steps: it counts micro-batches, and times one of them"


@dataclass(slots=True)
class MicroBatches:
    """Micro-batches since the last step."""

    seconds: float = 0.0
    lines: int = 0
    iteration: int | None = None
    """Micro-batches until the last step."""
    at: int = 0
    """Number of the last step."""
    unread: str = ""
    """Why no step time follows, where that is so."""

    def step(self, match: re.Match[str], disturbed: bool) -> LoggedStep | None:
        """The step that a line ends; None where it ends none, or where micro-batches of the step were not printed."""
        iteration = int(match["iteration"])
        number = int(match["step"])
        seconds = formats.number(match["ms"]) / 1e3
        self.seconds += seconds
        self.lines += 1
        if match["last"] is None:
            return None
        before = self.iteration
        steps = number - self.at
        summed = self.seconds
        lines = self.lines
        self.seconds = 0.0
        self.lines = 0
        self.iteration = iteration
        self.at = number
        if before is None or steps <= 0:
            return None
        of_each = (iteration - before) / steps
        if of_each == 1:
            summed = seconds
        elif lines != iteration - before or steps != 1:
            self.unread = f"prints the time of one micro-batch of {of_each:g}, not of a step"
            return None
        return LoggedStep(number, summed, "step", None, disturbed, formats.rounding(match["ms"]))
