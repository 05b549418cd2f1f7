"""Columns of a runs file (read, only describing, unknown), and its cells: text to numbers, or why a row is none."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Collection, Mapping, Sequence

from planner.base.errors import WrongQuestion

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
