"""Models that see or hear: their published configurations and counts, and the models that are read from them."""

import json
from functools import cache
from pathlib import Path

from planner.models.huggingface import asked, from_config, heard
from planner.schema.workload import Model

DATA, SOUND = (
    json.loads((Path(__file__).parent / "data" / f"{sense}_configs.json").read_text(encoding="utf-8"))["models"]
    for sense in ("vision", "audio")
)


@cache
def model(entry: str, images: str = "2", trained: bool = False) -> Model:
    """A model with its tower, ``N[@PIXELS]`` images in a sequence."""
    return from_config(DATA[entry]["config"], entry, asked=asked(images, trained))


@cache
def hearing(entry: str, clips: str = "2", trained: bool = False) -> Model:
    """A model with its audio tower, ``N[@SECONDS]`` clips in a sequence."""
    return from_config(SOUND[entry]["config"], entry, asked=heard(clips, trained))
