"""Plans as files that launchers start. One file a target; :mod:`planner.export.target` says what a target is."""

from __future__ import annotations

from planner.export.bundle import Bundle, bundle, of_its_pools
from planner.export.folder import write
from planner.export.registry import EXPORTERS, parts

__all__ = ["EXPORTERS", "Bundle", "bundle", "of_its_pools", "parts", "write"]
