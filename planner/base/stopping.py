"""Ctrl-C on a search that has an answer already: the best so far is what is told, and what is left of the work is not
done.

An integer program is interrupted (:class:`Watch`); a search over layouts looks whether it was asked to end
(:func:`asked`), and a second Ctrl-C ends the program.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

T = TypeVar("T")
U = TypeVar("U")
Note = Callable[[str], None]
INTERRUPTED = 130
"""Exit code of what Ctrl-C ended, with an answer or without: 128 + SIGINT."""
STOPPED = "stopped"
"""How the method of a search ends that was asked to end."""
_ASKED = threading.Event()


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


def note_of(advance: object) -> Note | None:
    """What shows a text beside the progress, where ``advance.notes`` says that ``advance(0, text)`` does."""
    return partial(advance, 0) if callable(advance) and getattr(advance, "notes", False) else None


def asked() -> bool:
    """Whether the search under way was asked to end with the best so far."""
    return _ASKED.is_set()


@contextmanager
def best_so_far() -> Iterator[Callable[[], bool]]:
    """Until this is left, the first Ctrl-C only sets what :func:`asked` returns, for searches that look at it; where
    the signal is handled by somebody else, or not in this thread, nothing changes.
    """
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield asked
        return

    def ask(*_: object) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        _ASKED.set()

    signal.signal(signal.SIGINT, ask)
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        _ASKED.clear()
