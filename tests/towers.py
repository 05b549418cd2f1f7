"""Models with vision, whole: their published configurations and counts, and the models that are read from them."""

import json
from functools import cache
from pathlib import Path

from planner.models.huggingface import asked, from_config
from planner.schema.workload import Model

DATA = json.loads((Path(__file__).parent / "data" / "vision_configs.json").read_text(encoding="utf-8"))["models"]


@cache
def model(entry: str, images: str = "2", trained: bool = False) -> Model:
    """A model with its tower, ``N[@PIXELS]`` images in a sequence."""
    return from_config(DATA[entry]["config"], entry, asked=asked(images, trained))
