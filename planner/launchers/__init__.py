"""Plans as files that launchers start. One file a target; :mod:`planner.launchers.target` says what a target is."""

from __future__ import annotations

from planner.launchers.bundle import Bundle, bundle, of_its_pools
from planner.launchers.folder import write
from planner.launchers.registry import EXPORTERS, parts

__all__ = ["EXPORTERS", "Bundle", "bundle", "of_its_pools", "parts", "write"]
