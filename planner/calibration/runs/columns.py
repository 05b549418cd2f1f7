"""Columns of a runs file (read, only describing, unknown), its cells as numbers, and what no run can have been.

Refused are negative measurements, halves of an accelerator, degrees that do not cut the model, and options before the
framework had them (`since`, in the catalog of runtimes).
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Collection, Mapping, Sequence

from planner.base.errors import WrongQuestion
from planner.schema.hardware import Runtime, dated
from planner.schema.workload import MOST_LAYERS, Model

READ = (
    *("id", "source", "source_group", "lab", "framework", "framework_date", "runtime", "release"),
    *("model", "model_base", "family", "task", "grade", "notes", "sharding", "flops_convention"),
    *("accelerator", "num_accelerators", "accelerators_per_node", "inter_node_network"),
    *("seq_len", "global_batch_seqs", "tp", "pp", "vpp", "dp", "cp", "ep", "etp", "micro_batch"),
    *("zero_stage", "activation_recompute", "sequence_parallel", "precision"),
    *("layers", "hidden", "ffn_hidden", "heads", "kv_heads", "head_dim", "vocab", "gated_mlp"),
    *("num_experts", "topk", "moe_ffn_hidden"),
    *("step_time_s", "tokens_per_s_per_gpu", "tflops_per_gpu", "metric", "value"),
    *("memory_gb_per_gpu", "memory_kind"),
)
"""Columns that a prediction or its judgement depends on."""
DESCRIBE = ("source_ref", "params_b", "active_params_b", "evidence", "date", "steps", "step_time_spread")
"""Columns of published files and of a site's journal that say where a row is from, or repeat what others say."""
ALIKE = 0.8
"""Share of letters from which on a column's name is another's, misspelt."""


def unread(names: Sequence[str]) -> tuple[str, ...]:
    """The columns that no prediction depends on and that no one here knows, in their order.

    Raises:
        WrongQuestion: one is a column that is read, by another name: what it says would be lost.
    """
    other = tuple(name for name in names if name and name not in (*READ, *DESCRIBE))
    for name in other:
        if meant := _meant(name, names):
            raise WrongQuestion(f"column {name!r}: is it {meant}? Rename it, or drop it if it is something else")
    return other


def _meant(name: str, present: Collection[str]) -> str:
    """The column that a file lacks and whose name is this one but for its spelling; empty if there is none."""
    lacking = {re.sub(r"[^a-z0-9]", "", column): column for column in READ if column not in present}
    near = difflib.get_close_matches(re.sub(r"[^a-z0-9]", "", name.lower()), lacking, n=1, cutoff=ALIKE)
    return lacking[near[0]] if near else ""


LARGEST = 1e30
"""Nothing that a run has is more, and products of a few such cells are still numbers."""


class Unpredictable(Exception):
    """A row that cannot be predicted, and why."""


def number(row: Mapping[str, str], name: str) -> float | None:
    """A cell as a number that can be one of a run; None if it is empty or none."""
    text = (row.get(name) or "").strip()
    try:
        value = float(text) if text else math.nan
    except ValueError:
        return None
    return value if abs(value) <= LARGEST else None


def required(row: Mapping[str, str], name: str) -> float:
    """A cell that must be a positive number."""
    value = number(row, name)
    if value is None or value <= 0:
        raise Unpredictable(f"{name} is not stated")
    return value


def whole(row: Mapping[str, str], name: str, default: int | None = None) -> int | None:
    """A cell as a count of at least one."""
    value = number(row, name)
    return default if value is None or value < 1 else int(value)


MEASURED = ("step_time_s", "memory_gb_per_gpu", "tokens_per_s_per_gpu", "tflops_per_gpu", "value")
COUNTS = (
    *("num_accelerators", "accelerators_per_node", "seq_len", "global_batch_seqs", "micro_batch"),
    *("tp", "pp", "vpp", "cp", "ep", "etp", "dp", "layers", "hidden", "heads", "kv_heads", "num_experts", "topk"),
)
MOST: Mapping[str, float] = {
    **{"layers": MOST_LAYERS, "step_time_s": 86_400.0, "memory_gb_per_gpu": 10_000.0},
    **{"num_accelerators": 1e7, "accelerators_per_node": 1e4, "seq_len": 1e9, "global_batch_seqs": 1e9},
    **{"hidden": 1e6, "heads": 1e5, "num_experts": 1e5},
}
"""Column -> what no run has had, by a factor of ten and more: a step of a day, ten million accelerators."""
SWITCHES = ("sequence_parallel", "gated_mlp")
TASKS = ("pretrain", "mlperf-pretrain", "lora", "sft", "finetune")


def impossible_cell(row: Mapping[str, str]) -> str:
    """Why a row's cells cannot be of a run, each by itself; empty if they can."""
    task = row.get("task") or TASKS[0]
    if task not in TASKS:
        return f"task {task!r}: {', '.join(TASKS)} are known"
    for name in (*MEASURED, *COUNTS):
        text = (row.get(name) or "").strip()
        try:
            value = float(text) if text else 0.0
        except ValueError:
            return f"{name} {text!r} is no number"
        if not math.isfinite(value):
            return f"{name} {text!r} is no number"
        if value < 0:
            return f"{name} {text} is negative"
        if name in COUNTS and not value.is_integer():
            return f"{name} {text} is not whole"
        if value > MOST.get(name, math.inf):
            return f"{name} {text}: at most {MOST[name]:,.0f}"
    for name in SWITCHES:
        if (text := (row.get(name) or "").strip()) not in ("", "0", "1", "0.0", "1.0"):
            return f"{name} {text!r}: 0 and 1 are known"
    return ""


def impossible_cut(model: Model, n: int, degrees: Mapping[str, int | None]) -> str:
    """Why `n` accelerators cannot have run a model under some degrees (tp, pp, ep); empty if they can."""
    tp, pp, ep = (degrees.get(name) or 1 for name in ("tp", "pp", "ep"))
    if pp > model.layers:
        return f"pp {pp} is more than the model's {model.layers} layers"
    if model.heads % tp:
        return f"tp {tp} does not divide the model's {model.heads} heads"
    if ep == 1:
        return ""
    if model.moe is None:
        return f"ep {ep}, but the model has no experts"
    if model.moe.experts % ep:
        return f"ep {ep} does not divide the model's {model.moe.experts} experts"
    return f"ep {ep} is more than {n} accelerators" if ep > n else ""


def options_to_come(known: Runtime, date: str) -> tuple[str, ...]:
    """What of `since` a runtime surely had not at a date (YYYY or YYYY.MM): what came after the year, or the month."""
    if (middle := dated(date)) is None:
        return ()
    end = middle + (0.5 / 12 if "." in date else 0.5)
    return tuple(what for what, since in known.since.items() if (dated(since) or 0.0) > end)


def contradiction(known: Runtime, date: str, stated: Mapping[str, str]) -> str:
    """Why a run of that date cannot have been what a row states; empty if it can.

    Arguments:
        known: the runtime.
        date: its release, YYYY or YYYY.MM.
        stated: what the row states of options -> the cell that says so; options as `since` names them.
    """
    for what in options_to_come(known, date):
        if what in stated:
            return (
                f"{stated[what]}: {known.id} has {what} since {known.since[what]}, the run is of {date}; "
                "correct the one or the other (framework, framework_date, runtime)"
            )
    return ""


MONTHS = re.compile(r"\b(20\d\d)[-./](0[1-9]|1[0-2])\b|\b(?:v|r|release |container )?(2\d)\.(0[1-9]|1[0-2])\b")
"""A month in words: ``2025-06``, or the name of a release by its month, ``25.06``."""


def completed(date: str, known: Runtime, text: str, stated: Collection[str]) -> str:
    """A date with its month, where it says a year only and a row names something of that year.

    Args:
        date: YYYY, or what is complete already.
        known: The runtime.
        text: The row's words: months, names of releases.
        stated: Options that the row states, as `since` names them: the run is no older than they are.
    """
    if "." in date or not date:
        return date
    months = [f"{match[1] or '20' + match[3]}.{match[2] or match[4]}" for match in MONTHS.finditer(text)]
    since = [known.since[what] for what in stated if what in known.since]
    return max((month for month in (*months, *since) if month.startswith(date)), default=date)
