"""What people train with today, read back: a launcher's configuration to what ``estimate`` is asked."""

from __future__ import annotations

from planner.launchers.reading.imported_plan import Present, plan
from planner.launchers.reading.source import SOURCES, detect, read
from planner.launchers.reading.started import Started

__all__ = ["SOURCES", "Present", "Started", "detect", "plan", "read"]
