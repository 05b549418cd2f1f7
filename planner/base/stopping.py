"""Ctrl-C on a search that has an answer already: the best so far is what is told, and what is left of the work is not
done.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")
U = TypeVar("U")
INTERRUPTED = 130
"""Exit code of what Ctrl-C ended, with an answer or without: 128 + SIGINT."""


def _silent(_: str) -> None:
    """Tell nobody."""


@dataclass
class Watch:
    """Who watches one search: it is told of the best answer and the bound, and may be content with them."""

    keeps: bool = False
    """Whether Ctrl-C ends the search with the best answer so far; else it ends everything."""
    say: Callable[[str], None] = _silent
    """Shown beside the progress of the work."""
    stopped: bool = False
    """Whether Ctrl-C ended the search."""

    def found(self, value: float, bound: float) -> None:
        """Tell of the best answer so far and of what none is better than."""
        self.say(f"best {value:,.5g}, bound {bound:,.5g}")

    def stop(self) -> None:
        """Note that the search ends here. Called where KeyboardInterrupt was caught, with an answer at hand.

        Raises:
            KeyboardInterrupt: nobody is content with less than the whole search.
        """
        if not self.keeps:
            raise KeyboardInterrupt
        self.stopped = True

    def optional(self, work: Callable[[], T], without: U) -> T | U:
        """What some work finds that an answer can do without; `without` where the search is or was stopped."""
        if self.stopped:
            return without
        found: T | U = without
        try:
            found = work()
        except KeyboardInterrupt:
            self.stop()
        whole = not self.stopped  # the work itself may have been stopped, and its answer be less than it should
        return found if whole else without
