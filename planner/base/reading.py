"""The text of a file that a person names, never too large to hold, and the short hash of a content."""

from __future__ import annotations

import hashlib
from pathlib import Path

from planner.base import resources
from planner.base.errors import WrongQuestion


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
