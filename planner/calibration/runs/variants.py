"""The plan that a row's run followed: every reading of it that what the row states allows."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import product

from planner.axes import AXES
from planner.axes.options import OptionValues, option_values
from planner.axes.table import DP_OVERLAP, EP_OVERLAP, TP_OVERLAP
from planner.axes.values import (
    ALONE,
    FULL,
    FUNCTION_IN_8_BIT,
    IN_PLACE,
    NO_RECOMPUTE,
    OFFLOADED,
    SELECTIVE,
    Recompute,
    recompute,
)
from planner.calibration.runs import names
from planner.calibration.runs.columns import Unpredictable, number, whole
from planner.figures.matrix_formats import can_train_in
from planner.models import context
from planner.schema.hardware import Accelerator, Runtime
from planner.schema.plan_layout import PLACES
from planner.schema.workload import LOW_PRECISION, Workload

SOME_BLOCKS = tuple(Recompute(f"block:{share:g}", share, 0.0) for share in (0.25, 0.5))
"""Recomputation of some layers, tried where a run does not say what it recomputes."""
OVERLAPS = tuple(AXES[name] for name, (section, *_) in PLACES.items() if section == "overlap")
"""What communication overlaps compute: since 2023 all that degrees use, but for what a row says."""
LATENTS = Recompute("selective", 0.0, 1.0, ("moe_act", "mla_up_proj"))
"""What recipes of mixtures recompute besides, where a row does not say it: each model has it or not."""


NOT_PRICED = ("mhc", "gdn_norm_out", "shared_experts")
"""Modules that Megatron Core can recompute and that have no price here."""

MEGATRON = "megatron-core"
"""The runtime whose kernels, recomputation and optimizer sharding NeMo, Megatron-Bridge and Primus share."""


@dataclass(frozen=True, slots=True)
class RunVariant:
    """One reading of a run's plan."""

    layout: Mapping[str, int]
    options: OptionValues


def _precision(row: Mapping[str, str], part: Accelerator, inferred: list[str]) -> str:
    """As stated; benchmark submissions on parts with 8-bit matrix units run in fp8 since 2023, others in 16 bit."""
    stated = (row.get("precision") or "").strip()
    if stated:
        return stated
    fast = any(name in part.id for name in ("H100", "H200", "B200", "GB", "B300", "MI3"))
    competing = (row.get("task") or "").startswith("mlperf") and names.dated(row.get("framework_date") or "") >= "2023"
    chosen = "fp8" if fast and competing else "bf16"
    inferred.append(f"precision {chosen}")
    return chosen


def _policies(row: Mapping[str, str], inferred: list[str]) -> list[Recompute]:
    stated = (row.get("activation_recompute") or "").strip()
    known = {"none": NO_RECOMPUTE, "selective": SELECTIVE, "full": FULL}
    if stated == "selective" and re.search(r"remat \w+_offloaded", row.get("notes") or ""):
        return [OFFLOADED]
    if stated in known:
        return [known[stated]]
    if stated.startswith("selective:"):
        listed = stated.removeprefix("selective:").split("+")
        left_out = [module for module in listed if module in NOT_PRICED]
        if left_out:
            inferred.append(f"recomputed as well, but not priced: {', '.join(left_out)}")
        priced = "+".join(module for module in listed if module not in NOT_PRICED)
        return [recompute(f"selective:{priced}") if priced else NO_RECOMPUTE]
    if stated.startswith("block:"):
        layers = (whole(row, "layers") or 1) / (whole(row, "pp", 1) or 1) / (whole(row, "vpp", 1) or 1)
        blocks = re.fullmatch(r"block:(\d+)", stated)
        if blocks is None:
            raise Unpredictable(f"activation_recompute {stated!r}: block: takes a number of layers, as block:2")
        share = min(1.0, int(blocks[1]) / max(layers, 1.0))
        return [Recompute(f"block:{share:g}", share, 0.0)]
    if stated:
        raise Unpredictable(f"activation_recompute {stated!r}: none, selective, full and block:N are known")
    inferred.append("recompute: the fastest that fits of none, selective, some blocks, full")
    return [NO_RECOMPUTE, SELECTIVE, *SOME_BLOCKS, FULL]


def _modules(
    row: Mapping[str, str], work: Workload, megatron: bool, policies: list[Recompute], inferred: list[str]
) -> list[Recompute]:
    """Megatron Core's selective recomputation covers any modules: of mixtures, rows seldom say which."""
    named = ":" in (row.get("activation_recompute") or "")
    if not megatron or not work.model.moe or named or SELECTIVE not in policies:
        return policies
    inferred.append("modules recomputed: attention scores, or also latents and the MLP's function, whichever fits")
    return [*policies, LATENTS]


def _function_in_8_bit(
    work: Workload, megatron: bool, precision: str, policies: list[Recompute], inferred: list[str]
) -> list[Recompute]:
    """Megatron Core keeps what an MLP's gated function reads in 8 bit where told to
    (`activation_func_fp8_input_store`), as submissions of adapters to MLPerf do (mlcommons/training_results_v4.0,
    llama2_70b_lora, FP8_ACTIVATION); rows do not say it.
    """
    adapters = work.method.kind == "lora" and work.model.gated
    if not (megatron and adapters and precision in LOW_PRECISION and NO_RECOMPUTE in policies):
        return policies
    inferred.append("what the MLP's function reads: kept in 16 bit, or in 8, whichever fits")
    return [*policies, FUNCTION_IN_8_BIT]


def _degrees(
    row: Mapping[str, str], work: Workload, n: int, inferred: list[str], interleaves: bool, known: Runtime
) -> Iterator[dict[str, int]]:
    tp, pp, cp = (whole(row, name) for name in ("tp", "pp", "cp"))
    if tp is None or pp is None:
        raise Unpredictable("tp and pp are not stated")
    unstated = ("cp", *(("ep",) if work.model.moe else ()))
    inferred += [f"{name}: 1" for name in unstated if whole(row, name) is None]
    cp = cp or 1
    dp = n // (tp * pp * cp)
    if dp * tp * pp * cp != n:
        raise Unpredictable(f"tp {tp} x pp {pp} x cp {cp} does not divide {n} accelerators")
    if whole(row, "dp", dp) != dp:
        raise Unpredictable(f"dp {whole(row, 'dp')}, but {n} accelerators by tp {tp} x pp {pp} x cp {cp} are {dp}")
    if work.batch % dp:
        raise Unpredictable(f"batch {work.batch} does not divide by dp {dp}")
    ep = whole(row, "ep", 1) or 1
    etp = whole(row, "etp") or (1 if ep > 1 or not work.model.moe else tp)
    if work.model.moe and whole(row, "etp") is None:
        inferred.append("etp: 1" if ep > 1 else "etp: as tp")
    each, micro = work.batch // dp, whole(row, "micro_batch")
    if micro and known.micro_batch_per_device:
        micro *= tp * cp
    if micro is None:
        inferred.append("micro-batch: the fastest that fits")
    micros = [micro] if micro else [m for m in (1, 2, 4, 8, 16) if each % m == 0]
    vpp, uneven = whole(row, "vpp"), known.uneven_stages
    depths = [vpp] if vpp else [1]
    if vpp is None and pp > 1 and interleaves:
        layers = -(-work.model.layers // pp) if uneven else work.model.layers / pp
        depths = [v for v in range(1, 13) if v == 1 or (layers / v >= 1 and layers % v == 0)]
        inferred.append("vpp: the fastest that fits")
    for m, v in product(micros, depths):
        if each % m == 0 and (v == 1 or (each // m) % pp == 0 or vpp):
            yield {
                "tp": tp, "pp": pp, "vpp": v, "cp": cp, "ep": ep, "etp": etp, "dp": dp, "micro": m, "batch": work.batch
            }  # fmt: skip


def variants(
    row: Mapping[str, str],
    work: Workload,
    n: int,
    known: Runtime,
    release: str,
    late: Collection[str],
    part: Accelerator,
    inferred: list[str],
) -> Iterator[RunVariant]:
    """Every layout and set of options that what a row states allows; what is inferred is added to `inferred`.

    What is `late`, as `since` names it, the run's framework had not yet: nothing unstated is taken to be that.

    Raises:
        Unpredictable: the accelerator lacks the precision, or the degrees contradict one another.
    """
    runtime, megatron = known.id, MEGATRON in known.known_as
    precision = _precision(row, part, inferred)
    if not can_train_in(part, precision):
        raise Unpredictable(f"{part.id} has no matrix rate in {precision}")
    policies = _modules(row, work, megatron, _policies(row, inferred), inferred)
    policies = _function_in_8_bit(work, megatron, precision, policies, inferred)
    notes = row.get("notes") or ""
    shares = _sequence_parallel(row, "sequence_parallel" in late, inferred)
    zeros = _zero_stages(row, known, inferred)
    old = release < "2023"
    interleaves = not old and known.axes.get("vpp") == "any"
    text = (row.get("sharding") or "").lower()
    scope = "node" if "in node" in text or "within slice" in text else "full"
    exchanges = _exchanges_overlap(row, notes, inferred)
    if n > 1:
        inferred.append(f"communication overlaps compute: {'no' if old else 'yes'}")
    for layout in _degrees(row, work, n, inferred, interleaves, known):
        overlaps = {axis.name: not old and (axis is DP_OVERLAP or axis.matters(layout)) for axis in OVERLAPS}
        overlaps[TP_OVERLAP.name] &= runtime != "fsdp2" or "async tp" in notes.lower() or "asynctp" in notes.lower()
        for policy, zero in product(policies, zeros):
            yield RunVariant(
                layout,
                option_values(
                    precision=precision,
                    recompute=policy,
                    sequence_parallel=layout["tp"] > 1 if shares is None else shares,
                    zero=zero,
                    zero_scope=scope,
                    offload=_offloaded(notes),
                    graphs=_graphs(notes),
                    cp_algorithm=context.algorithms(work)[0],
                    **{**overlaps, EP_OVERLAP.name: exchanges and not policy.layers},
                ),
            )


def _sequence_parallel(row: Mapping[str, str], late: bool, inferred: list[str]) -> bool | None:
    """As stated; unstated, not before the framework had it, and then where tensors are split (None)."""
    stated = number(row, "sequence_parallel")
    if stated is None and (whole(row, "tp") or 1) > 1:
        inferred.append("sequence parallelism: not there yet" if late else "sequence parallelism: on")
    return bool(stated) if stated is not None else False if late else None


def stated_options(row: Mapping[str, str]) -> dict[str, str]:
    """What a row states of options, as `since` names them -> the cell that says so."""
    degrees = {axis: whole(row, axis, 1) or 1 for axis in ("tp", "pp", "vpp", "cp", "ep", "etp")}
    found = {axis: f"{axis} {degree}" for axis, degree in degrees.items() if degree > 1}
    if number(row, "sequence_parallel"):
        found["sequence_parallel"] = "sequence_parallel 1"
    cells = {"recompute": "activation_recompute", "zero": "zero_stage", "precision": "precision"}
    for axis, column in cells.items():
        if text := (row.get(column) or "").strip():
            found[f"{axis}={text.partition(':')[0]}"] = f"{column} {text}"
    return found


def _exchanges_overlap(row: Mapping[str, str], notes: str, inferred: list[str]) -> bool:
    """Whether experts' exchanges run beside another micro-batch: as the notes say, else not."""
    stated = re.search(r"expert exchanges (do not )?overlap", notes)
    if stated is None and (whole(row, "ep", 1) or 1) > 1:
        inferred.append("expert exchanges: not overlapped")
    return stated is not None and not stated[1]


GRAPHS = {"none": ALONE, "modules": IN_PLACE, "full iteration": "full"}
"""What notes say of CUDA graphs -> the value of the axis `graphs`."""


def _graphs(notes: str) -> str:
    """What CUDA graphs launch, as the notes say, else nothing."""
    stated = re.search(rf"CUDA graphs: ({'|'.join(GRAPHS)})", notes)
    return GRAPHS[stated[1]] if stated else ALONE


def _offloaded(notes: str) -> float:
    """Share of the optimizer states in host memory, as the notes say, else none."""
    stated = re.search(r"optimizer offload (\d{1,3}) ?%", notes)
    return min(int(stated[1]), 100) / 100 if stated else 0.0


SHARDS = re.compile(r"zero|sdp|ddp|shard|optimizer|replica|data.?parallel|none|node|slice", re.IGNORECASE)
"""Words by which a row says how states are shared."""


def _zero_stages(row: Mapping[str, str], known: Runtime, inferred: list[str]) -> list[int]:
    """As stated, also in words (``~ZeRO-2``) and where `sharding` says it; unstated, none or the optimizer's states
    shared (which every recipe of Megatron Core does), or all that the runtime has.
    """
    megatron, sharding = MEGATRON in known.known_as, (row.get("sharding") or "").strip()
    text = (row.get("zero_stage") or "").strip() or (sharding if re.search(r"zero[- ]?[0-3]", sharding, re.I) else "")
    if sharding and not SHARDS.search(sharding):
        inferred.append(f"sharding {sharding!r:.60} was not read")
    stated = re.search(r"(?:^|zero[- ]?)([0-3])(?:\.0)?$|zero[- ]?([0-3])", text, re.IGNORECASE)
    if stated:
        stage = int(stated[1] or stated[2])
        if stage == 2 and not megatron and (whole(row, "pp") or 1) > 1:
            inferred.append("ZeRO 2 under a pipeline: gradients reduced once a step, as ZeRO 1")
            return [1]
        return [stage]
    if text:
        raise Unpredictable(f"zero_stage {text!r}: 0 to 3 are known, also in words (ZeRO-2)")
    has = known.axes.get("zero", (0,))
    if has != "any" and 0 not in has:
        inferred.append(f"ZeRO stage: {has[0]}, as {known.id} shares")
        return [int(has[0])]
    if not megatron:
        inferred.append("ZeRO stage: 0")
        return [0]
    inferred.append("ZeRO stage: 0, or 1 where that does not fit")
    return [0, 1]


def gradients(row: Mapping[str, str]) -> tuple[float, float] | None:
    """Bytes held and sent of a parameter's gradient where a row says other than its runtime does: Composer names its
    mixed precision.
    """
    notes = row.get("notes") or ""
    if "/PURE" in notes:
        return 4.0, 2.0
    return (4.0, 4.0) if "/DEFAULT" in notes else None


def mode_of(known: Runtime, notes: str, precision: str) -> str:
    """What the notes say of how it ran (eager, row-wise casts, dropped tokens), where that is known to matter."""
    text = notes.lower()
    if MEGATRON in known.known_as:
        return "tokendrop" if "tokendrop" in text else ""
    if known.id != "fsdp2":
        return ""
    if "eager" in text:
        return "eager"
    return "rowwise" if "rowwise" in text and precision == "fp8" else ""
