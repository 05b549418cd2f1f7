"""The digest of a document's content, written with it: by it readers see that it was edited."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from planner.base.reading import short_hash

DIGEST = "digest"
"""Key of a written document's digest."""


def sealed(table: Mapping[str, Any]) -> dict[str, Any]:
    """JSON types of a document with the digest of its content behind them."""
    content = {key: value for key, value in table.items() if key != DIGEST}
    return {**content, DIGEST: content_digest(content)}


def is_edited(table: Mapping[str, Any]) -> bool:
    """Whether a document with a digest says something else than when that was written."""
    digest = content_digest(table)
    return bool(table.get(DIGEST, digest) != digest)


def content_digest(table: Mapping[str, Any]) -> str:
    """The first 16 digits of the SHA-256 of all that follows from the question: without ``meta``, the seconds it took.

    How the file is laid out makes no difference, nor whether numbers are written as ``1.0`` or ``1``.
    """
    content = {key: _whole(value) for key, value in table.items() if key not in (DIGEST, "meta")}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return short_hash(text.encode("utf-8", "surrogatepass"))


def _whole(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _whole(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [*map(_whole, value)]
    return int(value) if isinstance(value, float) and value.is_integer() else value
