"""Import of a Hugging Face ``config.json``: architectures by `model_type`, and what follows from their keys."""

from planner.models.huggingface.reading import from_config, load, read

__all__ = ["from_config", "load", "read"]
