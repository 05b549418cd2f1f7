"""Recipes: programs in Python that build a configuration (``launchers/recipes.toml``), read and never run."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from planner.base.errors import WrongQuestion
from planner.launchers.reading import formats, megatron_family, torchtitan_registry
from planner.launchers.reading.built_configurations import Built, Values, chosen, program, recipes
from planner.launchers.reading.found_options import FoundOptions
from planner.launchers.reading.python_values import Unknown
from planner.launchers.reading.trainer_dialects import TARGETS


def read(name: str, text: str, folder: Path, started: Any) -> FoundOptions:
    """A recipe as axes of a plan.

    Args:
        name: Its framework.
        text: The program, or the name of its file.
        folder: Where its own modules are looked for.
        started: The function to call and the options of its command line, variables, files, what is left out.

    Raises:
        WrongQuestion: it builds no configuration, several, or one that holds what is not known.
    """
    rows = recipes()[name]
    built = chosen(name, program(name, text, folder, started), started.arguments)
    left = {key: value for key, value in built.values.items() if _counts(key, started.ignored)}
    changed = [helper for helper in built.changed_by if helper not in started.ignored]
    if changed:
        raise WrongQuestion(
            f"--from {name}: {changed[0]:.60} receives the configuration and is not here, so that it may change "
            f"anything; --file with its module, or --ignore {changed[0]:.60} prices what is stated without it"
        )
    values = _stated(name, rows, left)
    options = _READERS[rows["read"]](name, rows, replace(built, values=values, model=started.model))
    begun = str(built.values.get("type", "")).rpartition(".")[2]
    notes = [f"of the program: {built.name}"]
    notes += [f"begun with a recipe of {rows['release']}"] if "release" in rows and "recipe" in begun else []
    return replace(options, assumed=[*notes, *options.assumed])


def _stated(name: str, rows: Values, values: Values) -> dict[str, Any]:
    """Keys that are set and may change what is predicted, over those of the recipe that the program begins with.

    Raises:
        WrongQuestion: one is not known, or made by a function that is not here.
    """
    for begin, instead in rows.get("aliases", {}).items():
        values = {instead + key.removeprefix(begin) if key.startswith(begin) else key: v for key, v in values.items()}
    values = _with_known(rows, values)
    stated: dict[str, Any] = {}
    for key, value in values.items():
        value = _plain(value)
        if value is None or re.fullmatch(rows["harmless"], key):
            continue
        if isinstance(value, Unknown):
            raise WrongQuestion(
                f"--from {name}: {key} is not in the program ({value.why:.120}); "
                f"{'--env WORLD_SIZE=N says it, ' * ('world_size' in value.why)}--ignore {key} prices the rest without"
            )
        if key.rpartition(".")[2] == "type" and not re.fullmatch(rows["made"], made := str(value).rpartition(".")[2]):
            raise WrongQuestion(
                f"--from {name}: {key.removesuffix('.type')} comes from {made:.60}, which is not here and not known; "
                f"--file with its module, or --ignore {key} prices what is stated without it"
            )
        if (nothing := rows.get("only", {}).get(key)) is not None and re.fullmatch(nothing, str(value)):
            continue
        stated[key] = value
    return stated


def _with_known(rows: Values, values: Values) -> dict[str, Any]:
    """Keys with those of the functions that are not here but known (``makes``), whose arguments lead."""
    whole = dict(values)
    for key, value in values.items():
        before, _, last = key.rpartition(".")
        parts = str(value).split(".")
        names = [".".join(parts[-2:]), parts[-1]]
        if not before and whole.get("peft_scheme", "lora") in (None, "none"):
            names = [f"{names[0]} none"]
        made = next((rows["makes"][name] for name in names if name in rows.get("makes", {})), None)
        if last != "type" or made is None:
            continue
        begin = f"{before}." if before else ""
        for name, target in rows.get("parameters", {}).items():
            if not before and name in whole:
                whole[target] = whole.pop(name)
        whole = {**{begin + name: part for name, part in made.items()}, **whole}
        whole[key] = made.get("type", value)
        if not before and whole.get("peft_scheme") in (None, "none", "lora"):
            whole.pop("peft_scheme", None)
    return whole


def _counts(key: str, ignored: frozenset[str]) -> bool:
    return ignored.isdisjoint((key, key.rpartition(".")[2]))


def _plain(value: Any) -> Any:
    """A value without the modules in which its names are."""
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, str) and re.fullmatch(r"(torch|nemo|megatron|olmo_core|nl|llm|run|[A-Z]\w*)(\.\w+)+", value):
        return value.rpartition(".")[2]
    return value


# ---- configurations whose keys are Megatron-LM's options ---------------------------


def _megatron(name: str, rows: Values, built: Built) -> FoundOptions:
    """Megatron-Bridge's and NeMo 2's configurations: their sections hold Megatron-LM's options."""
    values = dict(built.values)
    root = str(values.pop("type", ""))
    if root and not re.fullmatch(rows["roots"], root):
        raise WrongQuestion(f"--from {name}: {root:.60}: a configuration is {rows['roots']}")
    tuned = {key.removeprefix("peft."): values.pop(key) for key in [*values] if key.startswith("peft.")}
    packed = [values.pop(key) for key in [*values] if re.fullmatch(rows["packs"], key)]
    keys: dict[str, Any] = {}
    model = ""
    unknown = []
    sections = [*rows["sections"]]
    for key in sorted(values, key=lambda key: _place(rows, key)):
        section = next((part for part in sections if key.startswith(part)), None)
        inner = key.removeprefix(section or "")
        if key in rows["model"]:
            model = model or _model(rows, str(values[key]))
        elif key in rows["precision"]:
            stated = rows["precisions"].get(str(values[key]).replace("-", "_"))
            if stated is None:
                read = ", ".join(rows["precisions"])
                raise WrongQuestion(f"--from {name}: {key} {values[key]!s:.60}: read are {read}")
            keys |= stated
        elif inner == "type" and key.startswith(rows["overlaps"]):
            continue
        elif section is None or "." in inner:
            unknown.append(key)
        else:
            keys[inner] = _layout(values[key]) if inner == "pipeline_model_parallel_layout" else values[key]
    if unknown:
        raise WrongQuestion(
            f"--from {name}: {', '.join(unknown[:6])}: may change precision, memory or time, and no plan holds it; "
            f"--ignore {unknown[0]} prices the rest without"
        )
    model = built.model or model
    if not model:
        named = next((f", {values[key]!s:.60} is not known" for key in rows["model"] if key in values), "")
        raise WrongQuestion(
            f"--from {name}: the model is not named ({' or '.join(rows['model'])}{named}); --model says it"
        )
    nodes, devices = (keys.pop(key, None) for key in ("num_nodes", "devices"))
    for key, option in rows["inverse"].items():
        if keys.pop(key, True) is False:
            keys[option] = True
    if not any(key.startswith(rows["overlaps"]) for key in values):
        keys["no_overlap_p2p_communication"] = True
    elif keys.get("use_distributed_optimizer") is True:  # it sets these unless it is told (training/comm_overlap.py)
        for overlap in ("overlap_grad_reduce", "overlap_param_gather"):
            keys[overlap] = next(
                (v for key, v in values.items() if re.fullmatch(rf"{rows['overlaps']}\w*\.?{overlap}", key)), True
            )
    options = megatron_family.from_keys(name, {**rows["usual"], **keys}, model)
    ranks = (nodes if isinstance(nodes, int) else 1) * devices if isinstance(devices, int) else None
    tunes = re.search(rows["tunes"], f"{built.name} {root}") is not None
    differs = [*options.differs, *([formats.PADS] if tunes and not any(packed) else [])]
    options = replace(options, ranks=ranks, method="finetune" if tunes else "pretrain", differs=differs)
    return _tuned(name, rows, options, tuned) if tuned else options


def _layout(stages: Any) -> str:
    """A list of the layers of every stage as Megatron-LM's text."""
    letters = {"embedding": "E", "decoder": "t", "mtp": "m", "loss": "L"}
    if not isinstance(stages, list):
        return str(stages)
    return "|".join("".join(letters.get(str(layer), "?") for layer in stage) for stage in stages)


def _tuned(name: str, rows: Values, options: FoundOptions, tuned: Values) -> FoundOptions:
    """The configuration with its adapters."""
    kind = str(tuned.get("type", ""))
    method = rows["adapters"].get(re.sub(r".*\[(\w+)\]", r"\1", kind))
    if method is None:
        raise WrongQuestion(f"--from {name}: peft {kind:.40}: read are {', '.join(rows['adapters'])}")
    if others := sorted(tuned.keys() - {"type", "dim", "target_modules"}):
        raise WrongQuestion(f"--from {name}: peft.{others[0]}: cannot be taken over; --ignore peft.{others[0]}")
    layers = tuned.get("target_modules", rows["targets"])
    matrices = tuple(dict.fromkeys(part for layer in layers for part in TARGETS.get(str(layer), (str(layer),))))
    return replace(options, method=str(method), rank=int(tuned.get("dim", rows["rank"])), targets=matrices)


def _place(rows: Values, key: str) -> int:
    """Sections are read in their order: what the last says counts."""
    whole = key if key not in rows["precision"] else f"{key.partition('.')[0]}."
    return next((at for at, part in enumerate(rows["sections"]) if whole.startswith(part)), -1)


def _model(rows: Values, value: str) -> str:
    """The library's or the hub's name of a model; nothing for a class that says none."""
    plain = value.replace("ModelProvider", "Config")
    if (known := {**recipes()["nemo-2"]["models"], **rows["models"]}.get(plain)) is not None:
        return str(known)
    return value if "/" in value else ""


def _tabled(name: str, rows: Values, built: Built) -> FoundOptions:
    """Keys that a table says one by one; counts of tokens (``in_tokens``) are whole sequences.

    Raises:
        WrongQuestion: tokens that are no whole sequences.
    """
    values = dict(built.values)
    lengths = [values[key] for key in rows["lengths"] if isinstance(values.get(key), int)]
    for key in rows["in_tokens"]:
        if key in values and (not lengths or not isinstance(values[key], int) or values[key] % lengths[0]):
            raise WrongQuestion(f"--from {name}: {key} {values[key]!s:.40}: no whole sequences of {lengths[:1]} tokens")
        values |= {key: values[key] // lengths[0]} if key in values else {}
    common = {"matter": ".*", "harmless": [], "title": rows["title"], "runtime": rows["runtime"]}
    kind = formats.Format(name, {**common, **rows, "harmless": [rows["harmless"]]})
    model = {} if built.model is None else {rows["model"]: built.model}
    return formats.read(kind, {**values, **model})


_READERS: Mapping[str, Callable[[str, Values, Built], FoundOptions]] = {
    "megatron": _megatron,
    "table": _tabled,
    "torchtitan": lambda name, rows, built: torchtitan_registry.from_registry(built.name, built.values),
}
