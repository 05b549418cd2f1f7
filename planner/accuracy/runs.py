"""Published runs as the planner sees them: a CSV row becomes a workload, a cluster and the plan that was run.

What a row leaves out is inferred by the rules below, each named in the run's `inferred`: an axis that is not stated is
tried at all its values, and the fastest that fits is taken to be what was run. A row that cannot be predicted says why.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

from planner.accuracy import impossible, names
from planner.binding import can_train_in
from planner.catalog import Catalog
from planner.errors import WrongQuestion
from planner.schema.hardware import Accelerator, Cluster
from planner.schema.workload import MixtureOfExperts, Model, Workload
from planner.space.axes import (
    FULL,
    MODULES,
    NO_RECOMPUTE,
    OFFLOADED,
    SELECTIVE,
    Options,
    Recompute,
    Sharding,
    TensorMode,
)
from planner.workload import library, workload

REQUIRED = ("id", "source", "model", "family", "accelerator", "num_accelerators", "seq_len", "global_batch_seqs")
GB = 1e9
SOME_BLOCKS = tuple(Recompute(f"block:{share:g}", share, 0.0) for share in (0.25, 0.5))
"""Recomputation of some layers, tried where a run does not say what it recomputes."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One reading of a run's plan."""

    layout: Mapping[str, int]
    options: Options


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """One published measurement."""

    id: str
    source: str
    group: str
    """Sources that share configurations."""
    model: str
    base: str
    """The model it is a reduced copy of, or itself."""
    family: str
    task: str
    grade: str
    accelerator: str
    release: str
    """As published."""
    measured: float | None
    """Seconds per step."""
    measured_bytes: float | None
    memory_measured: bool
    """Whether the memory was read off a device rather than computed."""
    out_of_memory: bool
    states_enough: bool
    """Whether the row states a shape (or a known model), a batch, and a time or throughput."""
    accelerators: int = 0
    workload: Workload | None = None
    cluster: Cluster | None = None
    runtime: str = ""
    year: str = ""
    """The runtime's release."""
    date: str = ""
    """When it was released, as YYYY.MM where its name says the month; else the year."""
    mode: str = ""
    """What the notes say of how it ran (eager, row-wise casts), where that is known to matter."""
    gradients: tuple[float, float] | None = None
    """Bytes per parameter that gradients take and that their reduction moves, where they differ from the runtime's."""
    update_bytes: float = 0.0
    """Bytes per parameter that copies of gradients take during the update, where another framework shards."""
    in_allocator: bool = False
    """Whether the memory measured is what the framework's allocator held: context and communicators are beside it."""
    variants: tuple[Variant, ...] = ()
    """Readings of the plan; empty for families without layouts (:mod:`planner.accuracy.other_families`)."""
    batch: int = 0
    """Global batch, samples; of encoders and of families without layouts."""
    repeated: bool = False
    """Its step time is that of another row of the same result: judged, but not fitted to."""
    precision: str = ""
    """Of families without layouts."""
    inferred: tuple[str, ...] = ()
    reason: str = ""
    """Why it cannot be predicted; empty if it can."""

    @property
    def covered(self) -> bool:
        """Whether it can be predicted."""
        return not self.reason


def read(path: Path, catalog: Catalog) -> list[Run]:
    """Every row of a runs CSV.

    Raises:
        WrongQuestion: no such file, not CSV, or a required column is missing.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file, restval="")
            missing = [name for name in REQUIRED if name not in (reader.fieldnames or ())]
            if missing:
                raise WrongQuestion(f"{path}: no column {', '.join(missing)}; see docs/runs.md for the columns")
            return [_run(row, catalog) for row in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise WrongQuestion(f"{path}: {getattr(error, 'strerror', None) or error}") from None


class _Unpredictable(Exception):
    """A row that cannot be predicted, and why."""


def _run(row: Mapping[str, str], catalog: Catalog) -> Run:
    notes = row.get("notes") or ""
    kind = row.get("memory_kind") or ""
    held = number(row, "memory_gb_per_gpu")
    run = Run(
        id=row["id"],
        source=row["source"],
        group=row.get("source_group") or row["source"],
        model=row["model"],
        base=row.get("model_base") or row["model"],
        family=row["family"],
        task=row.get("task") or "pretrain",
        grade=row.get("grade") or "A",
        accelerator=row["accelerator"],
        release=row.get("release") or "",
        measured=None,
        measured_bytes=held * GB if held else None,
        memory_measured=bool(held) and "analytic" not in kind,
        states_enough=_states_enough(row),
        in_allocator=bool(re.search(r"reserved|allocated", kind)),
        out_of_memory=_ran_out(f"{row.get('metric')} {notes}"),
    )
    try:
        return _filled(run, row, catalog)
    except (_Unpredictable, WrongQuestion) as error:
        return replace(run, reason=" ".join(str(error).split()))


def _ran_out(text: str) -> bool:
    """Whether a row's metric or notes say that the run ran out of memory; "not OOM-tested" and "no OOM" do not."""
    found = re.search(r"(?<!not )(?<!no )(?<!without )\b(oom|out[ -]of[ -]memory)\b(?![ -]test)", text, re.IGNORECASE)
    return found is not None


def _states_enough(row: Mapping[str, str]) -> bool:
    """A transformer states its shape, or a model of the library, and a time, tokens per second or TFLOP/s; others
    their batch and samples per second.
    """
    rate = any(number(row, name) for name in ("step_time_s", "tokens_per_s_per_gpu", "tflops_per_gpu"))
    if row["family"] in ("dense", "moe"):
        shape = bool(number(row, "layers")) and bool(number(row, "hidden"))
        return rate and (shape or names.MODELS.get(row["model"], row["model"]) in library())
    return bool(number(row, "global_batch_seqs")) and (rate or row.get("metric") == "samples_per_s")


def _filled(run: Run, row: Mapping[str, str], catalog: Catalog) -> Run:
    if why := impossible.cell(row):
        raise _Unpredictable(why)
    n = int(required(row, "num_accelerators"))
    accelerator = names.accelerator(run.accelerator, catalog.accelerators)
    if accelerator is None or accelerator not in catalog.accelerators:
        raise _Unpredictable(f"accelerator {run.accelerator!r} is not in the catalog")
    if run.family not in ("dense", "moe"):
        return _other(run, row, catalog, accelerator, n)
    inferred: list[str] = []
    model = _model(row)
    if why := impossible.cut(model, n, {name: whole(row, name) for name in ("tp", "pp", "ep")}):
        raise _Unpredictable(why)
    batch, sequence = int(required(row, "global_batch_seqs")), int(required(row, "seq_len"))
    runtime, year = names.runtime(run.source, row.get("sharding") or "", run.release)
    if row.get("runtime"):
        runtime, _, year = row["runtime"].partition("@")
    known = catalog.runtime(runtime)
    date = names.date_of(run.release) or year
    year = max((release for release in known.releases if release <= date), default=known.releases[0])
    if not date:
        date = year = known.releases[-1]
        inferred.append(f"release {year}")
    optimizer = "adam-8bit" if "8-bit adam" in (row.get("notes") or "").lower() else "adamw"
    task = "lora" if run.task == "lora" else "pretrain"
    work = workload(model, sequence=sequence, batch=batch, tokens=1e12, method=task, optimizer=optimizer)
    if run.base == "deepseek-v3" and "w/o mtp" not in (row.get("notes") or "").lower():
        work = replace(work, ahead=1)
        inferred.append("one multi-token prediction module, as its recipe trains")
    cluster = _cluster(row, catalog, accelerator, n)
    variants = tuple(_variants(run, row, work, n, runtime, cluster.accelerator, inferred))
    if not variants:
        raise _Unpredictable("no legal plan under what is stated")
    return replace(
        run,
        accelerators=n,
        measured=_measured(row, work, n),
        workload=work,
        cluster=cluster,
        runtime=runtime,
        year=year,
        date=date,
        mode=_mode(runtime, row.get("notes") or "", row.get("precision") or ""),
        gradients=_gradients(run, row, catalog, runtime),
        update_bytes=catalog.runtime("deepspeed").update_bytes if _deepspeed(row, runtime) else 0.0,
        variants=variants,
        inferred=tuple(inferred),
    )


def _other(run: Run, row: Mapping[str, str], catalog: Catalog, accelerator: str, n: int) -> Run:
    """Encoders under data parallelism, convolutional networks, recommenders."""
    from planner.accuracy import encoders, other_families

    repeated = row.get("metric") == "time_to_train_min"
    if repeated and not number(row, "step_time_s"):
        raise _Unpredictable("time to train is no throughput")
    cluster = _cluster(row, catalog, accelerator, n)
    known = replace(run, accelerators=n, cluster=cluster, repeated=repeated)
    try:
        return encoders.filled(known, row, catalog) if run.family == "encoder" else other_families.filled(known, row)
    except encoders.NotStated as error:
        raise _Unpredictable(str(error)) from None


# ---- cells -----------------------------------------------------------------------------------------------------------


def number(row: Mapping[str, str], name: str) -> float | None:
    """A cell as a finite number; None if it is empty or none."""
    text = (row.get(name) or "").strip()
    try:
        value = float(text) if text else math.nan
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def required(row: Mapping[str, str], name: str) -> float:
    """A cell that must be a positive number."""
    value = number(row, name)
    if value is None or value <= 0:
        raise _Unpredictable(f"{name} is not stated")
    return value


def whole(row: Mapping[str, str], name: str, default: int | None = None) -> int | None:
    """A cell as a count of at least one."""
    value = number(row, name)
    return default if value is None or value < 1 else int(value)


# ---- what was trained ------------------------------------------------------------------------------------------------


def _model(row: Mapping[str, str]) -> Model:
    """The library's model of that name where its shape agrees, with the row's layers; else the row's own shape."""
    base = re.sub(r"-proxy\d+L$", "", row["model"])
    known = library()
    name = names.MODELS.get(base, base)
    layers, hidden = whole(row, "layers"), whole(row, "hidden")
    if name in known and (hidden is None or known[name].hidden == hidden):
        found = known[name]
        layers = layers or found.layers
        if found.moe and found.moe.leading_dense_layers >= layers:
            found = replace(found, moe=replace(found.moe, leading_dense_layers=0))
        vocab = whole(row, "vocab") or found.vocab
        return replace(found, layers=layers, vocab=vocab) if not found.encoder_layers else found
    if layers is None or hidden is None:
        raise _Unpredictable("the model's shape is not stated")
    if "nemotron-h" in base or "nemotron-3" in base:
        raise _Unpredictable("a hybrid of attention and state-space layers; only transformers are predicted")
    return _own_shape(row, base, layers, hidden)


def _own_shape(row: Mapping[str, str], name: str, layers: int, hidden: int) -> Model:
    heads = whole(row, "heads", max(1, hidden // 128)) or 1
    gated = number(row, "gated_mlp") == 1
    experts, topk = whole(row, "num_experts"), whole(row, "topk")
    ffn = whole(row, "ffn_hidden") or 4 * hidden
    moe = None
    if experts and topk:
        if topk > experts:
            raise _Unpredictable(f"topk {topk} is more than {experts} experts")
        moe = MixtureOfExperts(experts=experts, experts_per_token=topk, ffn=whole(row, "moe_ffn_hidden") or ffn)
    sequence = int(required(row, "seq_len"))
    return Model(
        id=name,
        name=name,
        source=row["source"],
        layers=layers,
        hidden=hidden,
        ffn=ffn,
        heads=heads,
        kv_heads=whole(row, "kv_heads", heads) or heads,
        head_dim=whole(row, "head_dim", hidden // heads) or 1,
        gated=gated,
        vocab=whole(row, "vocab") or 50257,
        tied=not gated,
        norm="rms" if gated else "layer",
        learned_positions=0 if gated else sequence,
        qkv_bias=not gated,
        output_bias=not gated,
        mlp_bias=not gated,
        dropout=not gated and not row["source"].startswith(("mpt", "maxtext")),
        moe=moe,
        sequence=sequence,
        batch=int(required(row, "global_batch_seqs")),
        tokens=1e12,
    )


def _measured(row: Mapping[str, str], work: Workload, n: int) -> float | None:
    """Seconds per step: as stated, from tokens or samples per second, or from TFLOP/s by the model FLOPs of a step."""
    stated = number(row, "step_time_s")
    if stated:
        return stated
    each = number(row, "tokens_per_s_per_gpu")
    if each:
        return work.batch * work.sequence / (each * n)
    if row.get("metric") == "samples_per_s" and number(row, "value"):
        return work.batch / float(row["value"])
    rate = number(row, "tflops_per_gpu")
    if rate and "hardware" not in (row.get("flops_convention") or ""):
        return _step_flops(work, _halved(row.get("flops_convention") or "")) / (rate * 1e12 * n)
    return None


def _halved(convention: str) -> bool:
    """Whether a count of model FLOPs halves attention because it is causal; in full where that is not stated."""
    if re.search(r"non-causal|causal factor not stated", convention):
        return False
    return bool(re.search(r"causal|since 2025|2025-07\+", convention))


def _step_flops(work: Workload, halved: bool) -> float:
    """``6 B s (N + L s a d)``: model FLOPs of a step, attention in full, or halved for causality."""
    from planner.parameters import parameters

    model = work.model
    attention = model.layers * work.sequence * model.heads * model.head_dim * 2
    return 6.0 * work.batch * work.sequence * (parameters(model).active + attention * (0.5 if halved else 1.0))


# ---- what it ran on --------------------------------------------------------------------------------------------------


def _cluster(row: Mapping[str, str], catalog: Catalog, accelerator: str, n: int) -> Cluster:
    """The usual node of that accelerator, with the accelerators and ports per node that the row states."""
    part = catalog.accelerator(accelerator)
    name = names.NODES.get(accelerator)
    if name is None:
        name = next((key for key, node in catalog.nodes.items() if node.accelerator == accelerator), None)
    if name is None:
        raise _Unpredictable(f"no node with {accelerator} in the catalog")
    node = catalog.node(name)
    network = row.get("inter_node_network") or ""
    per_node = whole(row, "accelerators_per_node") or node.accelerators
    if node.kind == "rack":
        per_node = next((d for d in (72, 64) if n % d == 0), min(n, 72)) if n > 72 else n
    ports = re.search(r"(\d+) ?x ?(\d+) ?Gb", network)
    if node.kind != "rack" and per_node != node.accelerators and node.nics:
        node = replace(node, nics=max(1, node.nics * per_node // node.accelerators))
    if ports and node.kind != "rack" and "Storage" not in network and "Management" not in network:
        node = replace(node, nics=int(ports[1]), nic_bandwidth=int(ports[2]) * 1e9 / 8)
    fabric = catalog.fabric(node.fabric or "infiniband-ndr")
    if fabric.kind == "ici":
        fabric = replace(fabric, leaf_nodes=_slice(row, fabric.leaf_nodes * node.accelerators, n) // per_node)
    count = max(1, -(-n // per_node))
    return Cluster(node=replace(node, accelerators=per_node), accelerator=part, count=count, fabric=fabric)


def _slice(row: Mapping[str, str], pod: int, n: int) -> int:
    """Chips of one TPU slice, a scale-up domain: what parameters are sharded over within it, times tp; else the pod."""
    stated = re.search(r"within slice \((\d+)\)", row.get("sharding") or "")
    inside = int(stated[1]) * (whole(row, "tp") or 1) if stated else pod
    return inside if n % inside == 0 else min(pod, n)


# ---- what was run ----------------------------------------------------------------------------------------------------


def _precision(run: Run, row: Mapping[str, str], part: Accelerator, inferred: list[str]) -> str:
    """As stated; unstated MLPerf rows on parts with 8-bit matrix units run in fp8, others in 16 bit."""
    stated = (row.get("precision") or "").strip()
    if stated:
        return stated
    fast = any(name in part.id for name in ("H100", "H200", "B200", "GB", "B300", "MI3"))
    chosen = "fp8" if fast and run.source >= "mlperf-v3" else "bf16"
    inferred.append(f"precision {chosen}")
    return chosen


def _policies(row: Mapping[str, str], inferred: list[str]) -> list[Recompute]:
    stated = (row.get("activation_recompute") or "").strip()
    known = {"none": NO_RECOMPUTE, "selective": SELECTIVE, "full": FULL}
    if stated == "selective" and re.search(r"remat \w+_offloaded", row.get("notes") or ""):
        return [OFFLOADED]
    if stated in known:
        return [known[stated]]
    if stated.startswith("block:"):
        layers = (whole(row, "layers") or 1) / (whole(row, "pp", 1) or 1) / (whole(row, "vpp", 1) or 1)
        blocks = re.fullmatch(r"block:(\d+)", stated)
        if blocks is None:
            raise _Unpredictable(f"activation_recompute {stated!r}: block: takes a number of layers, as block:2")
        share = min(1.0, int(blocks[1]) / max(layers, 1.0))
        return [Recompute(f"block:{share:g}", share, 0.0)]
    if stated:
        raise _Unpredictable(f"activation_recompute {stated!r}: none, selective, full and block:N are known")
    inferred.append("recompute: the fastest that fits of none, selective, some blocks, full")
    return [NO_RECOMPUTE, SELECTIVE, *SOME_BLOCKS, FULL]


def _modules(work: Workload, runtime: str, policies: list[Recompute], inferred: list[str]) -> list[Recompute]:
    """Megatron Core's selective recomputation covers any modules: of mixtures, rows seldom say which."""
    if runtime != "megatron-core" or not work.model.moe or SELECTIVE not in policies:
        return policies
    inferred.append("modules recomputed: attention scores, or also latents and the MLP's function, whichever fits")
    return [*policies, MODULES]


def _degrees(
    run: Run, row: Mapping[str, str], work: Workload, n: int, inferred: list[str], interleaves: bool
) -> Iterator[dict[str, int]]:
    tp, pp, cp = (whole(row, name) for name in ("tp", "pp", "cp"))
    if tp is None or pp is None:
        raise _Unpredictable("tp and pp are not stated")
    cp = cp or 1
    dp = n // (tp * pp * cp)
    if dp * tp * pp * cp != n:
        raise _Unpredictable(f"tp {tp} x pp {pp} x cp {cp} does not divide {n} accelerators")
    if work.batch % dp:
        raise _Unpredictable(f"batch {work.batch} does not divide by dp {dp}")
    ep = whole(row, "ep", 1) or 1
    etp = whole(row, "etp") or (1 if ep > 1 or not work.model.moe else tp)
    each, micro = work.batch // dp, whole(row, "micro_batch")
    if micro and run.source.startswith("maxtext"):
        micro *= tp * cp  # MaxText counts the batch of a chip, whatever the chips share
    if micro is None:
        inferred.append("micro-batch: the fastest that fits")
    micros = [micro] if micro else [m for m in (1, 2, 4, 8, 16) if each % m == 0]
    vpp = whole(row, "vpp")
    depths = [vpp] if vpp else [1]
    if vpp is None and pp > 1 and interleaves:
        layers = work.model.layers / pp
        depths = [v for v in range(1, 13) if v == 1 or (layers / v >= 1 and layers % v == 0)]
        inferred.append("vpp: the fastest that fits")
    for m, v in product(micros, depths):
        if each % m == 0 and (v == 1 or (each // m) % pp == 0 or vpp):
            yield {
                "tp": tp, "pp": pp, "vpp": v, "cp": cp, "ep": ep, "etp": etp, "dp": dp, "micro": m, "batch": work.batch
            }  # fmt: skip


def _variants(
    run: Run, row: Mapping[str, str], work: Workload, n: int, runtime: str, part: Accelerator, inferred: list[str]
) -> Iterator[Variant]:
    precision = _precision(run, row, part, inferred)
    if not can_train_in(part, precision):
        raise _Unpredictable(f"{part.id} has no matrix rate in {precision}")
    policies = _modules(work, runtime, _policies(row, inferred), inferred)
    notes = row.get("notes") or ""
    stated = number(row, "sequence_parallel")
    zeros = _zero_stages(row, runtime, inferred)
    old = runtime == "megatron-core" and names.runtime(run.source, "", "")[1] == "2022"
    text = (row.get("sharding") or "").lower()
    scope = "node" if "in node" in text or "within slice" in text else "full"
    for layout in _degrees(run, row, work, n, inferred, interleaves=runtime == "megatron-core" and not old):
        tensor = TensorMode(
            bool(stated) if stated is not None else layout["tp"] > 1,
            layout["tp"] > 1
            and not old
            and (runtime != "fsdp2" or "async tp" in notes.lower() or "asynctp" in notes.lower()),
        )
        for policy, zero in product(policies, zeros):
            sharding = Sharding(zero, scope, not old)  # type: ignore[arg-type]
            yield Variant(
                layout,
                Options(precision, policy, tensor, sharding, layout["vpp"] > 1 and not old, False, False),
            )


def _zero_stages(row: Mapping[str, str], runtime: str, inferred: list[str]) -> list[int]:
    """As stated; unstated, none or the optimizer's states shared (which every recipe of Megatron Core does)."""
    stated = number(row, "zero_stage")
    if stated is not None:
        return [min(int(stated), 3)]
    if runtime != "megatron-core":
        return [0]
    inferred.append("ZeRO stage: 0, or 1 where that does not fit")
    return [0, 1]


def _deepspeed(row: Mapping[str, str], runtime: str) -> bool:
    """Whether DeepSpeed shards the states of a run of another framework."""
    return runtime != "deepspeed" and "deepspeed zero" in (row.get("sharding") or "").lower()


def _gradients(run: Run, row: Mapping[str, str], catalog: Catalog, runtime: str) -> tuple[float, float] | None:
    """NVIDIA's performance recipes (dgxc, NeMo, Megatron-Bridge) accumulate and reduce in bf16; Composer says which;
    DeepSpeed keeps 16-bit gradients.
    """
    notes = row.get("notes") or ""
    if _deepspeed(row, runtime):
        return catalog.runtime("deepspeed").gradient_bytes, catalog.runtime(runtime).gradient_wire_bytes
    if run.source.startswith(("dgxc", "nemo-", "megatron-bridge", "mlperf")):
        return 2.0, 2.0
    if "/PURE" in notes:
        return 4.0, 2.0
    return (4.0, 4.0) if "/DEFAULT" in notes else None


def _mode(runtime: str, notes: str, precision: str) -> str:
    text = notes.lower()
    if runtime == "megatron-core":
        return "tokendrop" if "tokendrop" in text else ""
    if runtime != "fsdp2":
        return ""
    if "eager" in text:
        return "eager"
    return "rowwise" if "rowwise" in text and precision == "fp8" else ""
