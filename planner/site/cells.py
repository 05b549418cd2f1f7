"""Cells of a measured row: what a plan says, what a log says, and where the two contradict each other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from planner.base.errors import WrongQuestion
from planner.calibration.runs import names
from planner.catalog import Catalog
from planner.models.workload import library
from planner.schema.plan import Plan
from planner.schema.workload import Method, Model
from planner.site import row_words
from planner.site.logs.records import LoggedRun

MOST_PADDING = 4096
"""Entries by which a vocabulary is padded: to a multiple of 128 x TP (Megatron-LM, _vocab_size_with_padding)."""
Cells = Mapping[str, str]
"""Column of ``docs/runs.md`` -> its text; a column that is not there is not known."""

_NEUTRAL = {"vpp": "1", "cp": "1", "ep": "1"}
"""What an empty cell means, as ``docs/runs.md`` says."""
TRAINED = ("pretrain", "finetune", "lora")
"""What a row can say of what is trained."""
_SHAPE = {
    "layers": "layers",
    "hidden": "hidden",
    "ffn": "ffn_hidden",
    "heads": "heads",
    "kv_heads": "kv_heads",
    "head_dim": "head_dim",
    "vocab": "vocab",
}
"""Field of a model -> column."""
CONFIGURATION = (
    *("layers", "hidden", "ffn_hidden", "heads", "kv_heads", "num_experts", "task"),
    *("accelerator", "num_accelerators", "seq_len", "global_batch_seqs", "precision"),
    *("tp", "pp", "vpp", "cp", "ep", "etp", "micro_batch", "zero_stage", "activation_recompute"),
)
"""Columns in which two runs of one framework differ, and by which a plan is found in the journal: a model by its shape,
since copies of it have other names.
"""
_FREE = (
    "model",
    "family",
    "vocab",
    "lab",
    "source",
    "notes",
    "etp",
    "ffn_hidden",
    "moe_ffn_hidden",
    "head_dim",
    "kv_heads",
)
"""Columns in which a log and a plan may differ: names, padding of the vocabulary, what dense models ignore, and shapes
that frameworks state in ways of their own for mixtures and latent attention. Frameworks are compared by their kernels.
"""


@dataclass(frozen=True, slots=True)
class Contradiction:
    """A column that a log and a plan fill differently."""

    column: str
    logged: str
    planned: str

    def __str__(self) -> str:
        return f"{self.column} is {self.logged} in the log and {self.planned} in the plan"


def of_plan(plan: Plan) -> dict[str, str]:
    """The configuration of a plan on one pool.

    Raises:
        WrongQuestion: the plan is over several pools: a row describes one
    """
    if len(plan.cluster.pools) != 1:
        raise WrongQuestion(
            "a plan over several pools has no row in the journal: teach it each pool by a run on that alone"
            " (clusterwright plan MODEL --cluster POOL), and compare this step by clusterwright estimate ... --measured"
        )
    work = plan.workload
    method = Method(**{**work.method, "targets": tuple(work.method["targets"])})
    unstated = no_column(method, work.task or "sft", work.optimizer["id"], work.texts or ())
    pool = plan.cluster.pools[0]
    cut = plan.parallelism
    shape = plan.workload.shape
    row = {
        "model": plan.workload.model,
        "task": unstated or method.kind,
        "runtime": f"{plan.runtime.name}@{plan.runtime.release}",
        "accelerator": pool.accelerator,
        "num_accelerators": plan.cluster.accelerators,
        "accelerators_per_node": pool.accelerators_per_node,
        "inter_node_network": _network(pool.nics_per_node, pool.nic_bytes_per_s),
        "seq_len": plan.workload.sequence,
        "global_batch_seqs": plan.batch.global_,
        "micro_batch": plan.batch.micro,
        **{axis: getattr(cut, axis) for axis in ("tp", "pp", "vpp", "cp", "ep", "etp")},
        "zero_stage": cut.zero_stage,
        "sequence_parallel": int(cut.sequence_parallel),
        "activation_recompute": _recompute(plan),
        "precision": plan.precision,
        "notes": row_words.of_plan(plan),
        **_shape(shape),
    }
    return {column: str(value) for column, value in row.items() if value not in (None, "")}


def no_column(method: Method, task: str, optimizer: str, texts: Sequence[float]) -> str:
    """What of a training no column states, as its option says it, so that its runs would pass for others; or nothing.

    Args:
        method: What is trained.
        task: Of a fine-tuning.
        optimizer: Its id.
        texts: Lengths that are packed, in tokens.
    """
    if method.name not in TRAINED:
        return f"--method {method.name}"
    if task != "sft":
        return f"--task {task}"
    if optimizer != "adamw":
        return f"--optimizer {optimizer}"
    return "--lengths" if texts else ""


def _network(ports: int, rate: float | None) -> str:
    return f"{ports}x{rate * 8 / 1e9:.0f} Gb" if ports and rate else ""


def _recompute(plan: Plan) -> str:
    """The policy, ``block:N`` with the layers of a stage (of a chunk, where stages are interleaved)."""
    policy, cut = plan.recompute, plan.parallelism
    if not policy.policy.startswith("block:"):
        return policy.policy
    layers = float(plan.workload.shape["layers"]) / cut.pp / cut.vpp
    return f"block:{max(1, round(policy.layers_fraction * layers))}"


def _shape(shape: Mapping[str, Any]) -> dict[str, object]:
    row: dict[str, object] = {column: shape.get(name) for name, column in _SHAPE.items()}
    row["gated_mlp"] = int(bool(shape.get("gated", True)))
    moe = shape.get("moe")
    row["family"] = "moe" if moe else "dense"
    if isinstance(moe, Mapping):
        row |= {"num_experts": moe["experts"], "topk": moe["experts_per_token"], "moe_ffn_hidden": moe["ffn"]}
    return row


def of_log(run: LoggedRun, catalog: Catalog) -> dict[str, str]:
    """What a log's own dump of its configuration says; the model by its shape, the accelerator by its driver's name."""
    row = dict(run.stated)
    if run.runtime:
        row["runtime"] = run.runtime
    if "layers" in row:
        row["family"] = "moe" if row.get("num_experts") else "dense"
    named = row.pop("model", "")
    models = (
        [known_model.id for known_model in library().values() if _is_shaped(known_model, row)]
        if "hidden" in row
        else []
    )
    if models:
        row["model"] = named if named in models else models[0]
    elif named in library():
        row["model"] = named
    elif "layers" in row and "hidden" in row:
        row["model"] = f"{row['layers']}x{row['hidden']}"
    if row.get("model") in library() and "family" not in row and (family := _family(library()[row["model"]])):
        row["family"] = family
    if run.device and (part := _accelerator(run.device, catalog)):
        row["accelerator"] = part
    return row


def _family(model: Model) -> str:
    """A decoder's family in the words of a row; empty of others."""
    return ("moe" if model.moe else "dense") if model.family == "decoder" else ""


def _is_shaped(model: Model, row: Cells) -> bool:
    """Whether a model of the library has the shape of a row, as far as that states one."""
    same = all(str(getattr(model, name)) == row.get(column, "") for name, column in _SHAPE.items() if name != "vocab")
    experts = str(model.moe.experts) if model.moe else ""
    padded = float(row.get("vocab") or model.vocab)
    return (
        same
        and experts == row.get("num_experts", "")
        and model.vocab <= padded <= model.vocab + MOST_PADDING
        and not model.encoder_layers
    )


def _accelerator(name: str, catalog: Catalog) -> str | None:
    accelerator = names.accelerator(name.removeprefix("NVIDIA "), catalog.accelerators)
    return accelerator if accelerator in catalog.accelerators else None


def contradictions(logged: Cells, planned: Cells, catalog: Catalog) -> list[Contradiction]:
    """The columns that a log and a plan fill differently; frameworks that share their kernels are one, and one replica
    is the same under every ZeRO stage.
    """
    differing = [
        Contradiction(column, logged[column], planned[column])
        for column in logged
        if column not in (*_FREE, "runtime")
        and column in planned
        and not _agree(column, logged[column], planned[column])
        and not (column == "zero_stage" and _replicas(planned) == 1)
    ]
    ran = logged.get("runtime", "")
    meant = planned.get("runtime", "").partition("@")[0]
    if ran and meant and not _kernels(catalog, ran) & _kernels(catalog, meant):
        differing.append(Contradiction("runtime", ran, meant))
    return differing


def _replicas(row: Cells) -> int:
    """Data-parallel and context-parallel ranks, over which ZeRO shards; 0 where a row does not say how many."""
    count = int(row.get("num_accelerators", 0))
    return count // (int(row.get("tp", 1)) * int(row.get("pp", 1)))


def _agree(column: str, logged: str, planned: str) -> bool:
    """Whether two cells say the same; a sharded mesh does not say whether gathered weights are kept (ZeRO 2) or not,
    and a log not which modules are recomputed.
    """
    if column == "activation_recompute" and logged == "selective":
        return planned.startswith(logged)
    return logged == planned or (column == "zero_stage" and {logged, planned} == {"2", "3"})


def _kernels(catalog: Catalog, runtime: str) -> set[str]:
    """The runtimes whose kernels a runtime has, without their releases."""
    return {name.partition("@")[0] for name in catalog.runtime(runtime).known_as}


def key(row: Cells) -> tuple[str, ...]:
    """What makes a configuration: equal for a plan and for the run that measured it."""
    full = {**_NEUTRAL, "task": "pretrain", **_library_shape(row), **{name: text for name, text in row.items() if text}}
    full.setdefault("etp", full.get("tp", "") if full["ep"] == "1" else "1")
    if not full.get("num_experts"):
        full["etp"] = ""  # says nothing of a dense model
    return (*(full.get(column, "") for column in CONFIGURATION), full.get("runtime", "").partition("@")[0])


def _library_shape(row: Cells) -> dict[str, str]:
    """The shape of a row that names a model of the library and nothing else."""
    model = library().get(row.get("model", ""))
    if model is None:
        return {}
    return {column: str(value) for column, value in _shape(asdict(model)).items() if value is not None}


def missing(row: Cells, needed: Iterable[str]) -> list[str]:
    """The columns among some that a row does not fill."""
    return [column for column in needed if not row.get(column)]
