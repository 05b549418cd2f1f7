"""What people train with today, read back: a launcher's configuration to what ``estimate`` is asked."""

from __future__ import annotations

from planner.launchers.reading.present import SOURCES, Present, Started, plan, read

__all__ = ["SOURCES", "Present", "Started", "plan", "read"]
