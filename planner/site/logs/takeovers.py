"""Where another framework takes over in a file: its lines begin behind the last of those before, which end there.

That is known when all lines are read. A run of its own begins with the configuration that is dumped between the two,
else with the first step of the second.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from planner.site.logs.steady import FEWEST


@dataclass(slots=True)
class Span:
    """The lines about steps of one format."""

    cut: int
    """Number of the line with which its run would begin."""
    dumped: bool
    """Whether a configuration is dumped there."""
    first: int
    last: int
    count: int = 1


@dataclass(slots=True)
class Spans:
    """The lines of a run by the name of their format."""

    by_format: dict[str, Span] = field(default_factory=dict)
    dumped_at: int | None = None
    """Number of the line behind the last step at which a configuration is dumped."""

    def note_dump(self, number: int) -> None:
        """Notes that a line says something of a configuration."""
        self.dumped_at = self.dumped_at or number

    def note_step(self, name: str, number: int) -> None:
        """Notes that a line of a format is about a step."""
        span = self.by_format.get(name)
        if span is None:
            at = self.dumped_at if self.by_format else None
            self.by_format[name] = Span(cut=at or number, dumped=at is not None, first=number, last=number)
        else:
            span.last = number
            span.count += 1
        self.dumped_at = None

    def cuts(self, without: str) -> Iterator[int]:
        """The lines with which runs of other frameworks begin; formats have several lines where none is dumped.

        Args:
            without: A format whose lines may be of anything; empty of none.
        """
        spans = [span for name, span in self.by_format.items() if name != without]
        for span in spans:
            before = [other for other in spans if other.first < span.first]
            if not before or max(other.last for other in before) >= span.cut:
                continue
            if span.dumped or (span.count > FEWEST and max(other.count for other in before) > FEWEST):
                yield span.cut
