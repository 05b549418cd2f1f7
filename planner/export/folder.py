"""Bundles on the disk: a folder appears whole or not at all, and nothing outside it is touched."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from planner.errors import WrongQuestion
from planner.export.bundle import Bundle

EXECUTABLE = (".sh", ".sbatch")


def write(folder: Path, bundles: Mapping[str, Bundle], *, replace: bool = False) -> None:
    """Writes each bundle into the sub-folder of its key (``""``: the folder itself), all of them at once.

    Files are written beside the folder's place, then the folder is renamed into it; an empty folder is filled and kept.

    Raises:
        WrongQuestion: something is there already (unless `replace`, and export wrote it), or it cannot be written.
    """
    target = Path(os.path.abspath(folder))  # noqa: PTH100 - a link at the end stays a link
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise WrongQuestion(f"{folder}: exists already and is no folder; choose another (-o DIR)")
    occupied = target.exists() and any(target.iterdir())
    if occupied and not replace:
        raise WrongQuestion(f"{folder}: is not empty; choose another (-o DIR), or --force to replace it")
    if occupied and not _ours(target):
        raise WrongQuestion(f"{folder}: holds files that export did not write; choose another (-o DIR)")
    beside = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    old = target.with_name(f".{target.name}.{os.getpid()}.old")
    try:
        for name, bundle in bundles.items():
            _fill(beside / name, bundle)
        if target.exists() and not occupied:
            _moved_in(beside, target)
            return
        if target.exists():
            target.rename(old)
        try:
            beside.rename(target)
        except OSError:
            if old.exists():
                old.rename(target)
            raise
    except OSError as error:
        raise WrongQuestion(f"{folder}: cannot be written: {error.strerror or error}") from None
    finally:
        shutil.rmtree(beside, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


def _moved_in(beside: Path, target: Path) -> None:
    """Fills an empty folder that somebody may stand in: it stays the folder that it is, or stays empty."""
    moved = []
    try:
        for path in sorted(beside.iterdir()):
            path.rename(target / path.name)
            moved.append(target / path.name)
    except OSError:
        for path in moved:
            path.rename(beside / path.name)
        raise


def _fill(folder: Path, bundle: Bundle) -> None:
    folder.mkdir(parents=True)
    for name, text in bundle.files.items():
        if Path(name).name != name:
            raise ValueError(f"{name!r} is not the name of a file")
        path = folder / name
        path.write_text(text, encoding="utf-8")
        if name.endswith(EXECUTABLE):
            path.chmod(0o755)


def _ours(folder: Path) -> bool:
    """Whether export wrote everything in there: every file stands beside a ``target.json`` that lists it."""
    import json

    for path in folder.rglob("*"):
        if path.is_dir() and not path.is_symlink():
            continue
        try:
            said = json.loads((path.parent / "target.json").read_text(encoding="utf-8"))
            listed = said["kind"] == "target" and path.name in said["files"]
        except (OSError, ValueError, KeyError, TypeError):
            return False
        if not listed:
            return False
    return True
