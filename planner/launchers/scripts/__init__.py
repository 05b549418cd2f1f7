"""Scripts that are written beside a job: texts of this folder, in which a slot is a name between two at signs."""

from __future__ import annotations

import re
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
SLOT = re.compile("@([A-Z_]+)@")


def script(name: str, **slots: str) -> str:
    """The text of ``NAME.txt`` with every slot filled; what fills a slot is not looked at again.

    Raises:
        AssertionError: the slots of the text are others than those that are filled.
    """
    text = (FOLDER / f"{name}.txt").read_text(encoding="utf-8")
    assert set(SLOT.findall(text)) == slots.keys(), f"{name}: its slots are {sorted(set(SLOT.findall(text)))}"
    return SLOT.sub(lambda slot: slots[slot[1]], text)
