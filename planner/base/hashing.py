"""Short hashes: by which an answer tells which files and records it rests on."""

from __future__ import annotations

import hashlib


def short_hash(content: bytes, digits: int = 16) -> str:
    """The first hexadecimal digits of the SHA-256 of a content."""
    return hashlib.sha256(content).hexdigest()[:digits]
