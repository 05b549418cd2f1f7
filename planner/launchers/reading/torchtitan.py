"""torchtitan's options to axes of a plan."""

from __future__ import annotations

from planner.base.errors import WrongQuestion
from planner.launchers.reading.command import command
from planner.launchers.reading.found import FoundOptions, Options, degree, number
from planner.launchers.reading.shell.script import Script

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


def read(script: Script) -> FoundOptions:
    """A command line, or a script with one. Recomputation and 8-bit formats stand in a module and are not read.

    Raises:
        WrongQuestion: it says nothing, or something that no plan can say.
    """
    started = command(script, _READ)
    if started is None:
        raise WrongQuestion("--from torchtitan: no option of torchtitan in it (--training.seq_len ...)")
    flags = started.options
    replicate = degree(flags, f"{_P}data_parallel_replicate_degree")
    tp, pp = degree(flags, f"{_P}tensor_parallel_degree"), degree(flags, f"{_P}pipeline_parallel_degree")
    settings: dict[str, object] = {
        "tp": tp,
        "pp": pp,
        "cp": degree(flags, f"{_P}context_parallel_degree"),
        "ep": degree(flags, f"{_P}expert_parallel_degree"),
        "micro": _micro(flags, pp),
        "zero_scope": "node" if replicate > 1 else "full",
    }
    if tp > 1:
        settings["tp_overlap"] = "on" if "compile.enable_async_tensor_parallel" in flags else "off"
    schedule = flags.get(f"{_P}pipeline_parallel_schedule", ["1F1B"])
    if not schedule:
        raise WrongQuestion(f"--{_P}pipeline_parallel_schedule: needs a value (1F1B, Interleaved1F1B)")
    if schedule[0].lower().startswith("interleaved"):
        settings["vpp"] = 2
    batch = number(flags, f"{_T}global_batch_size")  # -1: what the ranks make up
    return FoundOptions(
        runtime=RUNTIME,
        settings=settings,
        batch=batch if batch is not None and batch > 0 else None,
        per_rank=degree(flags, f"{_T}local_batch_size", 8),
        degrees=(replicate, number(flags, f"{_P}data_parallel_shard_degree", -1) or 1),
        differs=()
        if _resharded(flags, pp)
        else ("weights stay whole after the forward pass; predicted as given back",),
        sequence=number(flags, f"{_T}seq_len"),
        precision="bf16",
        steps=number(flags, f"{_T}steps"),
        model=(flags.get("config") or [""])[0].replace("_", "-") or None,
        shards=replicate if replicate > 1 else None,
        ranks=started.ranks,
        assumed=started.assumed,
        layers_per_chunk=number(flags, f"{_P}pipeline_parallel_layers_per_stage"),
        unread=sorted(flags.keys() - _READ),
    )


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
