"""What Hugging Face's Trainer says of a whole run: seconds, steps in a second, samples in a second."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from planner.site.logs import formats

MOST_ROUNDED = 0.01
"""Share of a rate that may have been lost when it was printed."""
DECIMALS = 0.0005
"""Half of the last of a rate's three decimals, of which zeros are not printed."""


@dataclass(slots=True)
class Summary:
    """The last lines of a run, as texts."""

    texts: dict[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self.texts)

    def note(self, line: str) -> None:
        """Notes what a line says of the run."""
        for name, pattern in formats.SUMMARY.items():
            if match := pattern.search(line):
                self.texts[name] = match[1]

    def step_s(self, total: int, first: int, stated: Mapping[str, str]) -> float | None:
        """Mean seconds of a step over the whole run; None where nothing says it to a hundredth.

        Args:
            total: Steps of the run, 0 where no line says so.
            first: The step that a run went on from.
            stated: Arguments of the run.
        """
        steps = (int(self.texts.get("ended_at", 0)) or total) - max(first - 1, 0)
        if "runtime" in self.texts and steps > 0:
            return formats.seconds_of(self.texts["runtime"]) / steps
        if first > 1:
            return None  # rates count the steps of runs before, too
        batch = stated.get("Total train batch size", "")
        rates = [(self.texts.get("rate", "0"), 1.0)]
        rates += [(self.texts.get("samples", "0"), float(batch))] if batch.isdecimal() else []
        of_rates = [(formats.number(text), steps) for text, steps in rates]
        exact = [(DECIMALS / rate, steps / rate) for rate, steps in of_rates if rate * MOST_ROUNDED >= DECIMALS]
        return min(exact)[1] if exact else None
