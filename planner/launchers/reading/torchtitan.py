"""torchtitan's options to axes of a plan."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import replace

from planner.base.errors import WrongQuestion
from planner.launchers.reading.command import command
from planner.launchers.reading.found import FoundOptions, Options, degree, number
from planner.launchers.reading.shell.script import Script
from planner.launchers.reading.torchtitan_configs import CONFIGS, Config
from planner.launchers.torchtitan import SCHEDULES
from planner.schema.hardware import SPLIT_SCHEDULES

RUNTIME = "fsdp2"
_P, _T = "parallelism.", "training."
_READ = {
    *(f"{_P}{axis}_parallel_degree" for axis in ("tensor", "context", "expert", "pipeline")),
    *(f"{_P}data_parallel_{kind}_degree" for kind in ("replicate", "shard")),
    *(f"{_P}pipeline_parallel_{name}" for name in ("schedule", "microbatch_size", "layers_per_stage")),
    *(f"{_P}pipeline_parallel_{end}_stage_less_layers" for end in ("first", "last")),
    *(f"{_T}{name}" for name in ("local_batch_size", "global_batch_size", "seq_len", "steps", "mixed_precision_param")),
    *("module", "config", "compile.enable_async_tensor_parallel", f"{_P}fsdp_reshard_after_forward"),
}
_MATTERS = re.compile(r"(parallelism|training|activation_checkpoint|compile|quantize|float8|mx|model|experimental)\..*")
"""Options that may change precision, memory or time; the others are of data, logs, checkpoints and rates."""
_HARMLESS = re.compile(
    r"training\.(dataset.*|max_norm|gc_.*|warmup_steps|seed|deterministic|disable_cuda_graphs|mixed_precision_reduce|debug.*)"
    r"|compile\.(enable|components|backend)|parallelism\.(enable_sequence_parallel|disable_loss_parallel"
    r"|context_parallel_(load_balancer|rotate_method)|enable_async_tensor_parallel|enable_compiled_autograd)"
    r"|model\.(tokenizer.*|hf_assets_path|print_after_conversion|name|flavor)|training\.(compile|data_parallel_type)"
    r"|experimental\.(enable_.*|custom_.*)"
)


def read(script: Script) -> FoundOptions:
    """A command line, or a script with one; what a configuration of torchtitan's own holds is known.

    Raises:
        WrongQuestion: it says nothing, or something that no plan can say.
    """
    started = command(script, _READ)
    if started is None:
        raise WrongQuestion("--from torchtitan: no option of torchtitan in it (--training.seq_len ...)")
    name = (started.options.get("config") or [""])[0]
    if "nvfp4" in name:
        raise WrongQuestion(f"--config {name:.60}: 4-bit products cannot be taken over")
    own = CONFIGS.get(name)
    assumed = []
    if own is not None:
        assumed = [f"--config {name}: as torchtitan 0.3.0 has it ({own.recompute} recomputation, {own.precision})"]
    elif name:
        assumed = [f"--config {name:.60}: not torchtitan 0.3.0's own; what its code sets is not read (--recompute)"]
    found = found_options({**(_stated(own) if own else {}), **started.options}, own)
    return replace(found, ranks=started.ranks, assumed=(*started.assumed, *assumed))


def _stated(own: Config) -> Options:
    """A configuration of torchtitan's own as the command line would say it."""
    stated = {f"{_T}local_batch_size": own.micro, f"{_T}seq_len": own.sequence, f"{_T}steps": own.steps}
    return {option: [str(value)] for option, value in {**stated, **own.options}.items()}


def found_options(flags: Options, own: Config | None) -> FoundOptions:
    """Options as axes of a plan; `own` is what a configuration in code holds.

    Raises:
        WrongQuestion: an option that no plan holds, or a value that cannot be.
    """
    refuse(flags, _READ)
    replicate = degree(flags, f"{_P}data_parallel_replicate_degree")
    tp, pp = degree(flags, f"{_P}tensor_parallel_degree"), degree(flags, f"{_P}pipeline_parallel_degree")
    settings: dict[str, object] = {
        "tp": tp,
        "pp": pp,
        "cp": degree(flags, f"{_P}context_parallel_degree"),
        "ep": degree(flags, f"{_P}expert_parallel_degree"),
        "micro": _micro(flags, pp),
        "zero_scope": "node" if replicate > 1 else "full",
        **({"recompute": own.recompute} if own else {}),
    }
    if tp > 1:
        settings["tp_overlap"] = "on" if "compile.enable_async_tensor_parallel" in flags else "off"
    schedule = _schedule(flags)
    settings |= schedule if pp > 1 else {}
    batch = number(flags, f"{_T}global_batch_size")  # -1: what the ranks make up
    return FoundOptions(
        runtime=RUNTIME,
        settings=settings,
        batch=batch if batch is not None and batch > 0 else None,
        per_rank=degree(flags, f"{_T}local_batch_size", 8),
        degrees=(replicate, number(flags, f"{_P}data_parallel_shard_degree", -1) or 1),
        differs=tuple(_differences(flags, pp)),
        sequence=number(flags, f"{_T}seq_len"),
        precision=own.precision if own else "bf16",
        steps=number(flags, f"{_T}steps"),
        model=own.model if own and own.model else (flags.get("config") or [""])[0].replace("_", "-") or None,
        shards=replicate if replicate > 1 else None,
        layers_per_chunk=number(flags, f"{_P}pipeline_parallel_layers_per_stage"),
        unread=sorted(flags.keys() - _READ),
    )


def refuse(flags: Options, read: Collection[str]) -> None:
    """Refuses options that may change what a plan predicts and are not understood.

    Raises:
        WrongQuestion: one or several, by name.
    """
    unknown = sorted(
        name for name in flags if name not in read and _MATTERS.fullmatch(name) and not _HARMLESS.fullmatch(name)
    )
    if unknown:
        names = ", ".join(f"--{name}" for name in unknown[:8])
        raise WrongQuestion(
            f"{names}: may change precision, memory or time, and no plan holds it; --ignore {unknown[0]} prices the "
            "rest without"
        )


def _schedule(flags: Options) -> dict[str, object]:
    """The schedule, by torch's name in any case, and the two chunks that others than 1F1B have unless more are said."""
    given, names = flags.get(f"{_P}pipeline_parallel_schedule", ["1F1B"]), {v.lower(): k for k, v in SCHEDULES.items()}
    if not given:
        raise WrongQuestion(f"--{_P}pipeline_parallel_schedule: needs a value ({', '.join(SCHEDULES.values())})")
    name = names.get(given[0].lower(), "1f1b")
    chunks = {} if name == "1f1b" else {"vpp": 2}
    return chunks | ({"schedule": name} if name in SPLIT_SCHEDULES else {})


def _differences(flags: Options, pp: int) -> Iterator[str]:
    if not _resharded(flags, pp):
        yield "weights stay whole after the forward pass; predicted as given back"
    if (kind := flags.get(f"{_T}mixed_precision_param", ["bfloat16"])) != ["bfloat16"]:
        yield f"computes in {' '.join(kind):.20}; predicted in bfloat16"


def _resharded(flags: Options, pp: int) -> bool:
    """Whether weights are given back after the forward pass: by default where there is no pipeline."""
    how = (flags.get(f"{_P}fsdp_reshard_after_forward") or ["default"])[0]
    if how not in ("default", "always", "never"):
        raise WrongQuestion(f"--{_P}fsdp_reshard_after_forward {how}: choose default, always, never")
    return how == "always" or (how == "default" and pp == 1)


def _micro(flags: Options, pp: int) -> int:
    """Sequences of a forward pass."""
    if pp > 1:
        return degree(flags, f"{_P}pipeline_parallel_microbatch_size")
    return degree(flags, f"{_T}local_batch_size", 8)
