"""Finds the data folders: inside the package once installed, beside it in a checkout."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def data(name: str) -> Path:
    """The folder `name` (``hardware_catalog`` or ``models``): packaged if present, else beside the package."""
    packaged = _PACKAGE / name
    return packaged if packaged.is_dir() else _PACKAGE.parent / name
