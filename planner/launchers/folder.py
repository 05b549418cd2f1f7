"""Bundles on the disk: a folder appears whole or not at all, and nothing outside it is touched."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from planner.base import writing
from planner.base.errors import WrongQuestion
from planner.base.reading import short_hash
from planner.launchers import quoting
from planner.launchers.bundle import Bundle
from planner.schema.digest import DIGEST, is_edited, sealed

EXECUTABLE = (".sh", ".sbatch")
TARGET_FILE = "target.json"
"""What makes a folder one of ours; where files are moved one by one it comes last."""
DIGESTS = "sha256"
"""Its key of what the files hold."""
LARGEST = 64_000_000
"""Bytes of a folder's files that are read to see whether export wrote them; its own are some hundred thousand."""


def write(folder: Path, bundles: Mapping[str, Bundle], *, replace: bool = False) -> None:
    """Writes each bundle into the sub-folder of its key (``""``: the folder itself), all of them at once.

    All files are written apart. A new folder is renamed into its place; one that is there is exchanged for it in one
    step, where the system can: then who stands in it stands in the old one, which goes.

    Raises:
        WrongQuestion: something is there already (unless `replace`, and export wrote it), or it cannot be written.
    """
    target = Path(os.path.abspath(folder))  # noqa: PTH100 - a link at the end stays a link
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise WrongQuestion(f"{folder}: exists already and is no folder; choose another (-o DIR)")

    def fill(made: Path) -> None:
        for name, bundle in bundles.items():
            _fill(made / name, bundle)

    try:
        if target.exists():
            _refuse(folder, [*target.iterdir()], replace)
        writing.put_folder(target, fill, TARGET_FILE)
    except OSError as error:
        raise WrongQuestion(f"{folder}: cannot be written: {error.strerror or error}") from None


def _refuse(folder: Path, held: list[Path], replace: bool) -> None:
    """Stops before anything that export did not write."""
    strange = next((name for path in held for name in _not_ours(path)), None)
    if strange is not None:
        raise WrongQuestion(
            f"{folder}: is not empty: export did not write {quoting.line(strange)} as it is, and replaces only folders "
            f"that hold nothing but what it wrote; choose another (-o DIR) or move that away"
        )
    if held and not replace:
        raise WrongQuestion(f"{folder}: is not empty; choose another (-o DIR), or --force to replace it")


def _not_ours(path: Path) -> list[str]:
    """What of a file, or in a folder of a set, no ``target.json`` beside it vouches for; empty folders are nobody's."""
    if not path.is_dir() or path.is_symlink():
        return [] if path.name in _listed(path.parent) else [path.name]
    inside = [*path.iterdir()]
    listed = _listed(path)
    wrong = [f"{path.name}/{inner.name}" for inner in inside if inner.is_dir() or inner.name not in listed]
    return wrong if inside else [path.name]


def _listed(folder: Path) -> list[str]:
    """The files of a folder that are as export wrote them, by digests in a ``target.json`` that bears its own digest.

    A list alone, which anybody may have put there, gives nothing away. Nor does one that names what lies elsewhere,
    links, pipes, or more than :data:`LARGEST` bytes.
    """
    files = {path.name: path for path in folder.iterdir() if path.is_file() and not path.is_symlink()}
    try:
        if sum(path.stat().st_size for path in files.values()) > LARGEST:
            return []
        target = json.loads(files[TARGET_FILE].read_text(encoding="utf-8"))
        if target["kind"] != "target" or DIGEST not in target or is_edited(target):
            return []
        digests = target[DIGESTS]
        same = [name for name, path in files.items() if digests.get(name) == short_hash(path.read_bytes())]
        return [*same, TARGET_FILE]
    except (AttributeError, OSError, ValueError, KeyError, TypeError, RecursionError):
        return []


def _sealed(bundle: Bundle) -> Mapping[str, str]:
    """The bundle's files, the digest of each in ``target.json``."""
    if TARGET_FILE not in bundle.files:
        return bundle.files
    digests = {name: short_hash(text.encode()) for name, text in bundle.files.items() if name != TARGET_FILE}
    target = sealed({**json.loads(bundle.files[TARGET_FILE]), DIGESTS: digests})
    return {**bundle.files, TARGET_FILE: json.dumps(target, indent=2) + "\n"}


def _fill(folder: Path, bundle: Bundle) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in _sealed(bundle).items():
        if Path(name).name != name:
            raise ValueError(f"{name!r} is not the name of a file")
        path = folder / name
        path.write_text(text, encoding="utf-8")
        if name.endswith(EXECUTABLE):
            path.chmod(0o755)
