"""One process at a time: the kernel's locks, and a link beside the file where a file system has none."""

from __future__ import annotations

import contextlib
import os
import socket
import time
import uuid
from collections.abc import Iterator
from functools import cache
from pathlib import Path

GRACE_S = 30.0
"""A link that a process of elsewhere has held for so long is taken for lost."""
WAIT_S = (0.001, 0.1)
"""Between two looks at a link: the first, the longest."""


@contextlib.contextmanager
def held(path: Path, *, wait: bool = True) -> Iterator[bool]:
    """The kernel's lock on a file or a folder that is there. Yields whether it is held: not, if `wait` is off and
    another holds it, or where the file system has no locks.
    """
    number = os.open(path, os.O_RDONLY)
    try:
        yield _locked(number, wait=wait)
    finally:
        os.close(number)  # which lets go of it


def _locked(number: int, *, wait: bool) -> bool:
    try:
        import fcntl

        fcntl.flock(number, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except (ImportError, OSError):
        return False
    return True


class Lock:
    """Writing to a file, one process at a time, also of several containers and on network file systems.

    The kernel locks ``FILE.lock``: it lets go of it whatever happens to the process. Where it can't, the link
    ``FILE.lock.link`` names the process; one that is no more, of this boot and this namespace, holds nothing.
    """

    def __init__(self, path: Path) -> None:
        self._path = path.with_name(f"{path.name}.lock")
        self._link = path.with_name(f"{path.name}.lock.link")
        self._number: int | None = None

    def acquire(self) -> bool:
        """Waits until the file is this process's to write to."""
        while True:
            number = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
            if not _locked(number, wait=True):
                os.close(number)
                return self._linked()
            if self._is(number):
                self._number = number
                return True
            os.close(number)  # who held it has let go of it, and removed it

    def release(self) -> None:
        """Lets others write."""
        if self._number is None:
            self._link.unlink(missing_ok=True)
        else:
            self._path.unlink(missing_ok=True)
            os.close(self._number)
            self._number = None

    def _is(self, number: int) -> bool:
        """Whether an open file is still the one that is there."""
        try:
            status = self._path.lstat()
            opened = os.fstat(number)
        except OSError:
            return False
        return (status.st_dev, status.st_ino) == (opened.st_dev, opened.st_ino)

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *failed: object) -> None:
        self.release()

    # ---- without the kernel's locks ----------------------------------------------------------------------------------

    def _linked(self) -> bool:
        wait = WAIT_S[0]
        seen = ("", 0)
        since = time.monotonic()
        while True:
            try:
                self._link.symlink_to(this_process())
                return True
            except FileExistsError:
                holder = self._holder()
            if holder is not None:
                if holder != seen:
                    seen = holder
                    since = time.monotonic()
                if gone(holder[0]) or time.monotonic() - since > GRACE_S:
                    self._take_from(holder[0])
                    continue
            time.sleep(wait)
            wait = min(2 * wait, WAIT_S[1])

    def _holder(self) -> tuple[str, int] | None:
        """Who and since when; None if it has just been let go."""
        try:
            return str(self._link.readlink()), self._link.lstat().st_mtime_ns
        except OSError:
            return None

    def _take_from(self, holder: str) -> None:
        """Takes the lock away from who cannot let go of it."""
        aside = self._link.with_name(f"{self._link.name}.{uuid.uuid4().hex}")
        try:
            self._link.rename(aside)
        except OSError:
            return  # another did
        target = str(aside.readlink())
        aside.unlink()
        if target != holder:  # another had, and holds it: give it back
            with contextlib.suppress(FileExistsError):
                self._link.symlink_to(target)


# ---- which process -------------------------------------------------------------------------------------------------


def this_process() -> str:
    """``machine:pid:start``, where machine is this boot's and this container's: host names are given twice."""
    return f"{_machine()}:{os.getpid()}:{_start(os.getpid())}"


def gone(process: str) -> bool:
    """Whether a process, as :func:`this_process` named it, was one of this machine's and is no more."""
    machine, pid, start = (*process.rsplit(":", 2), "", "")[:3]
    if machine != _machine() or not pid.isdecimal():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError):
        return False
    return start != _start(int(pid))


@cache
def _machine() -> str:
    """Boot and process namespace on Linux; the host's name elsewhere."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot}-{Path('/proc/self/ns/pid').stat().st_ino}"
    except OSError:
        return f"{socket.gethostname()}-0"


def _start(pid: int) -> str:
    """When a process began, in the kernel's ticks since boot; nothing elsewhere than on Linux."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""
