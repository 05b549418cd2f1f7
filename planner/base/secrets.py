"""Passwords and tokens, which no screen, log, journal or document is to show."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

HIDDEN = "***"
_NAMES = re.compile(
    r"passw|(?:^|_)pwd|secret|token|credential|access_?key|(?:^|[_-])(?:api)?key(?:$|[_-])", re.IGNORECASE
)
"""What variables and parameters are called whose values are secrets."""
_SHORTEST = 6
"""Characters of a value of the environment that is looked for: shorter ones stand in texts by chance."""
_LOGIN = re.compile(r"(\w:/{1,2})(?:[^\s/@]*:\S*|[^\s/@]+)(?=@)")
"""A password behind a colon, or a token alone. Where a URL was taken for a file's name, one of two slashes is left."""
_PARAMETER = re.compile(rf"([?&;][\w.-]*(?:{_NAMES.pattern}|signature|\bsig\b)[\w.-]*=)[^&\s;]*", re.IGNORECASE)


def shown(where: str) -> str:
    """A URL as it may be shown, without login and parameters: ``postgresql://host/name``; other texts as they are."""
    scheme, separator, rest = where.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2].partition('?')[0]}" if separator else where


def scrubbed(text: str, *urls: str) -> str:
    """A text without logins, without parameters that are secrets, and without those of `urls` and the environment."""
    for secret in sorted(
        {*(password for url in urls for password in _of_url(url)), *_of_environment()}, key=len, reverse=True
    ):
        text = text.replace(secret, HIDDEN)
    return _PARAMETER.sub(rf"\1{HIDDEN}", _LOGIN.sub(rf"\1{HIDDEN}", text))


def without_passwords(value: Any) -> Any:
    """The tables of a file, every text :func:`scrubbed`."""
    if isinstance(value, dict):
        return {key: without_passwords(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [*map(without_passwords, value)]
    return scrubbed(value) if isinstance(value, str) else value


def _of_url(url: str) -> Iterator[str]:
    try:
        parts = urlsplit(url)
        passwords = [parts.password, *(value for name, value in parse_qsl(parts.query) if _NAMES.search(name))]
    except ValueError:
        passwords = []
    yield from (spelling for password in passwords if password for spelling in {password, unquote(password)})


def _of_environment() -> Iterator[str]:
    named = ((name, value) for name, value in os.environ.items() if len(value) >= _SHORTEST and name != "PWD")
    yield from (value for name, value in named if _NAMES.search(name))
