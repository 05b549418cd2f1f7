"""Files that a person names, read within bounds: texts, TOML, and files that go by piece by piece, gzipped or not.

What a file may take is bounded before it is taken: bytes (of a gzipped file, those that come out of it), lines, seconds
of a processor, and how deep its tables are. The short hash of a content is here, too.
"""

from __future__ import annotations

import gzip
import hashlib
import re
import time
import tomllib
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, cast

from planner.base import resources
from planner.base.errors import WrongQuestion, malformed

DEEPEST = 32
"""Parts of a TOML key, and tables within tables: a parser takes the square of them in memory."""
MOST_MARKS = 1_000_000
"""Dots, brackets and equals signs of a TOML text: it has no more keys, tables and lists than these."""
LONGEST_NUMBER = 1024
"""Bits of a whole number in TOML."""
_PART = r"""(?:[A-Za-z0-9_-]++|"(?:[^"\\\n]|\\.)*+"|'[^'\n]*+')"""
_DEEP = re.compile(rf"(?<![A-Za-z0-9_-]){_PART}(?:[ \t]*+\.[ \t]*+{_PART}){{{DEEPEST}}}")
"""A dotted key of more parts."""
_AT = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)")
BYTES_READ = 2_000_000_000
"""Bytes of a file that goes by piece by piece."""
SECONDS_READ = 60.0
"""Seconds of a processor, from when such a file is opened."""


def text(path: Path, what: str, most: int) -> str:
    """A file's UTF-8 text, without a byte-order mark.

    Arguments:
        path: The file.
        what: What such a file is, with its article: "a model file".
        most: Bytes that one has at most.

    Raises:
        WrongQuestion: no such file, no regular one, not readable, too large, or not UTF-8; begins with the path.
    """
    try:
        if path.exists() and not path.is_file() and not path.is_dir():
            raise WrongQuestion(f"{path}: not a regular file")
        size = path.stat().st_size
        if size > most:
            raise WrongQuestion(f"{path}: {size:,} bytes; {what} has at most {most:,}")
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise WrongQuestion(f"{path}: not UTF-8 text (byte {error.start})") from None
    except OSError as error:
        raise WrongQuestion(f"{path}: {why_not(path, error)}") from None


def why_not(path: Path, error: OSError) -> str:
    """Why a file cannot be read; of an example that pages and helps show, how to come by it."""
    missing = isinstance(error, FileNotFoundError) and path.as_posix() in resources.examples()
    return f"{error.strerror or error}{'; clusterwright examples --all . writes it' if missing else ''}"


def short_hash(content: bytes, digits: int = 16) -> str:
    """The first hexadecimal digits of the SHA-256 of a content."""
    return hashlib.sha256(content).hexdigest()[:digits]


# ---- TOML ------------------------------------------------------------------------------------------------------------


class MalformedToml(ValueError):
    """A text that is no TOML, or more of it than anything that is read here needs."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.line = line
        """Where it is known; that of the end of the text for what is missing there."""

    @property
    def reason(self) -> str:
        """What is wrong, without where."""
        return _AT.sub("", str(self))


def toml(text: str) -> dict[str, Any]:
    """The tables of a TOML text.

    Raises:
        MalformedToml: it is none, or has a key, a table or a whole number beyond :data:`DEEPEST` and
            :data:`LONGEST_NUMBER`.
    """
    if sum(map(text.count, ".[=")) > MOST_MARKS:
        raise MalformedToml(f"more than {MOST_MARKS:,} keys, tables and lists")
    if deep := _DEEP.search(text):
        raise MalformedToml(f"a key of more than {DEEPEST} parts", text.count("\n", 0, deep.start()) + 1)
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        place = _AT.search(str(error))
        line = int(place[1]) if place and place[1] else len(text.splitlines())
        raise MalformedToml(str(error), line) from None
    except RecursionError as error:
        raise MalformedToml(malformed(error)) from None
    except ValueError:  # of Python's own bound on the digits of an integer
        raise MalformedToml("a whole number of more than 300 digits") from None
    _bounded(tables)
    return tables


def _bounded(value: object, depth: int = 0) -> None:
    if depth > DEEPEST:
        raise MalformedToml(f"tables and lists more than {DEEPEST} deep")
    if isinstance(value, int) and value.bit_length() > LONGEST_NUMBER:
        raise MalformedToml("a whole number of more than 300 digits")
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            _bounded(inner, depth + 1)


# ---- piece by piece --------------------------------------------------------------------------------------------------


@dataclass
class BoundedFile:
    """A file that is read piece by piece, within bounds on bytes, lines and time."""

    file: BinaryIO
    path: Path
    smaller: str
    """What to do where it is too much."""
    most_lines: int | None
    """Most lines that it may have; None: they are not counted."""
    taken: int = 0
    lines: int = 0
    begun: float = field(default_factory=time.process_time)

    def read1(self, size: int) -> bytes:
        """The next bytes, some of `size`; none at the end, nor where a gzipped file is damaged or has lost its end.

        Raises:
            WrongQuestion: the file is longer than is read, or takes too long.
        """
        try:
            chunk = cast(bytes, self.file.read1(size))  # type: ignore[attr-defined]
        except (EOFError, zlib.error):  # it may still be written
            return b""
        self.taken += len(chunk)
        self.lines += chunk.count(b"\n") + chunk.count(b"\r")
        if self.taken > BYTES_READ:
            self._refuse(f"more than {BYTES_READ:,} bytes{' when unpacked' if self.path.suffix == '.gz' else ''}")
        if self.most_lines is not None and self.lines > self.most_lines:
            self._refuse(f"more than {self.most_lines:,} lines")
        if time.process_time() - self.begun > SECONDS_READ:
            self._refuse(f"reading it takes more than {SECONDS_READ:.0f} s")
        return chunk

    def _refuse(self, reason: str) -> None:
        raise WrongQuestion(f"{self.path}: {reason}; {self.smaller}")


@contextmanager
def bounded_file(path: Path, smaller: str, most_lines: int | None = None) -> Iterator[BoundedFile]:
    """A file, gzipped if its name says so, to be read piece by piece; arguments as of :class:`BoundedFile`."""
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        yield BoundedFile(cast(BinaryIO, file), path, smaller, most_lines)
