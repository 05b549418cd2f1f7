"""What long work shows of itself: how far it is, to whoever watches, and the seconds that it took."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

Advance = Callable[..., None]
Progress = Callable[[str, float | None], AbstractContextManager[Advance]]
"""Given what is done and how many units of it, a context that yields ``advance(n)``."""


def advancing(
    progress: Progress | None, what: str, units: float | None = None
) -> AbstractContextManager[Advance | None]:
    """The context of some work, of so many units if that is known; where nobody watches, it yields None."""
    return progress(what, units) if progress else nullcontext()


class Clock:
    """Seconds since it was made."""

    def __init__(self) -> None:
        self._wall_s = time.perf_counter()
        self._cpu_s = time.process_time()

    def seconds(self) -> dict[str, Any]:
        """Seconds on the wall and of this process."""
        return {
            "wall_s": round(time.perf_counter() - self._wall_s, 3),
            "cpu_s": round(time.process_time() - self._cpu_s, 3),
        }

    def meta(self) -> dict[str, Any]:
        """What a document says of how it was made: the seconds, and on which kind of machine."""
        return {**self.seconds(), "host": platform.machine()}
