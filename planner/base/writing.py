"""Files and folders that appear whole or not at all, whatever happens to the process meanwhile."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from planner.base.errors import WrongQuestion
from planner.base.locking import held

LEFT_S = 60.0
"""A temporary file that old, and locked by nobody, is of a process that was killed."""
_AT_FDCWD, _EXCHANGE = -100, 2
"""Arguments of Linux's ``renameat2``; ``renamex_np`` of macOS calls the same flag RENAME_SWAP."""


def write(path: Path, text: str, *, replace: bool = False) -> None:
    """Writes a file: beside it first, then renamed over it (a link stays one, and the mode stays). Pipes, terminals and
    what else is no file (``/dev/stdout``) are written to as they are.

    Raises:
        WrongQuestion: the file exists (and `replace` is off), or cannot be written.
    """
    may_write(path, replace=replace)
    try:
        if _is_device(path):
            path.write_text(text, encoding="utf-8")
        else:
            _write_beside(path.resolve(), text)
    except (OSError, RuntimeError) as error:  # the latter: links in a circle
        raise WrongQuestion(f"{path}: cannot be written: {getattr(error, 'strerror', None) or error}") from None


def may_write(path: Path | None, *, replace: bool) -> None:
    """Says at once, before minutes of work, that a file is there already, or that the path is none of a file.

    Raises:
        WrongQuestion: it is, and is not to be replaced; or it can't be a file.
    """
    if path is None or _is_device(path):
        return
    if not path.name:
        raise WrongQuestion(f"{path}: cannot be written: names no file")
    if path.is_dir():
        raise WrongQuestion(f"{path}: cannot be written: Is a directory")
    if path.exists() and not replace:
        raise WrongQuestion(f"{path}: exists already; --force replaces it")
    if not path.parent.exists():
        raise WrongQuestion(f"{path}: cannot be written: there is no folder {path.parent}; make it first")


def make_folder(folder: Path) -> None:
    """Makes a folder and those above it, if they are not there.

    Raises:
        WrongQuestion: it cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WrongQuestion(f"{folder}: cannot be written: {error.strerror or error}") from None


def put_folder(target: Path, fill: Callable[[Path], None], last: str = "") -> None:
    """Puts what `fill` writes into a new folder in the place of `target`, which may be one: both are exchanged in one
    step. Where the file system can't, or one stands in the folder, it stays and its files are exchanged one by one, the
    one called `last` at the end.

    Raises:
        OSError: it cannot be written; `target` is as it was.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    _clear(target)
    made = Path(tempfile.mkdtemp(prefix=f".{target.name[:200]}.", suffix=".tmp", dir=target.parent))
    try:
        with held(made):
            fill(made)
            made.chmod(stat.S_IMODE(target.stat().st_mode) if target.exists() else 0o777 & ~_umask())
            if not target.exists():
                made.rename(target)
            elif target.samefile(Path.cwd()) or not _exchanged(made, target):
                _move_files(made, target, last)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _is_device(path: Path) -> bool:
    """Renamed over, a device would be gone for everybody."""
    absolute = Path(os.path.abspath(path))  # noqa: PTH100 - the name as given, links unresolved
    return absolute.parts[1:2] == ("dev",) or (path.exists() and not path.is_file() and not path.is_dir())


def _write_beside(path: Path, text: str) -> None:
    _clear(path)
    number, name = tempfile.mkstemp(prefix=f".{path.name[:200]}.", suffix=".tmp", dir=path.parent, text=True)
    temporary = Path(name)
    try:
        with os.fdopen(number, "w", encoding="utf-8") as file, held(temporary):
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
            temporary.chmod(stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o666 & ~_umask())
            temporary.replace(path)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def _umask() -> int:
    """What new files may not be; there is no way to ask without setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _clear(path: Path) -> None:
    """Removes what processes that were killed have left beside a file or a folder."""
    ours = re.compile(rf"\.{re.escape(path.name[:200])}\.[a-z0-9_]{{8}}\.tmp")
    with contextlib.suppress(OSError):
        for left in [path_there for path_there in path.parent.iterdir() if ours.fullmatch(path_there.name)]:
            if time.time() - left.lstat().st_mtime > LEFT_S and not left.is_symlink():
                with held(left, wait=False) as free:
                    if free:
                        shutil.rmtree(left, ignore_errors=True) if left.is_dir() else left.unlink(missing_ok=True)


def _exchanged(one: Path, other: Path) -> bool:
    """Exchanges two folders in one step; False, and nothing done, where that can't be (another system, a mount)."""
    import ctypes

    with contextlib.suppress(AttributeError, OSError):
        library = ctypes.CDLL(None, use_errno=True)
        names = (os.fsencode(one), os.fsencode(other))
        if hasattr(library, "renamex_np"):
            return bool(library.renamex_np(*names, _EXCHANGE) == 0)
        return bool(library.renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _EXCHANGE) == 0)
    return False


def _move_files(made: Path, target: Path, last: str) -> None:
    """Moves what stands in a folder out of the way and the new files in; puts everything back if that fails."""
    old = made / ".old"
    old.mkdir()
    moved: list[tuple[Path, Path]] = []
    try:
        for source, place in _moves(made, target, old, last):
            source.rename(place)
            moved.append((source, place))
    except BaseException:
        for source, place in reversed(moved):
            place.rename(source)
        raise


def _moves(made: Path, target: Path, old: Path, last: str) -> Iterator[tuple[Path, Path]]:
    yield from ((path, old / path.name) for path in sorted(target.iterdir()))
    yield from ((path, target / path.name) for path in _ordered(made, last) if path != old)


def _ordered(folder: Path, last: str) -> list[Path]:
    return sorted(folder.iterdir(), key=lambda path: (path.name == last, path.name))
