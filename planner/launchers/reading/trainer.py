"""Hugging Face's Trainer and those who build on it: a command, or TRL's, LLaMA-Factory's or Axolotl's YAML."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from planner.base.errors import WrongQuestion
from planner.launchers.reading import megatron_family, program_source, trainer_keys
from planner.launchers.reading.command import command
from planner.launchers.reading.found_options import FoundOptions
from planner.launchers.reading.shell.script import Script
from planner.launchers.reading.trainer_dialects import (
    CHAT,
    DIALECTS,
    LIGER,
    NAMES,
    NEAREST,
    OPTIMIZERS,
    OPTIONS,
    SWIFT,
    TARGETS,
    TRAINER,
    TRAINS,
    WORDS,
    Dialect,
    Values,
    count,
    library_name,
    mapping,
    named_file,
    true,
)
from planner.launchers.reading.trainer_programs import (
    accumulating,
    as_its_program,
    compared,
    dialect_of,
    is_stated,
    learnt_from,
    listed,
    names_a_file,
    of_trl,
    todays,
    with_its_file,
)
from planner.launchers.reading.trainer_sharding import (
    accelerate,
    fsdp_config,
    launched,
    sharding,
    with_files,
    with_fsdp_file,
)
from planner.schema.launcher_table import launcher_table

BASES = {0: "lora", 4: "qlora", 8: "qlora:int8"}
"""Bits of frozen weights -> method."""
MAGNITUDES = {"lora": "dora", "qlora": "qdora"}
"""Method -> the same with magnitudes beside its adapters."""
OFFLOADING = "activation_offloading"
"""TRL's and Axolotl's key for what layers keep in host memory."""
TASKS = {"sft": "sft", "pt": "sft", "dpo": "dpo", "rm": "reward"}
"""LLaMA-Factory's stages -> what is learnt from."""
PADS = "sequences are as long as the longest of a micro-batch; predicted all as long as the limit (packing fills them)"
_TABLES = ("embed_tokens", "lm_head", "wte", "word_embeddings")
"""Matrices of the vocabulary."""
_QUANTISERS: list[str] = WORDS["keys"]["quantisers"]
_PROGRAMS: dict[str, str] = WORDS["programs"]
_LAUNCHES = {"config_file", "mixed_precision", "use_deepspeed", "deepspeed_config_file", "use_fsdp"}
"""Options of ``accelerate launch`` that say how the job is spread and computed."""
_DEEPSPEED = {
    "dp_overlap": "gradients are reduced after the backward pass; predicted during it",
    "zero": "gradients and optimizer states of adapters are sharded; predicted whole on every rank",
    "offload": "optimizer states of adapters lie in host memory; predicted on the accelerator",
}
"""Axis of DeepSpeed's -> how the Trainer's runtime has it."""
_TRL_NAMED = re.compile(r"(^|[/_-])(sft|trl|dpo|reward\w*)(?=[/_.-]|$)")
"""In the name of a program: TRL's, or one like it."""
_TRL_ONLY: list[str] = launcher_table("trl").head["marks"]


def read_command(script: Script) -> FoundOptions:
    """A command that trains with Hugging Face's Trainer or a program on it, or as DeepSpeed-Chat does.

    Raises:
        WrongQuestion: it says nothing, or something that no plan can say.
    """
    started = command(script, OPTIONS, TRAINS, names_a_file)
    if started is None:
        raise WrongQuestion("--from trainer: no option of a Trainer in it (--per_device_train_batch_size ...)")
    if other := _PROGRAMS.get(started.program.rpartition("/")[2]):
        raise WrongQuestion(f"{started.program}: {other}; its options say less than they do of the Trainer's")
    learnt = learnt_from(started, script)
    values = with_its_file(started, script)
    values = with_files(values, [path for path in script.files if path.suffix != ".py"])
    values = {name: value for name, value in values.items() if name not in script.ignored}
    dialect = dialect_of(started, values)
    assumed: list[str] = []
    values = todays(dialect, values)
    kinds = {"ACCELERATE_MIXED_PRECISION": ("bf16", "fp16", "no"), "ACCELERATE_DYNAMO_BACKEND": ("no",)}
    for name, text in started.spreads.items():
        if text.lower() not in kinds.get(name, ("false", "0", "no")) and name not in script.ignored:
            raise WrongQuestion(
                f"--from trainer: {name}={text:.40}: spreads or computes the job in its own way; write it as an option "
                f"or a file of Accelerate's, or --ignore {name} prices the rest without"
            )
    if (mixed := started.spreads.get("ACCELERATE_MIXED_PRECISION", "no").lower()) in ("bf16", "fp16"):
        values = {mixed: True, **values}
    if not _LAUNCHES.isdisjoint(started.launcher):
        given = started.launcher.get("config_file")
        file = mapping(named_file(script.folder, given[0], script.files)) if given else {}
        launch = accelerate({**file, **launched(started.launcher)})
        values = {**launch, **values}
        if "gradient_checkpointing" in launch:  # FSDP recomputes, whatever the program's own switch says
            values["gradient_checkpointing"] = True
    elif started.starter == "accelerate":
        assumed.append("accelerate launch without --config_file: replicas, as where its own file says nothing else")
    if (
        dialect is TRAINER
        and (own := program_source.own_defaults(started.program, script.folder, script.files)) is not None
    ):
        adapts = any(true({**own, **values}.get(name)) for name in NAMES["adapters"])
        taken = {
            name: value
            for name, value in own.items()
            if not is_stated(values, name) and (adapts or name not in NAMES["rank"])
        }
        values = {**taken, **values}
        assumed += [f"{started.program.rpartition('/')[2]}'s own defaults: {listed(taken)}"] if taken else []
    elif dialect is TRAINER and started.program.endswith(".py"):
        assumed.append(f"{started.program}: not there; what it sets itself is not known (--file says where it is)")
    ranks = started.ranks
    if dialect is SWIFT:
        ranks = ranks or 1
        dialect = accumulating(values, ranks)
    if re.match("python", started.starter) and dialect is TRAINER and ranks != 1 and not started.launcher:
        assumed.append("started by python alone: replicas in one process (DataParallel), as DistributedDataParallel")
    if dialect is CHAT:
        values = {"dtype": "fp16", **values}
    if learnt is not None and "stage" not in values:
        values = {"stage": learnt, **values}
    of_trl_alone = values.keys() & {*WORDS["former"]["of_trl_alone"]}
    trl = program_source.imports("trl", started.program, script.folder, script.files)
    trl = bool(of_trl_alone or _TRL_NAMED.search(started.program or "sft")) if trl is None else trl
    found = _read(dialect, values, script.folder, trl=trl)
    if dialect.options == SWIFT.options and (started.seen or 0) > (ranks or 1):
        spread = "a process lays its model over several accelerators, which take turns; predicted as replicas"
        found = replace(found, differs=(*found.differs, spread))
    return replace(found, ranks=ranks or found.ranks, assumed=[*started.assumed, *assumed, *found.assumed])


def read_file(name: str) -> Callable[[str, Path], FoundOptions]:
    """The reader of a dialect's YAML."""
    return lambda text, folder: _read(DIALECTS[name], todays(DIALECTS[name], mapping(text)), folder)


def _read(dialect: Dialect, values: Values, folder: Path, *, trl: bool = True) -> FoundOptions:
    taken: list[str] = []
    if dialect is TRAINER:
        values, taken = as_its_program(values)
    if dialect is TRAINER and "beta" in values and "stage" not in values:
        values = {"stage": compared(folder), **values}
    if trl and dialect is TRAINER and not values.keys().isdisjoint(_TRL_ONLY):
        dialect, values = of_trl(values)
    if dialect.name == "llama-factory" and not values.keys().isdisjoint(megatron_family.adapter_marks()):
        return megatron_family.read_adapter(values)
    values = with_fsdp_file(values, folder)
    trainer_keys.refuse(dialect, values)
    _refuse(dialect, values)
    sharded, assumed = sharding(values, folder)
    base = _base(dialect, values)
    engine = {"micro": sharded.settings.get("micro"), "accumulation": sharded.accumulation}
    filled = {NAMES[name][0]: value for name, value in engine.items() if value}
    values = {**values, **{name: value for name, value in filled.items() if not is_stated(values, name)}}
    micro, accumulation = (_whole(dialect, values, name) for name in ("micro", "accumulation"))
    assert micro is not None and accumulation is not None
    task = _task(dialect, values)
    total = count(values, "global_batch_size") * (1 if task == "sft" else 2)
    if total and values.get("gradient_accumulation_steps") is not None:
        raise WrongQuestion(
            f"--from {dialect.name}: global_batch_size and gradient_accumulation_steps: --ignore one of them"
        )
    micro *= 1 if task == "sft" else 2  # both answers of a pair
    settings: dict[str, object] = {
        **sharded.settings,
        "micro": micro,
        "recompute": "full" if _recomputes(dialect, values, folder) else "none",
    }
    settings |= {axis: size for axis in ("tp", "cp") if (size := _size(dialect, values, axis) or 1) > 1}
    replicas = _size(dialect, values, "replicas") or 1
    if replicas > 1 and sharded.settings.get("zero"):
        settings["zero_scope"] = "node"
    offloads = true(values.get(OFFLOADING)) and sharded.settings.get("zero") in (0, 3)
    if offloads:
        settings["activation_offload"] = "all"
    lora = dialect.adapts(values)
    method = _method(dialect, values, base)
    special = task != "sft" or method in MAGNITUDES.values() or method.startswith("freeze")
    runtime = _runtime(dialect, values, sharded.runtime, anyhow=bool(base or offloads or special))
    nearest = _nearest(settings, sharded.runtime, runtime, adapts=lora)
    targets = "all" if true(values.get("lora_target_linear")) else dialect.get(values, "targets")
    steps = _whole(dialect, values, "steps")
    return FoundOptions(
        runtime=runtime,
        settings={**settings, **nearest},
        batch=total or None,
        accumulation=None if total else accumulation,
        per_rank=micro * accumulation,
        precision=_precision(values, sharded.precision, assumed),
        sequence=_sequence(dialect, values),
        steps=steps if steps is not None and steps > 0 else None,
        method=method,
        task=task,
        rank=_whole(dialect, values, "rank") if lora else None,
        targets=_targets(targets, assumed) if lora else None,
        optimizer=_optimizer(dialect, values),
        model=library_name(str(dialect.get(values, "model") or "")) or None,
        ranks=values.get("processes") or _size(dialect, values, "ranks"),
        degrees=_mesh(dialect, values, replicas),
        shards=replicas if replicas > 1 else None,
        differs=(*_differs(dialect, values, sharded, runtime), *(_DEEPSPEED[axis] for axis in nearest)),
        unread=[],
        assumed=[*taken, *_defaults(dialect, values), *assumed],
    )


def _task(dialect: Dialect, values: Values) -> str:
    stage = values.get("stage") or values.get("rlhf_type")
    if stage is not None and stage not in TASKS:
        raise WrongQuestion(f"--from {dialect.name}: stage {stage!s:.40}: choose {', '.join(TASKS)}")
    if stage == "dpo" and values.get("pref_loss", "sigmoid") not in ("sigmoid", "hinge", "ipo", "kto_pair"):
        raise WrongQuestion(
            f"--from {dialect.name}: pref_loss {values['pref_loss']!s:.40}: it compares with no reference model, and "
            "no plan does so"
        )
    if dialect.name == "axolotl" and values.get("rl"):
        return "dpo"
    return TASKS.get(str(stage), "sft")


def _method(dialect: Dialect, values: Values, base: int) -> str:
    """What is trained: all, adapters, or LLaMA-Factory's last blocks."""
    if dialect.adapts(values):
        method = "qlora:fp8" if true(values.get("quantization_fp8")) else BASES[base]
        if not any(true(values.get(name)) for name in NAMES["magnitudes"]):
            return method
        if method not in MAGNITUDES:
            raise WrongQuestion(f"--from {dialect.name}: DoRA over weights of 8 bit: choose 4 or 16")
        return MAGNITUDES[method]
    blocks = values.get("trained_layers")
    if blocks is not None or values.get("finetuning_type") == "freeze":
        former = values.get("num_layer_trainable")
        blocks = values.get("freeze_trainable_layers", former or 2) if blocks is None else blocks
        modules = values.get(
            "freeze_trainable_modules", values.get("name_module_trainable", "mlp" if former else "all")
        )
        whole = str(modules) == "all"
        if not whole or not re.fullmatch(r"[1-9]\d{0,3}", str(blocks)):
            raise WrongQuestion(
                f"--from {dialect.name}: freeze_trainable_layers {blocks!s:.40}: the last blocks, whole, are read"
            )
        return f"freeze:{blocks}"
    return "pretrain" if _untrained(values) else "finetune"


def _mesh(dialect: Dialect, values: Values, replicas: int) -> tuple[int, int] | None:
    """Replicas and shards, where they are stated."""
    shards = _size(dialect, values, "shards")
    return (replicas, shards or -1) if shards or replicas > 1 else None


def _sequence(dialect: Dialect, values: Values) -> int | None:
    """Tokens of a sequence: as stated, a prompt's and its answer's together, or the program's own."""
    parts = [
        next((count(values, key) for key in NAMES[name] if count(values, key)), 0) for name in ("prompts", "answers")
    ]
    stated = any(values.get(name) is not None for name in NAMES["sequence"])
    if stated or not any(parts) or dialect is DIALECTS["axolotl"]:
        return _whole(dialect, values, "sequence")
    return parts[0] if values.get("stage") == "pt" else sum(parts)


def _runtime(dialect: Dialect, values: Values, sharding: str, *, anyhow: bool) -> str:
    """The runtime whose predictions hold: the Trainer's own, with Liger's kernels or without, on replicas, under FSDP,
    and `anyhow` (over a quantised base, with activations in host memory); else that of what shards it: DeepSpeed, or a
    mesh with tensor or context parallelism, which the Trainer's runtime has not.
    """
    liger = any(true(values.get(name)) for name in LIGER)
    trainer = "hf-trainer-liger" if liger else "hf-trainer"
    alone = all((_size(dialect, values, axis) or 1) == 1 for axis in ("tp", "cp"))
    by_torch = sharding in ("pytorch-ddp", "fsdp2") or (liger and dialect.adapts(values))
    return trainer if anyhow or (alone and by_torch) else sharding


def _nearest(settings: Mapping[str, object], engine: str, runtime: str, *, adapts: bool) -> dict[str, object]:
    """What of DeepSpeed's sharding the Trainer's runtime, where that is the one that is priced, has otherwise.

    Raises:
        WrongQuestion: the whole model is trained, and far more than adapters' states would lie elsewhere.
    """
    if engine != "deepspeed" or runtime == engine:
        return {}
    nearest: dict[str, object] = {"dp_overlap": "on"} if settings.get("dp_overlap") == "off" else {}
    nearest |= {"zero": 0} if settings.get("zero") in (1, 2) else {}
    nearest |= {"offload": "none"} if settings.get("offload") == "optimizer" else {}
    if not adapts and (moved := [axis for axis in ("zero", "offload") if axis in nearest]):
        raise WrongQuestion(
            f"--from trainer: {moved[0]} {settings[moved[0]]} under DeepSpeed: no plan holds it with what is trained "
            "here; --ignore deepspeed prices the rest on replicas"
        )
    return nearest


def _untrained(values: Values) -> bool:
    switches = ("reinit_weights", "train_from_scratch", "model_untrained")
    return values.get("stage") == "pt" or any(true(values.get(name)) for name in switches)


def _refuse(dialect: Dialect, values: Values) -> None:
    if true(values.get(OFFLOADING)) and values.get("deepspeed"):
        raise WrongQuestion(
            f"--from {dialect.name}: {OFFLOADING}: may change precision, memory or time, and no plan holds it with "
            f"DeepSpeed; --ignore {OFFLOADING} prices the rest without"
        )
    if true(values.get("do_predict")) and not true(values.get("do_train")):
        raise WrongQuestion(f"--from {dialect.name}: do_predict: it does not train")
    if (kind := values.get("finetuning_type", "full")) not in ("full", "lora", "freeze"):
        raise WrongQuestion(f"--from {dialect.name}: finetuning_type {kind!s:.40}: choose full, lora, freeze")
    model = dialect.get(values, "model")
    if other := next(
        (name for name in ("config_name", "base_model_config") if values.get(name) not in (None, "", model)), None
    ):
        raise WrongQuestion(
            f"--from {dialect.name}: {other} {values[other]!s:.60}: another configuration than {model!s:.60}; --ignore "
            f"{other} prices that model"
        )
    if (kind := values.get("adapter")) not in (None, "", False, "none", "lora", "qlora"):
        raise WrongQuestion(f"--from {dialect.name}: adapter {kind!s:.40}: choose lora, qlora")


def _differs(dialect: Dialect, values: Values, sharded: FoundOptions, runtime: str) -> Iterator[str]:
    yield from sharded.differs
    predicted = LIGER if runtime == "hf-trainer-liger" else ()
    yield from dict.fromkeys(text for name, text in trainer_keys.otherwise(values) if name not in predicted)
    if dialect.adapts(values) and (saved := next(filter(None, map(values.get, NAMES["saved"])), None)):
        modules = ", ".join(map(str, saved)) if isinstance(saved, list) else str(saved)
        yield f"modules trained in addition to the adapters ({modules:.80}); predicted frozen"
    if values.get("finetuning_type") == "freeze" and values.get("freeze_extra_modules"):
        yield f"modules trained in addition to blocks ({values['freeze_extra_modules']!s:.60}); predicted frozen"
    if str(values.get("gradient_checkpointing")).lower() in ("unsloth", "offload", "offload_disk"):
        yield "what layers keep lies in host memory; predicted on the accelerator"
    if (name := str(dialect.get(values, "optimizer") or "")) in NEAREST:
        yield f"optimizer {name}, of which {NEAREST[name][1]}; predicted as {NEAREST[name][0]}"
    if plugins := [str(name).rpartition(".")[2] for name in values.get("plugins") or () if "Liger" not in str(name)]:
        yield f"kernels of plugins as stated ({', '.join(plugins)}); predicted with the runtime's usual ones"
    if true(values.get("tf32")) and _precision(values, sharded.precision, []) == "fp32":
        yield "matrix products in TF32; predicted in 32 bit"
    narrow = true(values.get("pure_bf16")) or str(values.get("torch_dtype")) in ("bfloat16", "float16", "bf16", "fp16")
    narrow |= dialect.name == "axolotl" and _precision(values, sharded.precision, []) != "fp32"
    if narrow and not dialect.adapts(values) and sharded.runtime == "pytorch-ddp":
        yield "weights and optimizer states in 16 bit, without a copy in 32 bit; predicted with one"
    if count(values, "lora_dim") and not true(values.get("only_optimize_lora")):
        yield "embeddings and norms are trained, too; predicted frozen"
    if any(str(values.get(name)).lower() == "fp4" for name in _QUANTISERS):
        yield "weights in fp4; predicted in nf4, which is as large"
    if _base(dialect, values) == 4 and not true(dialect.get(values, "nested")):
        yield "scales of 4-bit weights are in 32 bit; predicted quantised, too (0.4 bit a weight less)"
    if not true(dialect.get(values, "packing")) and values.get("stage") != "pt" and "zero_stage" not in values:
        yield PADS


def _base(dialect: Dialect, values: Values) -> int:
    """Bits of the weights that adapters leave frozen, which bitsandbytes quantises; 0: they are not."""
    switches = {
        bits: any(true(values.get(key)) for key in NAMES[name]) for bits, name in ((4, "four_bits"), (8, "eight_bits"))
    }
    stated = next((count(values, name) for name in NAMES["bits"] if count(values, name)), 0)
    bits = {16: 0, 32: 0}.get(stated, stated) or next((bits for bits, on in switches.items() if on), 0)
    kinds = {str(values[name]).lower() for name in _QUANTISERS if values.get(name) is not None}
    known = bits in BASES and kinds <= {"nf4", "fp4"}
    if (bits and not (known and dialect.adapts(values))) or (values.get("adapter") == "qlora" and bits != 4):
        raise WrongQuestion(f"--from {dialect.name}: quantised weights are read in 4 bit (nf4) or 8, under adapters")
    return bits


def _defaults(dialect: Dialect, values: Values) -> Iterator[str]:
    """What is left to the program, and what it takes by itself."""
    total = "global_batch_size" in values
    if "train_dataset" in values and dialect.name == "llama-factory":
        yield "what it learns from is said by its command: answers (sft), not pairs of them"
    for name, value in dialect.defaults.items():
        if name not in ("micro", "accumulation", "sequence", "recompute") or (name, total) == ("accumulation", True):
            continue
        if not any(key in values for key in NAMES[name]):
            yield f"{NAMES[name][0]} not stated: {value}, the program's default"


def _recomputes(dialect: Dialect, values: Values, folder: Path) -> bool:
    if true(fsdp_config(values, folder).get("activation_checkpointing")):
        return True
    return true(dialect.get(values, "recompute")) and not true(values.get("disable_gradient_checkpointing"))


def _precision(values: Values, of_engine: str | None, assumed: list[str]) -> str:
    if (kind := values.get("dtype")) in ("bf16", "fp16"):
        return str(kind)
    if of_engine in ("bf16", "fp16") and all(values.get(name) is None for name in ("bf16", "fp16")):
        return of_engine
    if true(values.get("pure_bf16")):
        return "bf16"
    former = {"bf16": values.get("bfloat16"), "fp16": values.get("float16")}
    values = {**values, **{name: value for name, value in former.items() if value is not None}}
    for name in ("bf16", "fp16"):
        if values.get(name) == "auto":
            assumed.append(f"{name} auto: bf16, as accelerators since Ampere have it")
            return "bf16"
        if true(values.get(name)):
            return name
    assumed.append("neither bf16 nor fp16 is set: 32 bit")
    return "fp32"


def _optimizer(dialect: Dialect, values: Values) -> str:
    if true(values.get("adafactor")):
        return OPTIMIZERS["adafactor"]
    if true(values.get("use_8bit_optimizer")):
        return OPTIMIZERS["adamw_bnb_8bit"]
    name = str(dialect.get(values, "optimizer") or "adamw_torch").lower()
    if name in NEAREST:
        return NEAREST[name][0]
    if name not in OPTIMIZERS:
        raise WrongQuestion(f"--from {dialect.name}: optimizer {name:.40}: choose {', '.join(sorted(OPTIMIZERS))}")
    return OPTIMIZERS[name]


def _targets(given: Any, assumed: list[str]) -> tuple[str, ...] | None:
    if given is None:
        assumed.append("LoRA's layers not stated: q, k, v and o (--target says others)")
        return None
    names = [*map(str, given)] if isinstance(given, list) else [name.strip() for name in str(given).split(",")]
    names = [part for name in names for part in _alternatives(name.strip("[]'\" "))]
    if besides := [name for name in names if name in _TABLES]:
        assumed.append(f"adapters of {', '.join(besides)}: without them")
    known = {**TARGETS, **(WORDS["targets_of_qwen"] if "c_attn" in names else {})}
    if unknown := [name for name in names if name not in known and name not in _TABLES]:
        usual = ", ".join([*TARGETS][:8])
        raise WrongQuestion(f"LoRA layer {unknown[0]:.40}: choose {usual}, or names of other models' own")
    return tuple(dict.fromkeys(target for name in names for target in known.get(name, ())))


def _alternatives(name: str) -> list[str]:
    """The linear layers of a pattern that ends in them: ``(mlp|self_attn).(up|q|o)_proj``."""
    ending = re.search(r"\(([a-z|]+)\)_proj$", name)
    return [f"{letter}_proj" for letter in ending[1].split("|")] if ending else [name]


# ---- values ----------------------------------------------------------------------------------------------------------


def _size(dialect: Dialect, values: Values, name: str) -> int | None:
    if (value := dialect.get(values, name)) is None:
        return None
    if not re.fullmatch(r"[1-9][0-9]{0,6}", str(value)):
        raise WrongQuestion(f"{NAMES[name][-1]} {value!s:.40}: must be a whole number from 1")
    return int(value)


def _whole(dialect: Dialect, values: Values, name: str) -> int | None:
    value = dialect.get(values, name)
    if value is None or value == "auto":
        return dialect.defaults.get(name)
    if (
        isinstance(value, bool)
        or not re.fullmatch(r"-?[0-9]{1,12}", str(value))
        or (int(value) < 1 and name != "steps")
    ):
        raise WrongQuestion(f"--from {dialect.name}: {name} is {value!r:.40}; a whole number from 1 is expected")
    return int(value)
