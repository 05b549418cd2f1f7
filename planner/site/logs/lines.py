"""The lines of a log, one after another: logs of any size are read in the memory of one line."""

from __future__ import annotations

import codecs
import gzip
import re
import zlib
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path

from planner.base.errors import WrongQuestion

LONGEST = 1 << 16
"""Bytes of a line that are looked at: a configuration dumped as one line of JSON takes some 20 kB."""
CHUNK = 1 << 20
_CODED = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
"""Colours, cursor movements and titles of terminals (ECMA-48, control sequences)."""
_MARKS = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
"""How a file begins that Windows shells redirected."""


def lines(path: Path) -> Iterator[str]:
    """Every line of a log (or of a gzipped one), without its end and without a terminal's control sequences.

    A carriage return, behind which progress bars write again, ends a line too. What is not UTF-8 is replaced, and of a
    line longer than :data:`LONGEST` bytes the rest is left out.

    Raises:
        WrongQuestion: it is no file, cannot be read, or its gzip data are damaged.
    """
    if not path.is_file():
        raise WrongQuestion(f"{path}: {'a folder; name the log in it' if path.is_dir() else 'no such file'}")
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            yield from _split(_chunks(file))  # type: ignore[arg-type]  # a GzipFile reads as any binary file does
    except OSError as error:
        raise WrongQuestion(f"{path}: {error.strerror or error}") from None


def _chunks(file: BufferedReader) -> Iterator[bytes]:
    """The bytes of a file, as far as they are there: a gzipped log may still be written, or have lost its end."""
    try:
        while chunk := file.read1(CHUNK):
            yield chunk
    except (EOFError, zlib.error):
        return


def _split(chunks: Iterator[bytes]) -> Iterator[str]:
    rest, decoder = "", None
    for chunk in chunks:
        decoder = decoder or codecs.getincrementaldecoder(_MARKS.get(chunk[:2], "utf-8-sig"))(errors="replace")
        *whole, rest = (rest + decoder.decode(chunk)).replace("\r", "\n").split("\n")
        yield from map(_plain, whole)
        rest = rest[:LONGEST]
    # A number at the end of a line that was cut off is not all of it.
    yield _plain(rest).rstrip("0123456789.,")


def _plain(line: str) -> str:
    line = line[:LONGEST]
    return _CODED.sub("", line) if "\x1b" in line else line
