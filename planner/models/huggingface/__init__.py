"""Import of a Hugging Face ``config.json``: architectures by `model_type`, and what follows from their keys."""

from planner.models.huggingface.reading import from_config, load, read
from planner.models.huggingface.sound import heard
from planner.models.huggingface.towers import asked

__all__ = ["asked", "from_config", "heard", "load", "read"]
