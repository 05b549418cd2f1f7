"""What published tables of runs call things, in the catalog's and the library's ids; the names are ``names.toml``."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from planner.schema.hardware import Runtime

_PUBLISHED = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
_ACCELERATORS: list[tuple[str, str]] = _PUBLISHED["accelerators"]
"""Pattern (lower case) -> id in the catalog, first match wins."""
MODELS: Mapping[str, str] = _PUBLISHED["models"]
"""Published name -> id in the library, where they differ; of models with vision and sound the text part."""
PREDICTED_AHEAD: Mapping[str, int] = _PUBLISHED["predicted_ahead"]
"""Multi-token prediction modules that a model's recipes train."""
NODES: Mapping[str, str] = _PUBLISHED["nodes"]
"""Accelerator -> the node it is taken to stand in, where a run does not describe it."""


def accelerator(published: str, known: Iterable[str] = ()) -> str | None:
    """The catalog's id of an accelerator as a table names it; None if it is in no catalog.

    A name that is one of the `known` ids, however it is capitalised, is taken as it is.
    """
    text = published.strip().lower()
    own = next((each for each in known if each.lower() == text), None)
    if own is not None:
        return own
    return next((known for pattern, known in _ACCELERATORS if re.search(pattern, text)), None)


SHARDING = (
    ("megatron-fsdp", "megatron-core"),
    ("megatron fsdp", "megatron-core"),
    ("distributed optimizer", "megatron-core"),
    ("fsdp2", "fsdp2"),
    ("fsdp", "fsdp"),
    ("deepspeed", "deepspeed"),
)
"""What a row says of sharding -> the runtime that it means, where it names no framework."""
ANY = "any"
"""The runtime that stands for a framework nobody has named."""


class Likely(NamedTuple):
    """What a row says of itself that only some frameworks' runs say."""

    runtime: str
    words: str = ""
    """A regular expression that its notes or sharding match; empty: any."""
    vendor: str = ""
    """The accelerator's maker; empty: any."""
    task: str = ""
    """A regular expression that its task matches; empty: any."""
    split: bool | None = None
    """Whether tensors or layers are split over ranks; None: either."""
    since: str = ""
    """The first year of such runs."""


LIKELY: tuple[Likely, ...] = (
    Likely("nemo", words=r"_nemo\b|\bnemo\b|megatron[- ]bridge"),
    Likely("maxtext", words=r"\bmaxtext\b|\bjax\b|\bgspmd\b|\bpjit\b|remat_policy|per_device_batch|\bxla\b|\bflax\b"),
    Likely("fsdp2", words=r"torchtitan|fully_shard|\bfsdp2\b|async[- ]?tp|float8nocompile|torchao"),
    Likely("megatron-deepspeed", words=r"megatron-?deepspeed|gpt-neox"),
    Likely("deepspeed", words=r"\bdeepspeed\b|zero-infinity|zero\+\+|ds_config"),
    Likely("primus", words=r"primus", vendor="AMD"),
    Likely(
        "megatron-core", words=r"megatron|\bmcore\b|transformer[- ]engine|distributed optimizer|--tensor-model-parallel"
    ),
    Likely(
        "hf-trainer", words=r"accelerate launch|\bpeft\b|bitsandbytes|gradient_checkpointing|per_device_train_batch"
    ),
    Likely("neuronx", vendor="AWS"),
    Likely("maxtext", vendor="Google"),
    Likely("primus", vendor="AMD", split=True),
    Likely("nemo", vendor="NVIDIA", task=r"mlperf|lora", split=True, since="2023"),
    Likely("megatron-core", vendor="NVIDIA", split=True),
    Likely("hf-trainer", task=r"lora", split=False, since="2023"),
)
"""Frameworks by what rows say, where none is named: the first row that holds. Of replicas and shards alone, which every
framework has, nothing follows."""


def likely(row: Mapping[str, str], vendor: str) -> str | None:
    """The framework that a row which names none most likely ran under; None where nothing says so."""
    text = " ".join(row.get(name) or "" for name in ("notes", "sharding", "activation_recompute")).lower()
    split = any((row.get(name) or "1") not in ("1", "1.0") for name in ("tp", "pp"))
    year = dated(row.get("framework_date") or "")[:4] or year_of(row.get("release") or "")
    for rule in LIKELY:
        if (
            re.search(rule.words, text)
            and rule.vendor in ("", vendor)
            and re.search(rule.task, row.get("task") or "")
            and rule.split in (None, split)
            and not (year and year < rule.since)
        ):
            return rule.runtime
    return None


def framework(text: str, runtimes: Mapping[str, Runtime]) -> str | None:
    """The runtime that a framework's published name means: whose word stands first in it, of several the longest; None
    where no runtime is called so.
    """
    lower_case = text.lower()
    words = [
        (-lower_case.index(w), len(w), name) for name, each in runtimes.items() for w in each.called if w in lower_case
    ]
    return max(words)[2] if words else None


def dated(text: str) -> str:
    """The last year, or year and month, of a date in words: ``2021-2022`` -> 2022, ``2025.11`` -> 2025.11."""
    found = re.findall(r"(20\d\d(?:\.\d\d)?)", text)
    return found[-1] if found else ""


def year_of(release: str) -> str:
    """``26.04.01`` -> 2026, ``v24.11.1`` -> 2024, ``202412`` -> 2024; empty if it says no year."""
    match = re.match(r"v?(2\d)\.\d\d", release)
    if match:
        return f"20{match[1]}"
    match = re.match(r"(20\d\d)", release)
    return match[1] if match else ""


def date_of(release: str) -> str:
    """``26.04.01`` -> ``2026.04``: a release's name as year and month; empty if it says no month."""
    match = re.match(r"v?(2\d)\.(\d\d)", release) or re.match(r"20(2\d)(\d\d)$", release)
    return f"20{match[1]}.{match[2]}" if match else ""
