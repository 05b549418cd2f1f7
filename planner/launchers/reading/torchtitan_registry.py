"""A function of torchtitan's ``config_registry.py`` (0.3.0, main of August 2026) to axes of a plan."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from planner.base.errors import WrongQuestion
from planner.launchers.reading.found_options import FoundOptions
from planner.launchers.reading.torchtitan import TABLE, found_tables, words_of

SECTIONS = ("parallelism.", "training.", "activation_checkpoint.", "compile.")
OTHERWISE: Mapping[str, str] = TABLE.head["registry"]
"""What a registry may say beyond the tables -> how it is predicted."""


def from_registry(name: str, values: Mapping[str, Any]) -> FoundOptions:
    """A configuration that a function of a ``config_registry.py`` returns, as axes of a plan.

    Args:
        name: The function.
        values: Key with dots -> value; what made a record under ``type``.

    Raises:
        WrongQuestion: something that no plan can say.
    """
    flat = {key: value for key, value in values.items() if not key.startswith("model_spec.")}
    spec = {key.removeprefix("model_spec."): value for key, value in values.items() if key.startswith("model_spec.")}
    flavor = str(spec.pop("0", spec.pop("flavor", "")))
    place = str(spec.pop("type", "")).rpartition(".model_registry")[0].rpartition(".")[2]
    before = name.lower().partition(re.sub(r"\W", "_", flavor.lower()))[0].removeprefix("sft_").strip("_")
    converters = [*words_of(spec.pop("converters", [])), *words_of(flat.pop("model_converters.converters", []))]
    differs = [text for key, text in OTHERWISE.items() if (spec.pop(key, None) or flat.pop(key, None)) is not None]
    context = flat.pop("training.max_context_length", None)
    tokens = flat.pop("training.num_tokens_per_microbatch_per_dp_rank", None)
    whole = flat.pop("training.num_tokens_per_train_step", -1)
    if tokens or context or whole != -1:  # main of August 2026 counts tokens where 0.3.0 counts sequences
        length = context or 2048
        flat |= {"training.seq_len": length, "training.local_batch_size": max((tokens or 16384) // length, 1)}
        flat |= {} if whole == -1 else {"training.global_batch_size": whole // length}
    kind = str(flat.pop("activation_checkpoint.type", "SelectiveAC")).removesuffix(".Config").rpartition(".")[2]
    mode = {"SelectiveAC": "selective", "FullAC": "full"}.get(kind, flat.pop("activation_checkpoint.mode", kind))
    mode = "none" if flat.pop("activation_checkpoint", "") is None else mode
    flat |= {"activation_checkpoint.mode": mode, "activation_checkpoint.selective_ac_option": "op"}
    if left := sorted({f"model_spec.{key}" for key in spec} | {key for key in flat if not key.startswith(SECTIONS)}):
        raise WrongQuestion(
            f"{', '.join(left[:6])}: may change precision, memory or time, and no plan holds it; --ignore {left[0]} "
            "prices the rest without"
        )
    kinds = [re.sub(r"(Linear|GroupedExperts|GroupedMM)?Converter(\.Config)?$", "", one) for one in converters]
    flat["model.converters"] = [one.rpartition(".")[2].lower().replace("mxfp8", "mx") for one in kinds]
    options = found_tables({**flat, "model.name": place or before, "model.flavor": flavor})
    return replace(options, differs=[*options.differs, *differs])
