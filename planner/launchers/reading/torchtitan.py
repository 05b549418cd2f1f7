"""torchtitan's options to axes of a plan: of a command, or of the TOML files of its versions until 0.2."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from planner.base import reading
from planner.base.errors import WrongQuestion
from planner.launchers.reading import formats
from planner.launchers.reading.command import command
from planner.launchers.reading.found_options import FoundOptions, Options, Reading
from planner.launchers.reading.shell.script import Script
from planner.launchers.reading.trainer_dialects import library_name, named_file
from planner.models import workload
from planner.schema.hardware import SPLIT_SCHEDULES
from planner.schema.launcher_table import launcher_table

RUNTIME = "fsdp2"
TABLE = launcher_table("torchtitan")
IS_FILE = re.compile(r"^\[(training|parallelism|job|model)\]\s*$", re.MULTILINE)
"""A heading of a TOML file of torchtitan's."""
_P, _T = "parallelism.", "training."
_SCHEDULE, _RESHARD = f"{_P}pipeline_parallel_schedule", f"{_P}fsdp_reshard_after_forward"
_EXPERTS = f"{_P}expert_tensor_parallel_degree"
_FILE = "job.config_file"
_RECOMPUTES = ("activation_checkpoint.mode", "activation_checkpoint.selective_ac_option")
_PRECISIONS = {"float8": "fp8", "mx": "mxfp8"}
"""Converter of linear layers -> precision."""
_READ = {option.name for option in TABLE.options.values() if not option.is_job}
_MATTERS = re.compile(TABLE.head["options"]["matter"])
_HARMLESS = re.compile("|".join(TABLE.head["options"]["harmless"]))
_OTHERWISE: Mapping[str, Mapping[str, str]] = TABLE.head["otherwise"]
"""Option -> its value -> how it is predicted; nothing, where that is as it says."""
_FORMERLY: Mapping[str, str] = TABLE.head["formerly"]
_COMPILED = {f"compile.{name}" for name in ("enable", "components", "backend")} | {f"{_T}compile"}


@dataclass(frozen=True, slots=True)
class Config:
    """A registered configuration.

    Attributes:
        model: Id in the library.
        micro: Sequences of a rank in a forward pass.
        sequence: Tokens.
        steps: Of the whole run.
        recompute: Our word for its activation checkpointing.
        options: What differs from torchtitan's defaults beyond that, as the command line would say it.
        precision: Of the matrix products.
    """

    model: str
    micro: int
    sequence: int
    steps: int
    recompute: str
    options: Mapping[str, str] = field(default_factory=dict)
    precision: str = "bf16"


CONFIGS: Mapping[str, Config] = {name: Config(**row) for name, row in TABLE.head["config"].items()}


def read(script: Script) -> FoundOptions:
    """A command line, or a script with one; what a configuration of torchtitan's own holds is known, and a TOML file
    that it names (until 0.2) is read under its options.

    Raises:
        WrongQuestion: it says nothing, or something that no plan can say.
    """
    started = command(script, {*_READ, *_FORMERLY, *_RECOMPUTES, _FILE})
    if started is None:
        raise WrongQuestion("--from torchtitan: no option of torchtitan in it (--training.seq_len ...)")
    if _FILE in started.options:
        text = named_file(script.folder, "".join(started.options[_FILE][:1]), script.files)
        leads = {name: values or True for name, values in started.options.items() if name != _FILE}
        tables = {key: value for key, value in {**_flat(text), **leads}.items() if key not in script.ignored}
        return replace(found_tables(tables), ranks=started.ranks, assumed=started.assumed)
    name = (started.options.get("config") or [""])[0]
    if "nvfp4" in name:
        raise WrongQuestion(f"--config {name:.60}: 4-bit products cannot be taken over")
    config = CONFIGS.get(name)
    assumed = []
    if config is not None:
        how = f"{config.recompute} recomputation, {config.precision}"
        assumed = [f"--config {name}: as torchtitan 0.3.0 has it ({how})"]
    elif name:
        assumed = [f"--config {name:.60}: not torchtitan 0.3.0's own; what its code sets is not read (--recompute)"]
    stated = {name: values for name, values in started.options.items() if name not in _RECOMPUTES}
    options = found_options({**(_stated(config) if config else {}), **stated}, config)
    if _RECOMPUTES[0] in started.options:
        policy, partly = _recomputed({_RECOMPUTES[1]: "op", **started.options})
        settings = {**options.settings, "recompute": policy}
        options = replace(options, settings=settings, differs=[*options.differs, *partly])
    return replace(options, ranks=started.ranks, assumed=(*started.assumed, *assumed))


def _stated(config: Config) -> Options:
    """A configuration of torchtitan's own as the command line would say it."""
    stated = {f"{_T}local_batch_size": config.micro, f"{_T}seq_len": config.sequence, f"{_T}steps": config.steps}
    return {option: [str(value)] for option, value in {**stated, **config.options}.items()}


def found_options(flags: Options, config: Config | None) -> FoundOptions:
    """Options as axes of a plan; `config` is what a configuration in code holds.

    Raises:
        WrongQuestion: an option that no plan holds, or a value that cannot be.
    """
    _refuse(flags)
    reading = Reading(TABLE, flags)
    settings = reading.degrees()
    pp = settings["pp"]
    replicas = reading(f"{_P}data_parallel_replicate_degree", 1)
    local = reading(f"{_T}local_batch_size", 8)
    settings |= {
        "micro": reading(f"{_P}pipeline_parallel_microbatch_size", 1) if pp > 1 else local,
        "zero_scope": "node" if replicas > 1 else "full",
        **reading.switches(settings),
    }
    if config:
        settings["recompute"] = config.recompute
    schedule = _schedule(reading)
    settings |= schedule if pp > 1 else {}
    batch = reading(f"{_T}global_batch_size")  # -1: what the ranks make up
    return FoundOptions(
        runtime=RUNTIME,
        settings=settings,
        batch=batch if batch is not None and batch > 0 else None,
        per_rank=local,
        degrees=(replicas, reading(f"{_P}data_parallel_shard_degree", -1) or 1),
        differs=(*_differences(reading, pp), *_otherwise(flags, compiled="schedule" not in settings)),
        sequence=reading(f"{_T}seq_len"),
        precision=config.precision if config else "bf16",
        steps=reading(f"{_T}steps"),
        model=config.model if config and config.model else (flags.get("config") or [""])[0].replace("_", "-") or None,
        shards=replicas if replicas > 1 else None,
        layers_per_chunk=reading(f"{_P}pipeline_parallel_layers_per_stage"),
        unread=sorted(
            name
            for name in flags.keys() - _READ - _COMPILED - _OTHERWISE.keys() - _FORMERLY.keys()
            if not _HARMLESS.fullmatch(name)
        ),
    )


def _refuse(flags: Options) -> None:
    """Refuses options that may change what a plan predicts and are not understood.

    Raises:
        WrongQuestion: one or several, by name.
    """
    unknown = sorted(
        name
        for name in flags.keys() - _READ - _COMPILED - _OTHERWISE.keys()
        if _MATTERS.fullmatch(name) and not _HARMLESS.fullmatch(name)
    )
    if unknown:
        names = ", ".join(f"--{name}" for name in unknown[:8])
        raise WrongQuestion(
            f"{names}: may change precision, memory or time, and no plan holds it; --ignore {unknown[0]} prices the "
            "rest without"
        )


def _schedule(reading: Reading) -> dict[str, Any]:
    """The schedule, by torch's name in any case, and the two chunks that others than 1F1B have unless more are said."""
    names = TABLE.words(_SCHEDULE)
    given = reading.words(_SCHEDULE)
    if given == []:
        raise WrongQuestion(f"--{_SCHEDULE}: needs a value ({', '.join(names)})")
    name = {word.lower(): schedule for word, schedule in names.items()}.get((given or [""])[0].lower(), "1f1b")
    chunks = {} if name == "1f1b" else {"vpp": 2}
    return chunks | ({"schedule": name} if name in SPLIT_SCHEDULES else {})


def _differences(reading: Reading, pp: int) -> Iterator[str]:
    how = reading.words(_RESHARD) or ["default"]
    if how[0] not in ("default", "always", "never"):
        raise WrongQuestion(f"--{_RESHARD} {how[0]}: choose default, always, never")
    # Weights are given back by default where there is no pipeline.
    if how[0] == "never" or (how[0] == "default" and pp > 1):
        yield "weights stay whole after the forward pass; predicted as given back"
    kind = reading.words(f"{_T}mixed_precision_param")
    if kind not in (None, ["bfloat16"]):
        yield f"computes in {' '.join(kind):.20}; predicted in bfloat16"


def _otherwise(flags: Options, *, compiled: bool) -> Iterator[str]:
    """What options say of kernels, wire and logits that is predicted otherwise; `compiled`: how blocks are."""
    for name, values in _OTHERWISE.items():
        stated = " ".join(flags.get(name, ()))
        if name in flags and (text := values.get(stated, values["any"])):
            yield text
    switch = flags.get("compile.enable") or flags.get(f"{_T}compile") or [str("compile.enable" in flags)]
    parts = "".join(flags.get("compile.components", ["model"]))
    if compiled and (switch[0].lower() != "true" or "model" not in parts):
        yield "blocks are not compiled by torch.compile; predicted as compiled, as the runtime's figures are"


def read_file(text: str, ignored: Collection[str] = ()) -> FoundOptions:
    """A job's TOML file, without the keys that are ignored.

    Raises:
        WrongQuestion: no TOML, or something that no plan can say.
    """
    return found_tables({name: value for name, value in _flat(text).items() if name not in ignored})


def found_tables(flat: dict[str, Any], model: str = "") -> FoundOptions:
    """Options of all tables as axes of a plan.

    Args:
        flat: ``table.name`` -> value.
        model: The model, where they do not name it.

    Raises:
        WrongQuestion: something that no plan can say.
    """
    if (optimizer := "".join(words_of(flat.get("optimizer.name", "AdamW")))) not in ("AdamW", "Adam"):
        raise WrongQuestion(f"optimizer.name {optimizer:.40}: choose AdamW, Adam; --ignore optimizer.name prices AdamW")
    policy, partly = _recomputed(flat)
    kinds = _converters(flat)
    name = f"{flat.get('model.name', '')}-{flat['model.flavor']}".lower() if flat.get("model.flavor") else model
    name = library_name(TABLE.head["flavors"].get(name, name))
    config = Config(name, 8, 2048, 0, policy, precision=kinds[0] if kinds else "bf16")
    stated = {name: value for name, value in flat.items() if value is not None}
    known = {
        _FORMERLY.get(name, name): words_of(value)
        for name, value in stated.items()
        if value is not False or name in _OTHERWISE
    }
    passed = ("float8.", "quantize.", "mx.", "primus_turbo.")
    own = [] if not kinds else [f"{name} {value!s:.40}" for name, value in flat.items() if _eased(name, value)]
    cut = known.pop(_EXPERTS, ["1"])[0]
    options = found_options({name: value for name, value in known.items() if not name.startswith(passed)}, config)
    if _is_mixture(name):
        whole = options.settings.get("ep", 1) == 1
        settings = {**options.settings, "etp": options.settings["tp"] if whole else cut}
        options = replace(options, settings=settings)
    eased = f"8-bit products with {', '.join(own)}; predicted without"
    return replace(options, differs=[*options.differs, *partly, *([eased] if own else [])])


def _is_mixture(model: str) -> bool:
    """Whether the library's model has experts, which all tensor-parallel ranks share where no rank has some of them."""
    return model in workload.library() and workload.model(model).moe is not None


def words_of(value: Any) -> list[str]:
    """A value as the command line would say it, a word each."""
    return [*map(str, value)] if isinstance(value, list) else [str(value)]


def _eased(name: str, value: Any) -> bool:
    """Whether an option of a converter changes its products or what is sent (which layers it leaves out does not)."""
    inner = re.fullmatch(r"(?:quantize\.(?:linear|grouped_mm)\.)?(?:float8|mx)\.(\w+)", name)
    if inner is not None and inner[1] == "filter_fqns":  # layers that keep their 16 bit, beyond those that any has
        return not {*",".join(words_of(value)).split(",")} <= {"", "output", "lm_head", "router.gate"}
    still = ("fqns", "emulate", "mxfp8_dim1_cast_kernel_choice", "use_fp8_dim1_cast_triton_kernel")
    usual = (False, None, "dynamic", "tensorwise", "mxfp8", "mxfp8_cublas")
    return inner is not None and inner[1] not in still and value not in usual


def _recomputed(flat: dict[str, Any]) -> tuple[str, list[str]]:
    """Which activations are computed again (every second block unless ``selective_ac_option`` says otherwise), and what
    of that is predicted otherwise.
    """
    mode = "".join(words_of(flat.pop("activation_checkpoint.mode", "selective")))
    option = "".join(words_of(flat.pop("activation_checkpoint.selective_ac_option", "2")))
    if mode not in ("none", "selective", "full"):
        raise WrongQuestion(f"activation_checkpoint.mode {mode:.40}: choose none, selective, full")
    if mode != "selective" or option == "op":
        return mode, []
    if not re.fullmatch(r"[1-9]\d{0,3}", option):
        raise WrongQuestion(f"activation_checkpoint.selective_ac_option {option:.40}: op or a whole number is expected")
    if option == "1":
        return "full", []
    return mode, [f"every {option}. block is recomputed as a whole; predicted each in part (selective)"]


def _flat(text: str) -> dict[str, Any]:
    """Options of all tables under ``table.name``."""
    try:
        tables = reading.toml(text)
    except reading.MalformedToml as error:
        raise WrongQuestion(f"--from torchtitan: not TOML: {error}") from None
    return formats.flat({table: inner for table, inner in tables.items() if isinstance(inner, dict)}, {})


def _converters(flat: dict[str, Any]) -> list[str]:
    """What changes linear layers: 8-bit products, or nothing."""
    listed = flat.pop("model.converters", [])
    kinds = [str(kind) for kind in listed] if isinstance(listed, list) else [str(listed)]
    if flat.pop("float8.enable_float8_linear", False):
        kinds = ["float8"]
    formats_of_kinds = {_PRECISIONS.get(kind.rpartition(".")[2]) for kind in kinds}
    if None in formats_of_kinds or len(formats_of_kinds) > 1:
        raise WrongQuestion(f"model.converters {', '.join(kinds):.60}: cannot be taken over")
    return [str(kind) for kind in formats_of_kinds]
