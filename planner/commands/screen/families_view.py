"""Convolutional networks and recommenders as table rows and as JSON documents."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Any

from planner.base import units
from planner.cost import convolution, dlrm
from planner.schema.listings import ListedModel
from planner.schema.workload import ConvolutionNetwork, Recommender

Row = list[str]
Other = ConvolutionNetwork | Recommender
HEADERS = ["others", "family", "parameters", "active", "a sample", "from"]
ALIGN = "llrrll"
PRIORITY = ["from", "active"]
"""Columns that a narrow terminal loses first."""
BUILT_IN = "built-in"
_PROSE = ("id", "name", "source", "date", "notes", "assumed")


def family(model: Other) -> str:
    """Its family as ``models layers`` and published runs call it."""
    return "cnn" if isinstance(model, ConvolutionNetwork) else "dlrm"


def sample(model: Other) -> str:
    """What one sample is."""
    if isinstance(model, ConvolutionNetwork):
        return f"an image of {model.resolution} x {model.resolution}"
    rows = sum(model.lookups)
    return f"{model.dense_features} dense features, {rows:,} rows of {len(model.tables)} tables"


def row(model: Other) -> Row:
    """One line of the list."""
    total, active = _parameters(model), _active(model)
    return [model.id, family(model), units.format_count(total), units.format_count(active), sample(model), BUILT_IN]


def summary(model: Other) -> ListedModel:
    """One entry of the list, as JSON."""
    return ListedModel(
        id=model.id,
        name=model.name,
        family=family(model),
        parameters=_parameters(model),
        active_parameters=_active(model),
        sample=sample(model),
        origin=BUILT_IN,
    )


def document(model: Other) -> dict[str, Any]:
    """Everything about a model, as JSON: its fields, counts and work."""
    parts = {name.replace(" ", "_"): number for name, number in _parts(model)}
    found = {
        "kind": "model",
        "schema_version": 1,
        **asdict(model),
        "family": family(model),
        "sample": sample(model),
        "parameters": {"total": _parameters(model), "active": _active(model), **parts},
        "training_flops_per_sample": _flops(model),
    }
    return found | ({} if isinstance(model, ConvolutionNetwork) else {"memory_bytes": _table_bytes(model)})


def sheet(model: Other) -> list[Row]:
    """The fields that are not at their defaults: name, value, and why it is only assumed, if it is."""
    given = [(item.name, getattr(model, item.name), item.default) for item in fields(model) if item.name not in _PROSE]
    shape = [["shape", "", f"assumed: {model.assumed['shape']}"]] if "shape" in model.assumed else []
    return [
        *shape,
        ["family", family(model), ""],
        ["sample", sample(model), ""],
        *(
            [name, _shown(value), f"assumed: {model.assumed[name]}" if name in model.assumed else ""]
            for name, value, default in given
            if value != default
        ),
    ]


def counts(model: Other) -> list[Row]:
    """Where the parameters are."""
    total = _parameters(model)
    parts = [*_parts(model), ("all", total), ("active per sample", _active(model))]
    return [[name, f"{number:,}", units.format_percent(number / total)] for name, number in parts if number]


def work(model: Other) -> str:
    """FLOPs per sample."""
    of = "image" if isinstance(model, ConvolutionNetwork) else "sample, in dense layers,"
    return f"{units.format_count(_flops(model))}FLOP per {of} to train"


def memory(model: Other) -> str:
    """What tables and their optimizer state take over all accelerators; nothing for a convolutional network."""
    if isinstance(model, ConvolutionNetwork):
        return ""
    held = _table_bytes(model)
    state = f" and {units.format_bytes(held['optimizer'])} of optimizer state" if held["optimizer"] else ""
    return f"{units.format_bytes(held['tables'])} of tables{state}, over all accelerators"


def _parts(model: Other) -> list[tuple[str, int]]:
    """Parameters by part, in order: a network's stages, a recommender's tables and dense layers."""
    if isinstance(model, Recommender):
        tables = dlrm.embedding_parameters(model)
        return [("embedding tables", tables), ("dense layers", dlrm.dense_parameters(model))]
    return [*convolution.stage_parameters(model).items()]


def _parameters(model: Other) -> int:
    return sum(number for _, number in _parts(model))


def _active(model: Other) -> int:
    """Parameters that one sample meets: all of a network; of tables only the rows that are looked up."""
    if isinstance(model, ConvolutionNetwork):
        return _parameters(model)
    return sum(model.lookups) * model.embedding + dlrm.dense_parameters(model)


def _flops(model: Other) -> float:
    if isinstance(model, ConvolutionNetwork):
        return float(convolution.step_flops(convolution.layers(model), 1.0))
    return float(dlrm.step_flops(model, 1.0))


def _table_bytes(model: Recommender) -> dict[str, int]:
    """Bytes of tables, and of the optimizer's state for them: ``elements x state_bytes``."""
    state = dlrm.embedding_parameters(model) * model.state_bytes
    return {"tables": dlrm.embedding_bytes(model), "optimizer": state}


def _shown(value: object) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    if not isinstance(value, tuple):
        return str(value)
    if value and not isinstance(value[0], int):
        return f"{' + '.join(str(stage.blocks) for stage in value)} blocks, to {value[-1].channels:,} channels"
    if len(value) > 8:
        return f"{len(value)}: {min(value):,} to {max(value):,}, {sum(value):,} together"
    return " ".join(f"{number:,}" for number in value)
