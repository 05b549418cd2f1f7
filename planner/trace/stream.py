"""JSON of any length, value by value, in the memory of one value."""

from __future__ import annotations

import codecs
import json
import re
import zlib
from collections.abc import Iterator
from io import BufferedReader
from typing import Any

CHUNK = 1 << 20
LONGEST = 1 << 24
"""Characters of one value: an event has some 500, what a profiler says of devices and process groups some 100,000."""
_WHITE = re.compile(r"[ \t\r\n]*")


def items(text: Text) -> Iterator[tuple[str, Any]]:
    """Key and value of everything at the top of a trace; of its events, each by itself.

    Raises:
        EOFError: it ends in the middle.
        ValueError: it is no JSON.
    """
    if text.next() == "[":
        yield from (("traceEvents", each) for each in text.listed())
        return
    text.take("{")
    while text.next() != "}":
        key = text.value()
        text.take(":")
        if key == "traceEvents":
            yield from ((key, each) for each in text.listed())
        else:
            yield str(key), text.value()
        if text.next() == ",":
            text.take(",")


class Text:
    """A file of JSON, of which a window is held."""

    def __init__(self, file: BufferedReader) -> None:
        self.file, self.decoder = file, json.JSONDecoder()
        self.decoded = codecs.getincrementaldecoder("utf-8-sig")(errors="replace")
        self.window, self.at, self.passed, self.over = "", 0, 0, False

    def more(self) -> bool:
        """Whether the window grew."""
        if self.over:
            return False
        if len(self.window) - self.at > LONGEST:
            raise ValueError(f"no value ends within {LONGEST:,} characters")
        try:
            chunk = self.file.read1(CHUNK)
        except (EOFError, zlib.error):  # a gzipped file that has lost its end
            chunk = b""
        self.over = not chunk
        self.passed += self.at
        self.window, self.at = self.window[self.at :] + self.decoded.decode(chunk, self.over), 0
        return bool(chunk)

    def next(self) -> str:
        """The next character that is not white."""
        while True:
            match = _WHITE.match(self.window, self.at)
            self.at = match.end() if match else self.at
            if self.at < len(self.window):
                return self.window[self.at]
            if not self.more():
                raise EOFError

    def take(self, expected: str) -> None:
        """Steps over one character."""
        if (there := self.next()) != expected:
            raise ValueError(f"{there!r} where {expected!r} is expected")
        self.at += 1

    def value(self) -> Any:
        """The next value, whole."""
        self.next()
        while True:
            try:
                found, end = self.decoder.raw_decode(self.window, self.at)
            except ValueError:
                if not self.more():
                    raise EOFError from None
                continue
            if end < len(self.window) or self.over:
                self.at = end
                return found
            self.more()  # a number at the window's end may go on

    def listed(self) -> Iterator[Any]:
        """The values of a list, one after another."""
        self.take("[")
        while self.next() != "]":
            yield self.value()
            if self.next() == ",":
                self.take(",")
        self.take("]")
