"""The plan that a row's run followed: every reading of it that what the row states allows.

What a row does not say is what its runtime does by default (`defaults` in the catalog's runtimes), or one of several
readings: :attr:`RunVariant.rank` says which of them a run is taken to have been.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import product

from planner.axes import AXES
from planner.axes.options import OptionValues, option_values
from planner.axes.table import ATTENTION_KERNEL, DP_OVERLAP, EP_OVERLAP
from planner.axes.values import (
    FUNCTION_IN_8_BIT,
    NO_RECOMPUTE,
    ONE_F_ONE_B,
    SELECTIVE,
    SPLIT_SCHEDULES,
    Recompute,
    recompute,
)
from planner.calibration.runs import names, recomputed, words
from planner.calibration.runs.columns import Unpredictable, number, whole
from planner.calibration.runs.layouts import AxisReading, RunSoftware, StatedRun, by_default, degrees
from planner.figures.matrix_formats import can_train_in
from planner.models import context
from planner.schema.hardware import Accelerator, Runtime
from planner.schema.plan_layout import ALONE, PLACES
from planner.schema.workload import LOW_PRECISION, Workload

OVERLAPS = tuple(
    AXES[name] for name, (section, *_) in PLACES.items() if section == "overlap" and name != EP_OVERLAP.name
)
"""What communication overlaps compute, but for experts' exchanges."""
LATENTS = Recompute("selective", 0.0, 1.0, ("moe_act", "mla_up_proj"))
"""What recipes of mixtures recompute besides, where a row does not say it: each model has it or not."""
MEGATRON = "megatron-core"
"""The runtime whose kernels, recomputation and optimizer sharding NeMo, Megatron-Bridge and Primus share."""


@dataclass(frozen=True, slots=True)
class RunVariant:
    """One reading of a run's plan."""

    layout: Mapping[str, int]
    options: OptionValues
    rank: int = 0
    """Of those that fit, the lowest rank is what was run."""
    likely: bool = True
    """Whether the run is predicted by it; others of its rank show how far apart readings are."""


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


def _policies(
    row: Mapping[str, str], work: Workload, known: Runtime, date: str, late: Collection[str], inferred: list[str]
) -> list[AxisReading]:
    """What was recomputed: as stated, else the default, and where that does not fit more; without either, anything."""
    has = known.axes.get("recompute", ())
    megatron = MEGATRON in known.known_as
    stated = recomputed.stated(row, megatron or "selective" in has, inferred)
    if stated is not None:
        return _modules(row, work, megatron, stated, inferred)
    more = ("none", "selective", *(policy.name for policy in recomputed.SOME_BLOCKS), "full")
    readings = by_default("recompute", known, date, inferred, more)
    if readings is None:
        inferred.append("recompute: any of none, selective, some blocks, full")
        readings = [AxisReading(name) for name in more]
    allowed = [reading for reading in readings if f"recompute={reading.value}".partition(":")[0] not in late]
    return [reading._replace(value=recompute(str(reading.value))) for reading in allowed]


def _modules(
    row: Mapping[str, str], work: Workload, megatron: bool, policy: Recompute, inferred: list[str]
) -> list[AxisReading]:
    """Megatron Core's selective recomputation covers any modules, attention scores if none is named: of mixtures, rows
    seldom say which. Of whole layers that are some, more where half of them does not fit.
    """
    if policy is recomputed.HALF:
        return [AxisReading(share, rank) for rank, share in enumerate((policy, *recomputed.MORE_THAN_HALF))]
    named = ":" in (row.get("activation_recompute") or "")
    if not megatron or not work.model.moe or named or policy is not SELECTIVE:
        return [AxisReading(policy)]
    inferred.append(
        "modules recomputed: attention scores, or also latents and the MLP's function where that does not fit"
    )
    return [AxisReading(policy), AxisReading(LATENTS, 1)]


def _function_in_8_bit(
    work: Workload, megatron: bool, precision: str, policies: list[AxisReading], inferred: list[str]
) -> list[AxisReading]:
    """Megatron Core keeps what an MLP's gated function reads in 8 bit where told to
    (`activation_func_fp8_input_store`), as submissions of adapters to MLPerf do (mlcommons/training_results_v4.0,
    llama2_70b_lora, FP8_ACTIVATION); rows do not say it.
    """
    adapters = work.method.kind == "lora" and work.model.gated
    kept = any(reading.value == NO_RECOMPUTE for reading in policies)
    if not (megatron and adapters and precision in LOW_PRECISION and kept):
        return policies
    inferred.append("what the MLP's function reads: kept in 16 bit, or in 8 where that does not fit")
    return [*policies, AxisReading(FUNCTION_IN_8_BIT, 1)]


def variants(
    row: Mapping[str, str], work: Workload, n: int, software: RunSoftware, part: Accelerator, inferred: list[str]
) -> Iterator[RunVariant]:
    """Every layout and set of options that what a row states allows; what is inferred is added to `inferred`.

    Raises:
        Unpredictable: the accelerator lacks the precision, or the degrees contradict one another.
    """
    known = software.runtime
    date = software.date
    megatron = MEGATRON in known.known_as
    says = words.stated(row)
    schedule = _schedule(whole(row, "pp", 1) or 1, says, known, date)
    if schedule != says.get("schedule", ONE_F_ONE_B):
        inferred.append(
            f"schedule: {schedule}, {known.id}'s default" if schedule in SPLIT_SCHEDULES else "schedule: none"
        )
    says["schedule"] = schedule
    precision = _precision(row, part, inferred)
    if not can_train_in(part, precision):
        raise Unpredictable(f"{part.id} has no matrix rate in {precision}")
    policies = _policies(row, work, known, date, software.late, inferred)
    policies = _function_in_8_bit(work, megatron, precision, policies, inferred)
    zeros = _zero_stages(row, known, date, inferred)
    says.setdefault(ATTENTION_KERNEL.name, _attention_kernel(known, date, part, inferred))
    plain = {name: value for name, value in words.options(says).items() if name in _WORDED}
    run = StatedRun(row, says, software, inferred)
    for layout, rank, likely in degrees(run, work, n):
        choices = {"recompute": policies, "zero": zeros, **_switches(run, layout)}
        for readings in product(*choices.values()):
            unlikely = [not likely, *(not reading.likely for reading in readings)]
            if sum(unlikely) > 1:
                continue  # one at a time: how far each moves the step adds up
            chosen = {name: reading.value for name, reading in zip(choices, readings, strict=True)}
            policy = chosen["recompute"]
            assert isinstance(policy, Recompute)
            chosen[EP_OVERLAP.name] = bool(chosen[EP_OVERLAP.name]) and not policy.layers
            yield RunVariant(
                layout,
                option_values(
                    **{
                        "precision": precision,
                        "cp_algorithm": context.algorithms(work)[0],
                        "schedule": says["schedule"],
                        **plain,
                        **chosen,
                    }
                ),
                rank + sum(reading.rank for reading in readings),
                not any(unlikely),
            )


_WORDED = (
    *("zero_scope", "offload", "offload_overlap", "activation_offload", "rank_order", "graphs"),
    *(ATTENTION_KERNEL.name, "cp_algorithm"),
)
"""Options that are what words say, and neutral where they say nothing."""


def _schedule(pp: int, says: Mapping[str, object], known: Runtime, date: str) -> str:
    """How passes follow each other: as words say, else the default; without stages there is nothing to say."""
    default = known.default("schedule", date)
    chosen = str(says.get("schedule") or (default.value if default else ONE_F_ONE_B))
    return chosen if pp > 1 and chosen in SPLIT_SCHEDULES else ONE_F_ONE_B


def _attention_kernel(known: Runtime, date: str, part: Accelerator, inferred: list[str]) -> str:
    """The kernel that recipes or code of the runtime's release name, where words name none."""
    default = known.default(ATTENTION_KERNEL.name, date, part.generation)
    if default is None or default.value == ALONE:
        return ALONE
    inferred.append(f"attention kernel: {default.value}, {known.id}'s default")
    return str(default.value)


def _switches(run: StatedRun, layout: Mapping[str, int]) -> dict[str, list[AxisReading]]:
    """Readings of the axes that turn communication's ways on and off: off where degrees leave nothing to decide."""
    known, late, date = run.software.runtime, run.software.late, run.software.date
    noted: list[str] = []  # the same for every layout: added once
    readings: dict[str, list[AxisReading]] = {}
    for axis in (*OVERLAPS, EP_OVERLAP, AXES["dispatcher"]):
        neutral = axis.neutral
        has = axis.matters(layout) if axis is not AXES["dispatcher"] else layout["ep"] > 1
        if not has and axis is not DP_OVERLAP:
            readings[axis.name] = [AxisReading(neutral)]
        elif axis.name in run.says:
            readings[axis.name] = [AxisReading(run.says[axis.name])]
        elif axis.name in late:
            noted.append(f"{axis.name}: not there yet")
            readings[axis.name] = [AxisReading(neutral)]
        else:
            default = by_default(axis.name, known, date, noted)
            usual = date >= "2023" and axis in OVERLAPS
            readings[axis.name] = default or [AxisReading(usual if axis.kind == "switch" else neutral)]
    shares = number(run.row, "sequence_parallel")
    if shares is not None or layout["tp"] == 1:
        readings["sequence_parallel"] = [AxisReading(bool(shares))]
    elif "sequence_parallel" in late:
        noted.append("sequence parallelism: not there yet")
        readings["sequence_parallel"] = [AxisReading(False)]
    else:
        default = by_default("sequence_parallel", known, date, noted)
        readings["sequence_parallel"] = default or [AxisReading(True)]
    run.inferred.extend([rule for rule in noted if rule not in run.inferred])
    return readings


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


def options_in_words(row: Mapping[str, str]) -> set[str]:
    """What a row's words say of options, as `since` names them."""
    options = words.options(words.stated(row))
    return {name if value is True else f"{name}={value}" for name, value in options.items() if value is not False}


SHARDS = re.compile(r"zero|sdp|ddp|shard|optimizer|replica|data.?parallel|none|node|slice", re.IGNORECASE)
"""Words by which a row says how states are shared."""


def _zero_stages(row: Mapping[str, str], known: Runtime, date: str, inferred: list[str]) -> list[AxisReading]:
    """As stated, also in words (``~ZeRO-2``) and where `sharding` says it; unstated, the runtime's default, more where
    that does not fit, or all that it has.
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
            return [AxisReading(1)]
        return [AxisReading(stage)]
    if text:
        raise Unpredictable(f"zero_stage {text!r}: 0 to 3 are known, also in words (ZeRO-2)")
    if words_ := next((stage for pattern, stage in ZERO_WORDS if re.search(pattern, sharding, re.IGNORECASE)), None):
        return [AxisReading(words_)]
    has = known.axes.get("zero", (0,))
    if has != "any" and 0 not in has:
        inferred.append(f"ZeRO stage: {has[0]}, as {known.id} shares")
        return [AxisReading(int(has[0]))]
    more = (0, 1) if megatron else ()
    readings = by_default("zero", known, date, inferred, more)
    if readings is None:
        inferred.append("ZeRO stage: 0")
        return [AxisReading(0)]
    return readings


ZERO_WORDS = (
    (r"megatron[- ]?fsdp|full[_ ]shard", 3),
    (r"shard[_ ]grad[_ ]op", 2),
    (r"distributed optimizer|optimizer[- ]states? shard", 1),
)
"""Words of `sharding` -> the ZeRO stage that they are."""


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
