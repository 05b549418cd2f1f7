"""A present configuration as a plan: read, completed by what the caller says, priced by ``estimate``."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from planner import planning
from planner.axes.table import ATTENTION_KERNEL, ZERO_SCOPE
from planner.axes.values import ALONE, EVERYWHERE, over_nodes
from planner.base.errors import WrongQuestion
from planner.launchers import plan_facts
from planner.launchers.reading import deepspeed, wrappers
from planner.launchers.reading.found_options import FoundOptions
from planner.launchers.reading.source import detect, read
from planner.launchers.reading.started import AS_IT_IS, Started, text_of
from planner.launchers.reading.where_it_runs import counted_on, where_it_runs
from planner.models import context, files, model_rules, workload
from planner.question.given import Named
from planner.question.kept import kept_question
from planner.question.plan_options import PlanOptions
from planner.question.reading import pinned_request, request
from planner.question.search_problem import resolve_efficiency
from planner.schema.hardware import Cluster
from planner.schema.plan import PlanSet
from planner.schema.workload import Model
from planner.space.rules import accelerators_of_domain


@dataclass(frozen=True, slots=True)
class Present:
    """The plan of a present configuration, and what of it the plan does not show."""

    source: str
    plans: PlanSet
    unread: Sequence[str]
    differs: Sequence[str]
    assumed: Sequence[str]


def plan(
    source: str | None,
    text: str,
    cluster: Sequence[str],
    *,
    model: str | None = None,
    accelerators: str | None = None,
    micro: int | None = None,
    pinned: Mapping[str, str] = MappingProxyType({}),
    started: Started = AS_IT_IS,
    **asked: Any,
) -> Present:
    """The configuration priced on a cluster.

    Args:
        source: One of :data:`SOURCES`; None: what the text looks like.
        text: A command line, or the name of a file.
        cluster: As ``estimate`` takes it; nodes without a count are as many as the configuration starts ranks on.
        accelerators: Their kind in place of a cluster, with a count (``A100-80GB:16``) or as many as it starts ranks.
        model: Id or file; where the configuration has the shape, it is not needed.
        micro: Sequences of a forward pass, where the configuration leaves them to others.
        pinned: Axes that the configuration does not say, or that are to be other than it says.
        started: How a script is started, and whether it may be run.
        asked: What the configuration does not say (seq, tokens, region, ...), as ``estimate`` takes it.

    Raises:
        WrongQuestion: it cannot be read, or no plan can say it.
    """
    started = replace(started, machine=lambda: counted_on(cluster), model=model)
    with wrappers.opened(text, started) as (text, started, job):
        source = detect(text) if source is None else source
        found = _with_micro(read(source, text, started), micro, source)
        found = found if job is None else job.says(found)
    located = {key: asked[key] for key in ("region", "fabric") if asked.get(key) is not None}
    where = where_it_runs(found.ranks, cluster, accelerators, located)
    with tempfile.TemporaryDirectory() as folder:
        name = _model(found, model, source, Path(folder))
        found = replace(found, assumed=[*found.assumed, *_vocabulary(found, model, name)])
        machines = request(name, where, PlanOptions(runtime=found.runtime, **located))[1].cluster
        try:
            batched = _batched(_interleaved(found, name), source, _ranks(found, machines))
            found = replace(batched, settings={**batched.settings, **_over_nodes(batched, machines)})
            priced = _priced(found, name, where, pinned, asked)
        except WrongQuestion as error:
            raise WrongQuestion(f"{error}{_other_ranks(found, machines)}") from None
    best = priced.plans[0]
    if found.sequence is None and asked.get("seq") is None:
        left = f"length of sequences not stated: {best.workload.sequence:,} (--seq)"
        found = replace(found, assumed=[*found.assumed, left])
    if source == "deepspeed":
        deepspeed.check(text_of(text), best.cluster.accelerators)
    return Present(source, priced, found.unread, tuple(_differences(found, best)), found.assumed)


def _with_micro(found: FoundOptions, micro: int | None, source: str) -> FoundOptions:
    """The configuration with the micro-batch that the caller says; what it says itself stays."""
    if micro is None:
        return found
    assumed = [text for text in found.assumed if "per_device_train_batch_size" not in text]
    if "micro" in found.settings and len(assumed) == len(found.assumed):
        raise WrongQuestion(f"--micro {micro}: --from {source} says {found.settings['micro']} already")
    if micro < 1:
        raise WrongQuestion(f"--micro {micro}: must be at least 1")
    per_rank = micro * (found.accumulation or 1)
    return replace(found, settings={**found.settings, "micro": micro}, per_rank=per_rank, assumed=assumed)


def _priced(
    found: FoundOptions, name: str, cluster: Sequence[Named], pinned: Mapping[str, str], asked: Mapping[str, Any]
) -> PlanSet:
    stated = {
        "runtime": found.runtime,
        "batch": None if found.batch is None else str(found.batch),
        "seq": found.sequence,
        "precision": found.precision,
        "method": found.method,
        "task": found.task,
        **{name: value for name in ("rank", "targets", "optimizer") if (value := getattr(found, name)) is not None},
        "mtp_layers": found.mtp_layers,
        "tokens": _tokens(found),
        **{name: value for name, value in asked.items() if value is not None},
    }
    options = PlanOptions(**stated)
    chosen = {
        **found.settings,
        **_sharing(found, name, cluster, options),
        **_kernel(found, name, cluster, options),
        **pinned,
    }
    settings = [f"{axis}={value}" for axis, value in chosen.items()]
    estimated = planning.estimate(*pinned_request(name, list(cluster), settings, options))
    return replace(estimated, asked=kept_question(list(cluster), options, settings))


def _sharing(found: FoundOptions, name: str, cluster: Sequence[Named], asked: PlanOptions) -> dict[str, object]:
    """How context-parallel ranks share a sequence, where the runtime and the model's attention allow that: else it is
    told.
    """
    if int(str(found.settings.get("cp", 1))) == 1 or found.cp_algorithm is None:
        return {}
    offered = request(name, list(cluster), asked)[1].runtime.axes.get("cp_algorithm", ("p2p",))
    able = context.algorithms(workload.workload(name, sequence=found.sequence))
    is_able = found.cp_algorithm in able and (offered == "any" or found.cp_algorithm in offered)
    return {"cp_algorithm": found.cp_algorithm} if is_able else {}


def _kernel(found: FoundOptions, name: str, cluster: Sequence[Named], asked: PlanOptions) -> dict[str, object]:
    """The kernel of attention, where the runtime has it, with this model, and the catalog figures of it: else it is
    told.
    """
    if found.kernel is None:
        return {}
    catalog, wanted = request(name, list(cluster), asked)
    known = resolve_efficiency(catalog, wanted, wanted.cluster.accelerator).accelerator.attention_kernels
    shared = str(found.settings.get("cp", 1)) != "1"
    able = ATTENTION_KERNEL.takes(found.kernel, shared=shared, dropout=wanted.workload.model.dropout)
    able &= found.kernel in known and found.kernel in wanted.runtime.axes.get(ATTENTION_KERNEL.name, ())
    return {ATTENTION_KERNEL.name: found.kernel} if able else {}


def _other_ranks(options: FoundOptions, machines: Cluster) -> str:
    """The ranks that a configuration starts, as the end of a refusal, where these are not the machines'."""
    per_node = machines.node.accelerators
    if options.ranks in (None, machines.accelerators):
        return ""
    ranks = options.ranks or 0
    fits = "" if ranks % per_node else f" (--cluster {machines.node.id}:{ranks // per_node})"
    return (
        f"\nthe configuration starts {ranks:,} ranks{fits}, and {machines.node.id}:{machines.count} has "
        f"{machines.accelerators:,} accelerators"
    )


def _ranks(options: FoundOptions, machines: Cluster) -> int:
    """Data-parallel ranks: accelerators over those of one copy of the model."""
    replica = math.prod(int(str(options.settings.get(axis, 1))) for axis in ("tp", "pp", "cp"))
    if replica > machines.accelerators:
        raise WrongQuestion(
            f"tp x pp x cp is {replica:,}: more than the {machines.accelerators:,} accelerators of "
            f"{machines.node.id}:{machines.count}"
        )
    return machines.accelerators // replica


def _over_nodes(options: FoundOptions, machines: Cluster) -> dict[str, object]:
    """The scope of copies that several nodes share: ``ranks of a stage / copies``, whole replicas on each."""
    if options.settings.get(ZERO_SCOPE.name) != over_nodes(1) or not options.shards:
        return {}
    if options.shards == 1:
        return {ZERO_SCOPE.name: EVERYWHERE}
    tp, cp, ep, etp, pp = (int(str(options.settings.get(axis, 1))) for axis in ("tp", "cp", "ep", "etp", "pp"))
    ranks = machines.accelerators // pp // options.shards
    domain = accelerators_of_domain(machines)
    divides = ranks * options.shards * pp == machines.accelerators
    whole = divides and not any(ranks % part for part in (domain, tp * cp, ep * etp))
    return {ZERO_SCOPE.name: over_nodes(ranks // domain)} if whole else {}


def _batched(found: FoundOptions, source: str, dp: int) -> FoundOptions:
    """What trainers derive: the global batch from that of a rank, or a micro-batch from the global one.

    ``batch = micro accumulation dp``; where micro-batches alone are said, DeepSpeed accumulates none.
    """
    if found.degrees is not None:
        replicas, shards = found.degrees
        cp = int(str(found.settings.get("cp", 1)))
        stated = math.prod(degree for degree in found.degrees if degree != -1)
        if (dp * cp) % stated if -1 in found.degrees else stated not in (dp, dp * cp):
            many, each = ("any" if degree == -1 else degree for degree in found.degrees)
            raise WrongQuestion(f"--from {source}: {many} replicas of {each} shards are not the {dp} ranks")
        if replicas == -1:
            found = replace(found, shards=dp // shards)
    if found.batch is None and found.per_rank is not None:
        return replace(found, batch=found.per_rank * dp)
    if found.batch is not None and source == "deepspeed" and "micro" not in found.settings:
        micro, left = divmod(found.batch, dp * (found.accumulation or 1))
        if left or not micro:
            parts = f"{dp} ranks and {found.accumulation or 1} micro-batches"
            raise WrongQuestion(f"--from {source}: a batch of {found.batch:,} is not whole over {parts}")
        return replace(found, settings={**found.settings, "micro": micro})
    return found


def _tokens(found: FoundOptions) -> str | None:
    """Tokens of all its steps, where it says them."""
    if found.samples is not None and found.sequence is not None:
        tokens = found.samples * found.sequence
        return str(min(tokens, found.most_tokens or tokens))
    if found.steps is None or found.batch is None or found.sequence is None:
        return None
    return str(found.steps * found.batch * found.sequence)


def _model(found: FoundOptions, model: str | None, source: str, folder: Path) -> str:
    """The model asked for, the one the configuration names or has the shape of, or a file with that shape."""
    if model is not None:
        return model
    if found.model is not None:
        try:
            workload.model(found.model)
        except WrongQuestion as error:
            raise WrongQuestion(
                f"{error}\n--model says which of the library it is, or names a file of your own"
            ) from None
        return found.model
    if not found.shape:
        raise WrongQuestion(f"--from {source}: the configuration does not name the model; give it (--model llama3-8b)")
    alike = [known for known in map(workload.model, workload.library()) if _same(known, found.shape, found.sequence)]
    if alike:  # several differ only in what the configuration leaves open (the vocabulary): the one with its length
        return min(alike, key=lambda known: known.sequence != found.sequence).id
    path = folder / "imported.toml"
    made = files.validated(Model, _table(found), "imported", Path(f"--from {source}"))
    if wrong := model_rules.problems(made):
        raise WrongQuestion("\n".join(f"--from {source}: {problem}" for problem in wrong))
    path.write_text(files.dump(made), encoding="utf-8")
    return str(path)


BUILT = ("norm_epsilon", "norm_offset", "rotary", "positions", "dropout")
"""What neither time nor memory depends on (of dropout, masks of a byte): it may differ from a library's model, and
that is told (:func:`_other_values`)."""


USUAL_VOCABULARY = 50_257
"""GPT-2's, which Megatron-LM's examples read with where they state none."""


def _vocabulary(found: FoundOptions, asked: str | None, name: str) -> Iterator[str]:
    """A vocabulary that the configuration leaves to a tokenizer, and what was taken for it."""
    if asked is not None or not found.shape or "vocab" in found.shape:
        return
    model = workload.model(name)
    whose = f"{model.vocab:,}, GPT-2's" if name.endswith(".toml") else f"{model.vocab:,}, as {name} has"
    yield f"vocabulary not stated: {whose} (the tokenizer decides; --model with the right one)"


def _same(model: Model, shape: Mapping[str, Any], sequence: int | None) -> bool:
    """Whether a model of the library has the shape, but for what the configuration leaves open, and :data:`BUILT`."""
    if model.family != "decoder":
        return False
    parts = {part: getattr(model, part) for part in ("moe", "latent", "window", "recurrence")}
    if model.window is not None and sequence is not None and sequence <= model.window.size:
        parts["window"] = None  # every layer sees the whole sequence, and a configuration need not name it
    if any((have is None) != (part not in shape) for part, have in parts.items()):
        return False
    plain = {field: value for field, value in shape.items() if field not in (*BUILT, *parts)}
    inner = [(have, shape[part]) for part, have in parts.items() if have is not None]
    return all(_fits(model, field, value) for field, value in plain.items()) and all(
        getattr(have, name) == value for have, stated in inner for name, value in stated.items() if name != "router"
    )


def _fits(model: Model, field: str, value: Any) -> bool:
    """Whether a field is the model's; a function of the MLP that is not known may be any."""
    have = getattr(model, field)
    return have == value or (field == "activation" and None in (have, value))


def _table(found: FoundOptions) -> dict[str, Any]:
    batch, sequence = found.batch or 1, found.sequence or 1
    return {
        "name": "imported model",
        "source": "the imported configuration",
        "vocab": USUAL_VOCABULARY,
        "sequence": sequence,
        "batch": batch,
        "tokens": (found.steps or 1) * batch * sequence,
        **found.shape,
    }


def _interleaved(found: FoundOptions, model: str) -> FoundOptions:
    """Torchtitan says layers of a chunk rather than chunks of a rank."""
    if found.layers_per_chunk is None:
        return found
    pp = int(str(found.settings["pp"]))
    chunks = workload.model(model).layers // pp // found.layers_per_chunk
    return replace(found, settings={**found.settings, "vpp": max(chunks, 1)})


def _differences(found: FoundOptions, priced: Any) -> list[str]:
    """Where the plan had to differ from the configuration.

    Raises:
        WrongQuestion: MaxText's mesh shards over other ranks than a plan's slice, node or whole cluster.
    """
    p = priced.parallelism
    differs = list(found.differs)
    if found.ranks is not None and found.ranks != priced.cluster.accelerators:
        differs.append(f"the command starts {found.ranks:,} ranks; predicted on {priced.cluster.accelerators:,}")
    if found.chunks is not None and list(found.chunks) != plan_facts.chunks(priced):
        differs.append(f"stages hold {list(found.chunks)} layers; predicted as {plan_facts.chunks(priced)}")
    shards = p.dp * p.cp // found.shards if found.shards else None
    if shards is not None and p.zero_stage and shards not in (p.dp_shard, p.dp_shard // p.cp * p.cp):
        if found.runtime == "maxtext":
            raise WrongQuestion(
                f"--from maxtext: states are sharded over {shards} ranks, where a plan has {p.dp_shard} (a slice's, a "
                "node's or all); --ignore ici_fsdp_parallelism --ignore dcn_data_parallelism prices the program's usual"
            )
        differs.append(f"states are sharded over {shards} ranks; predicted over {p.dp_shard}")
    if p.cp > 1 and found.cp_algorithm not in (None, p.cp_algorithm):
        differs.append(f"context-parallel ranks share sequences by {found.cp_algorithm}; predicted by {p.cp_algorithm}")
    if found.kernel not in (None, kernel := ATTENTION_KERNEL.of(priced)):
        differs.append(f"attention by {found.kernel}; predicted by {'the usual kernel' if kernel == ALONE else kernel}")
    levels = p.cp_exchanging and (p.cp_exchanging, p.cp // p.cp_exchanging)
    if levels and found.cp_levels and found.cp_levels != levels:
        differs.append(f"context-parallel ranks are in levels of {found.cp_levels}; predicted in levels of {levels}")
    return [*differs, *_other_values(found.shape, priced.workload.shape)]


def _other_values(stated: Mapping[str, Any], model: Mapping[str, Any]) -> Iterator[str]:
    """What the configuration says otherwise than the library's model of what neither time nor memory depends on."""
    mine, known = ((shape.get("moe") or {}).get("router") or {} for shape in (stated, model))
    pairs = [(name, name, stated, model) for name in BUILT if name != "rotary"]
    pairs += [
        (f"rotary.{name}", name, stated["rotary"], model.get("rotary") or {}) for name in stated.get("rotary") or ()
    ]
    pairs += [(f"moe.router.{name}", name, mine, known) for name in mine if known]
    for where, name, one, other in pairs:
        if name in one and other.get(name) is not None and one[name] != other[name]:
            yield f"{where} is {one[name]}; the library's model has {other[name]}, and so has the plan"
