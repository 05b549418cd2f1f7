"""Whether a plan is well-formed, before anything is computed from it: numbers are numbers, its model can be one."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

from planner.schema.model_reading import read
from planner.schema.plan import Plan

BYTES = ("parameters", "gradients", "gradient_wire", "parameter_wire", "gathers_working_copy")
BASES = ("nf4", "int8", "fp8")
MOST_IMBALANCE = 64.0
OPTIMIZER_BYTES = ("state_bytes", "master_bytes", "step_bytes")
MAY_BE_NEGATIVE = ("slack", "seed", "saved_s", "residual", "weight")
"""Slack of an estimate that does not fit; seeds are any number; a call that loses in a class that gains; a run that was
faster than predicted."""
LARGEST = 10**60
"""Nothing that is counted or measured comes near, and products of a few are still floats."""
MOST_LAYERS = 1_000_000
"""Layers and chunks that are looked at one by one."""


def numbers(value: object, path: str = "") -> Iterator[tuple[str, float]]:
    """Every number of a document with its path; truth values are none."""
    if dataclasses.is_dataclass(value):
        fields = ((field.name, getattr(value, field.name)) for field in dataclasses.fields(value))
    elif isinstance(value, Mapping):
        fields = ((str(key), item) for key, item in value.items())
    elif isinstance(value, tuple | list):
        fields = ((str(index), item) for index, item in enumerate(value))
    else:
        if isinstance(value, int | float) and not isinstance(value, bool):
            yield path, value
        return
    for key, item in fields:
        yield from numbers(item, f"{path}.{key}" if path else key)


def beyond(number: float) -> bool:
    """Whether it is not a number, or larger than anything that a document counts."""
    return not abs(number) <= LARGEST


def numbers_are_possible(plan: Plan) -> Iterator[str]:
    """Everything is a number of some use, and nothing but a slack is negative."""
    for path, number in numbers(plan):
        if beyond(number):
            yield f"{path} is beyond {LARGEST:g}" if number > LARGEST else f"{path} is {number:g}"
        elif number < 0 and path.rpartition(".")[2] not in MAY_BE_NEGATIVE:
            yield f"{path} is {number:g}"


def divisors_are_positive(plan: Plan) -> Iterator[str]:
    """What others are divided by is above 0, and a cluster has a pool."""
    p = plan.parallelism
    g = plan.money.goodput
    positive = {
        **{axis: getattr(p, axis) for axis in ("tp", "pp", "vpp", "cp", "ep", "etp", "dp", "dp_shard")},
        "batch.global": plan.batch.global_,
        "batch.micro": plan.batch.micro,
        "workload.sequence": plan.workload.sequence,
        "step_time_s": plan.prediction.step_time_s,
        "goodput.fraction": g.fraction,
        "mtbf_s": g.mtbf_s,
        "checkpoint_interval_s": g.checkpoint_interval_s,
        "rank": plan.rank,
        "pools": len(plan.cluster.pools),
        "memory.total_bytes": plan.prediction.memory.total_bytes,
        "memory.capacity_bytes": plan.prediction.memory.capacity_bytes,
        **{
            f"intervals.{name}.{end}": getattr(interval, end)
            for name, interval in plan.prediction.intervals.items()
            for end in ("low", "high")
        },
        "cluster.fabric.oversubscription": plan.cluster.fabric.oversubscription,
    }
    yield from (f"{name} is {value:g}" for name, value in positive.items() if value <= 0)


def changes_are_used(plan: Plan) -> Iterator[str]:
    """What is said to be changed of an accelerator is another value than the catalog's, and the pool's own."""
    for at, pool in enumerate(plan.cluster.pools):
        stands = {"memory": pool.accelerator_memory_bytes, **{f"peak.{k}": v for k, v in pool.peak_flops.items()}}
        for change in pool.changed or ():
            if change.used == change.catalog or change.used != stands.get(change.figure, change.used):
                yield f"cluster.pools.{at}.changed: {change.figure} is not used as {change.used}"


def tables_are_complete(plan: Plan) -> Iterator[str]:
    """The optimizer's and the runtime's bytes per parameter are all there, and the method is one that exists."""
    for where, table, names in (
        ("runtime.bytes_per_parameter", plan.runtime.bytes_per_parameter, BYTES),
        ("workload.optimizer", plan.workload.optimizer, OPTIMIZER_BYTES),
    ):
        yield from (f"{where}.{name} is not a number" for name in names if not _is_number(table.get(name)))
    if not isinstance(plan.workload.optimizer.get("id"), str):
        yield "workload.optimizer.id is no name"
    held, gathers = (plan.runtime.bytes_per_parameter.get(name) for name in ("parameters", "gathers_working_copy"))
    if gathers not in (0, 1) or (gathers and held):
        yield f"runtime.bytes_per_parameter: gathers_working_copy {gathers} with {held} bytes held besides"
    method = plan.workload.method
    kind, rank, targets = (method.get(key) for key in ("kind", "rank", "targets"))
    if kind not in ("pretrain", "finetune", "lora", "freeze"):
        yield f"workload.method.kind is {kind!r}"
    if unknown := [*map(str, method.keys() - {"kind", "rank", "targets", "base", "magnitude", "layers"})]:
        yield f"workload.method has {', '.join(unknown)}, which is no key of a method"
    if not isinstance(targets, tuple | list) or not isinstance(rank, int):
        yield "workload.method lacks its rank or its targets"
    elif not all(isinstance(target, str) for target in targets):
        yield "workload.method.targets holds what is no name"
    elif method.get("base", "nf4") not in BASES or ("base" in method and (kind != "lora" or not _frozen(plan))):
        yield f"workload.method: {kind} with base {method['base']!r} and {_frozen(plan):g} bytes a frozen parameter"
    elif (kind == "freeze") != ("layers" in method) or ("magnitude" in method and kind != "lora"):
        yield f"workload.method: {kind} with the keys {', '.join(map(str, method))}"
    elif kind == "freeze" and (not _is_count(method["layers"], plan) or plan.parallelism.pp > 1):
        yield f"workload.method: freeze of {method['layers']!r} last blocks over {plan.parallelism.pp} stages"
    elif (kind == "lora") != (rank > 0) or (kind == "lora") != bool(targets):
        yield f"workload.method: {kind} with rank {rank} and targets {list(targets)}"


def _is_count(layers: object, plan: Plan) -> bool:
    """Whether so many blocks are some of the model's, not all."""
    every = plan.workload.shape.get("layers")
    return isinstance(layers, int) and not isinstance(layers, bool) and isinstance(every, int) and 0 < layers < every


def _frozen(plan: Plan) -> float:
    """Bytes of a frozen parameter of a block; 0 where none is said."""
    frozen_bytes = plan.runtime.bytes_per_parameter.get("frozen", 0.0)
    return float(frozen_bytes) if _is_number(frozen_bytes) else 0.0


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def modules_go_with_the_model(plan: Plan) -> Iterator[str]:
    """Multi-token prediction: modules of a decoder, all of it trained."""
    w = plan.workload
    if w.mtp_layers is None:
        return
    if not 1 <= w.mtp_layers <= MOST_LAYERS or w.shape.get("family") != "decoder" or w.method.get("kind") == "lora":
        yield f"workload.mtp_layers is {w.mtp_layers}: only decoders that are trained whole have such modules"


def pairs_are_whole(plan: Plan) -> Iterator[str]:
    """A task on pairs fine-tunes, an even number of sequences a micro-batch; reward models score, others do not."""
    w = plan.workload
    micro = plan.batch.micro
    if w.task is not None and (w.task == "sft" or w.method.get("kind") == "pretrain" or micro % 2):
        yield f"workload.task is {w.task}, with method {w.method.get('kind')} and {micro} sequences a micro-batch"
    if (w.task == "reward") != bool(w.shape.get("labels")):
        yield f"workload.task is {w.task}, and the head makes {w.shape.get('labels', 0)} scores"


def imbalance_is_of_a_mixture(plan: Plan) -> Iterator[str]:
    """Uneven tokens go with experts, and the busiest rank has no fewer than an even share."""
    given = plan.workload.imbalance
    if given is not None and (not plan.workload.shape.get("moe") or not 1.0 <= given <= MOST_IMBALANCE):
        yield f"workload.imbalance is {given}: it goes with experts, from 1 to {MOST_IMBALANCE:g}"


def texts_fit_into_sequences(plan: Plan) -> Iterator[str]:
    """Packed texts are a fine-tuning's, shortest first, none longer than the sequence, with their batches."""
    w = plan.workload
    batches = plan.prediction.text_batches
    if (w.texts is None) != (batches is None):
        yield f"workload.texts and prediction.text_batches go together: {w.texts is not None}, {batches is not None}"
    if w.texts is None:
        return
    if not w.texts or list(w.texts) != sorted(w.texts) or not 1 <= w.texts[0] <= w.texts[-1] <= w.sequence:
        yield f"workload.texts: lengths from 1 to {w.sequence:,} tokens, shortest first"
    if w.task or w.method.get("kind") == "pretrain" or plan.parallelism.groups:
        yield f"workload.texts: method {w.method.get('kind')}, task {w.task or 'sft'}, or groups pack none"


def shape_is_a_model(plan: Plan) -> Iterator[str]:
    """The shape has every field of a model, each in its range, and is the model named."""
    try:
        model = read(plan.workload.shape)
    except ValueError as error:
        yield f"workload.shape: {error}".replace("\n", "; ")
        return
    if model.layers + model.encoder_layers > MOST_LAYERS or plan.parallelism.vpp > MOST_LAYERS:
        yield f"workload.shape: more than {MOST_LAYERS:,} layers or chunks"
    if model.id != plan.workload.model:
        yield f"workload.shape is of {model.id}, the plan of {plan.workload.model}"
    if (model.family == "encoder-decoder") != bool(model.encoder_layers):
        yield f"workload.shape: family {model.family} with {model.encoder_layers} layers of an encoder"
    if model.family in ("encoder", "vision") and model.causal:
        yield f"workload.shape: family {model.family} attends both ways, and causal is true"
    if (tower := model.tower) and tower.images * tower.tokens > plan.workload.sequence:
        seen = f"{tower.images} {tower.pieces} of {tower.tokens} tokens"
        yield f"workload.shape: {seen} do not stand in {plan.workload.sequence}"
    if (moe := model.moe) and (moe.leading_dense_layers >= model.layers or moe.experts_per_token > moe.experts):
        yield "workload.shape.moe: more dense layers than layers, or more experts visited than there are"


CHECKS = (
    numbers_are_possible,
    divisors_are_positive,
    changes_are_used,
    tables_are_complete,
    modules_go_with_the_model,
    pairs_are_whole,
    imbalance_is_of_a_mixture,
    texts_fit_into_sequences,
    shape_is_a_model,
)
