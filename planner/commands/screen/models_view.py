"""Models as table rows and as JSON documents."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import asdict, fields, is_dataclass, replace
from itertools import groupby
from typing import Any

from planner.base import units
from planner.cost.flops import training_flops
from planner.figures.cost_inputs import shape
from planner.models.parameters import Parameters, lora_parameters, parameters
from planner.models.workload import workload
from planner.schema.listings import ListedModel
from planner.schema.workload import Model, Workload

Row = list[str]
HEADERS = ["id", "parameters", "active", "layers", "hidden", "heads", "experts", "sequence", "from"]
ALIGN = "lrrrrrlrl"
PRIORITY = ["from", "heads", "hidden", "experts"]
"""Columns that a narrow terminal loses first."""

STATES_HEADERS = ["states by method (AdamW)", "trained", "weights", "gradients", "optimizer", "total"]
LISTED_TURNS = 8
"""Of a pattern of blocks, those that are listed one after the other; of a longer one how many there are of each."""
WEIGHT_BYTES, GRADIENT_BYTES = 2, 4
"""Mixed precision as Megatron-LM keeps it: 16-bit weights, fp32 gradients."""
_PROSE = ("id", "name", "source", "date", "notes", "assumed")


def natural(entry: str) -> list[tuple[int, str]]:
    """A sort key that puts ``megatron-22b`` before ``megatron-175b``."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", entry.lower())]


def row(model: Model, origin: str) -> Row:
    """One line of the list."""
    counted, moe = parameters(model), model.moe
    return [
        model.id,
        units.format_count(counted.total),
        units.format_count(counted.active),
        str(counted.layers),
        f"{model.hidden:,}",
        f"{model.heads}/{model.kv_heads}" if model.kv_heads != model.heads else str(model.heads),
        f"{moe.experts_per_token} of {moe.experts}" if moe else "-",
        f"{model.sequence:,}",
        origin,
    ]


def summary(model: Model, origin: str) -> ListedModel:
    """One entry of the list, as JSON."""
    counted = parameters(model)
    return ListedModel(
        id=model.id,
        name=model.name,
        family=model.family,
        parameters=counted.total,
        active_parameters=counted.active,
        sample=f"a sequence of {model.sequence:,} tokens",
        origin=origin,
    )


def document(model: Model) -> dict[str, Any]:
    """Everything about a model, as JSON: its fields, counts, work and states."""
    counted = parameters(model)
    return {
        "kind": "model",
        "schema_version": 1,
        **asdict(model),
        "parameters": {"total": counted.total, "active": counted.active, **asdict(counted)},
        "training_flops_per_token": float(training_flops(shape(workload(model), None), counted.active)),
        "state_bytes": {name: _state_bytes(built) for name, built in _methods(model)},
    }


def sheet(model: Model) -> list[Row]:
    """The fields that are not at their defaults: name, value, and why it is only assumed, if it is."""
    rows = [[name, _shown(value), _assumed(model, name)] for name, value in _flat(model) if name not in _PROSE]
    # `shape` stands for the whole architecture.
    return ([["shape", "", _assumed(model, "shape")]] if "shape" in model.assumed else []) + rows


def counts(model: Model) -> list[Row]:
    """Where the parameters are."""
    counted = parameters(model)
    rows = [
        ("embedding", counted.embedding + counted.positions),
        ("attention", _attention(counted)),
        ("recurrences", counted.recurrent_layers * counted.recurrent_per_layer),
        ("compressed entries", counted.compressors),
        ("cross attention", counted.cross_layers * counted.cross_attention_per_layer),
        ("dense MLP", counted.dense_layers * counted.dense_mlp_per_layer),
        ("routed experts", counted.routed_experts),
        ("shared experts, router", counted.moe_layers * (counted.shared_expert_per_layer + counted.router_per_layer)),
        ("norms and others", _small(counted)),
        ("output", counted.head),
        ("tower, trained" if model.tower and model.tower.trained else "tower, frozen", counted.tower),
        ("all", counted.total),
        ("active per token", counted.active),
    ]
    return [[name, f"{number:,}", units.format_percent(number / counted.total)] for name, number in rows if number]


def states(model: Model) -> list[Row]:
    """Memory for weights, gradients and optimizer states by method, over all accelerators, nothing replicated."""
    rows = []
    for name, built in _methods(model):
        held = _state_bytes(built)
        rows.append([name, units.format_count(_trained(built)), *(units.format_bytes(size) for size in held.values())])
    return rows


def work(model: Model) -> str:
    """FLOPs per token, and how much of them attention is."""
    figures, active = shape(workload(model), None), parameters(model).active
    flops = training_flops(figures, active)
    without = training_flops(replace(figures, attended=0.0, index_width=0.0), active)
    causal = "causal, " if model.causal else ""
    return (
        f"{units.format_count(flops)}FLOP per token to train, {units.format_percent(1 - without / flops)} in attention "
        f"scores ({causal}{model.sequence:,} tokens)"
    )


def _methods(model: Model) -> list[tuple[str, Workload]]:
    if model.tower and model.tower.trained:
        return [("fine-tuning", workload(model))]
    lora = workload(model, method="lora")
    name = f"LoRA, rank {lora.method.rank} on {' '.join(lora.method.targets)}"
    return [("pre-training, fine-tuning", workload(model)), (name, lora)]


def _trained(built: Workload) -> int:
    lora = built.method.kind == "lora"
    counted = parameters(built.model)
    whole = counted.total if built.model.tower and built.model.tower.trained else counted.decoder
    return lora_parameters(built.model, built.method) if lora else whole


def _state_bytes(built: Workload) -> dict[str, float]:
    """Weights 2 N (2 more for each adapter parameter), gradients 4 T, optimizer (states + master copy) T; T trained."""
    trained, total = _trained(built), parameters(built.model).total
    held = total + trained if built.method.kind == "lora" else total
    weights, gradients = float(WEIGHT_BYTES * held), float(GRADIENT_BYTES * trained)
    optimizer = (built.optimizer.state_bytes + built.optimizer.master_bytes) * trained
    return {
        "weights": weights,
        "gradients": gradients,
        "optimizer": optimizer,
        "together": weights + gradients + optimizer,
    }


def _attention(counted: Parameters) -> int:
    """With the norms of indices, which are left out where blocks share one."""
    return counted.attention_layers * counted.attention_per_layer - counted.indexless_layers * counted.index_per_layer


def _small(counted: Parameters) -> int:
    per_layer = counted.norms_per_layer + counted.extra_per_layer
    without = (counted.layers - counted.attention_layers) * counted.attention_only_per_layer
    return counted.layers * per_layer - without + counted.final_norm + counted.extra


def _flat(record: Any, prefix: str = "") -> list[tuple[str, object]]:
    """Name and value of every field that is not at its default; those of parts as ``moe.experts``."""
    found: list[tuple[str, object]] = []
    for item in fields(record):
        value, name = getattr(record, item.name), f"{prefix}{item.name}"
        if is_dataclass(value):
            found += _flat(value, f"{name}.")
        elif value != item.default:
            found.append((name, value))
    return found


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        turns = [(name, len([*same])) for name, same in groupby(value)]
        if len(turns) > LISTED_TURNS:
            turns = sorted(Counter(value).items(), key=lambda each: -each[1])
        listed = ", ".join(f"{name} x {count}" if count > 1 else str(name) for name, count in turns)
        return f"{listed}, repeated" if len(turns) > 1 else listed
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}" if abs(value) < 1 else units.format_count(value)
    return f"{value:,}" if isinstance(value, int) else str(value)


def _assumed(model: Model, name: str) -> str:
    return f"assumed: {model.assumed[name]}" if name in model.assumed else ""
