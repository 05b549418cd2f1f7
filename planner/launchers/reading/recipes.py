"""Recipes: programs in Python that build a configuration (``launchers/recipes.toml``), read and never run."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from planner.base.errors import WrongQuestion
from planner.launchers.reading import formats, megatron_family, torchtitan
from planner.launchers.reading.found_options import FoundOptions
from planner.launchers.reading.python_expressions import OutsideCall, OutsideFunctions
from planner.launchers.reading.python_program import Program
from planner.launchers.reading.python_values import ProgramFunction, ProgramObject, Unknown, flat
from planner.launchers.reading.trainer_dialects import TARGETS
from planner.models import files

Values = Mapping[str, Any]
_IMPORTED = re.compile(r"^\s*(?:from\s+([\w.]+)\s+import|import\s+([\w.]+))", re.MULTILINE)
_MOST_MODULES = 60
_NAMED = 12
"""Functions that a refusal names."""


@dataclass(frozen=True, slots=True)
class Built:
    """A configuration that a program builds.

    Attributes:
        name: The function that makes it, or that it is for.
        values: Key with dots -> value, what made a record under ``type``.
        changed_by: Functions that are not here and may have changed it.
    """

    name: str
    values: Values
    changed_by: tuple[str, ...]


@cache
def recipes() -> Mapping[str, Values]:
    """Framework -> how its recipes are read."""
    path = Path(__file__).resolve().parent.parent / "recipes.toml"
    return tomllib.loads(path.read_text(encoding="utf-8"))


def framework(text: str) -> str | None:
    """The framework whose configuration a program builds, by what it imports."""
    if not formats.IS_PYTHON.search(text) or "=" not in text:
        return None
    modules = {one or other for one, other in _IMPORTED.findall(text)}
    return next(
        (name for name, rows in recipes().items() if any(re.fullmatch(rows["imports"], module) for module in modules)),
        None,
    )


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
    built = _chosen(name, program(name, text, folder, started), started.arguments)
    left = {key: value for key, value in built.values.items() if _counts(key, started.ignored)}
    changed = [helper for helper in built.changed_by if helper not in started.ignored]
    if changed:
        raise WrongQuestion(
            f"--from {name}: {changed[0]:.60} receives the configuration and is not here, so that it may change "
            f"anything; --file with its module, or --ignore {changed[0]:.60} prices what is stated without it"
        )
    values = _stated(name, rows, left)
    options = _READERS[rows["read"]](name, rows, replace(built, values=values))
    return replace(options, assumed=[f"of the program: {built.name}", *options.assumed])


def _stated(name: str, rows: Values, values: Values) -> dict[str, Any]:
    """Keys that are set and may change what is predicted, over those of the recipe that the program begins with.

    Raises:
        WrongQuestion: one is not known, or made by a function that is not here.
    """
    for begin, instead in rows.get("aliases", {}).items():
        values = {instead + key.removeprefix(begin) if key.startswith(begin) else key: v for key, v in values.items()}
    stated: dict[str, Any] = {}
    for key, value in values.items():
        value = _plain(value)
        if value is None or re.fullmatch(rows["harmless"], key):
            continue
        if isinstance(value, Unknown):
            raise WrongQuestion(
                f"--from {name}: {key} is not in the program ({value.why:.120}); --ignore {key} prices the rest without"
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


def _counts(key: str, ignored: frozenset[str]) -> bool:
    return ignored.isdisjoint((key, key.rpartition(".")[2]))


def program(name: str, text: str, folder: Path, started: Any) -> list[Built]:
    """The configurations of a program: those that it starts, else what its functions make.

    Raises:
        WrongQuestion: it is no Python, or never ends.
    """
    rows = recipes()[name]
    built: list[Built] = []

    def keep(call: OutsideCall) -> None:
        record = next(
            (part for part in (*call.arguments, *call.words.values()) if isinstance(part, ProgramObject)), None
        )
        whole = record if rows.get("first", True) and record is not None else ProgramObject("", dict(call.words))
        built.append(_built(call.name.rpartition(".")[2], whole))

    known = OutsideFunctions(
        harmless=re.compile(rows["unchanging"]).fullmatch,  # type: ignore[arg-type]
        itself=re.compile(rows["itself"]).fullmatch,  # type: ignore[arg-type]
        starts=re.compile(rows["starts"]).fullmatch,  # type: ignore[arg-type]
        load=_loader(rows, folder, started.files),
        sets=rows.get("sets", {}),
    )
    words = [word for word in started.arguments if word.startswith("-") or "=" not in word]
    reading = Program(known, words, started.environment, on_start=keep)
    scope = reading.module(text, _module(rows, folder))
    scope.names["__name__"] = "__main__"
    if built:
        return built
    functions = {
        key: value
        for key, value in scope.names.items()
        if isinstance(value, ProgramFunction) and re.fullmatch(rows["functions"], key)
    }
    public = {key: value for key, value in functions.items() if value.scope is scope} or functions
    chosen = [key for key in public if key in started.arguments] or list(public)
    given = dict(word.partition("=")[::2] for word in started.arguments if "=" in word and not word.startswith("-"))
    for key in chosen:
        made = reading.called(public[key], (), {word: formats.SWITCHES.get(v, _number(v)) for word, v in given.items()})
        if isinstance(made, ProgramObject) and re.fullmatch(rows["roots"], made.type.rpartition(".")[2]):
            built.append(_built(key, made))
    return built


def _number(text: str) -> Any:
    return int(text) if re.fullmatch(r"\d{1,12}", text) else text


def _built(name: str, record: ProgramObject) -> Built:
    pairs = [*flat(record)]
    changed = tuple(dict.fromkeys(str(value) for key, value in pairs if key.rpartition(".")[2] == "changed_by"))
    return Built(name, {key: value for key, value in pairs if key.rpartition(".")[2] != "changed_by"}, changed)


def _chosen(name: str, built: Sequence[Built], arguments: Sequence[str]) -> Built:
    distinct = [one for place, one in enumerate(built) if one.values not in [other.values for other in built[:place]]]
    if not distinct:
        raise WrongQuestion(f"--from {name}: it builds no configuration that is started or returned by a function")
    if len(distinct) > 1:
        named = ", ".join(one.name for one in distinct[:_NAMED])
        more = f" and {len(distinct) - _NAMED} more" if distinct[_NAMED:] else ""
        raise WrongQuestion(
            f"--from {name}: it builds {len(distinct)} configurations ({named}{more}); --arg {distinct[0].name} "
            "takes one"
        )
    return distinct[0]


def _module(rows: Values, folder: Path) -> str:
    """The name of a program's module, which relative imports start from."""
    parts = folder.absolute().parts
    tops = [at for at, part in enumerate(parts) if part in rows["packages"]]
    return ".".join([*parts[tops[-1] :], "__main__"]) if tops else "__main__"


def _loader(rows: Values, folder: Path, given: Sequence[Path]) -> Callable[[str], str | None]:
    """How modules are found: among files that are given, in the program's folder, in its own package."""
    parts = folder.absolute().parts
    tops = [at for at, part in enumerate(parts) if part in rows["packages"]]
    top = Path(*parts[: tops[-1]]) if tops else None
    count = 0

    def places(name: str) -> Iterator[Path]:
        inner = Path(*name.split("."))
        for path in given:
            if path.with_suffix("").parts[-len(inner.parts) :] == inner.parts or path.stem == inner.name:
                yield path
        roots = [folder.absolute()]
        if top is not None and re.fullmatch(rows["modules"], name):
            roots.append(top)
        for root in roots:
            for path in (root / inner.with_suffix(".py"), root / inner / "__init__.py"):
                if path.is_file() and path.resolve().is_relative_to(root.resolve()):
                    yield path

    def load(name: str) -> str | None:
        nonlocal count
        count += 1
        if count > _MOST_MODULES * 10 or not re.fullmatch(r"[A-Za-z_][\w.]*", name):
            return None
        path = next(places(name), None)
        return None if path is None else files.read_text(path)

    return load


def _plain(value: Any) -> Any:
    """A value without the modules in which its names are."""
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, str) and re.fullmatch(r"(torch|nemo|megatron|olmo_core|nl|llm|run)(\.\w+)+", value):
        return value.rpartition(".")[2]
    return value


# ---- configurations whose keys are Megatron-LM's options ---------------------------


def _megatron(name: str, rows: Values, built: Built) -> FoundOptions:
    """Megatron-Bridge's and NeMo 2's configurations: their sections hold Megatron-LM's options."""
    values = dict(built.values)
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
        elif section is None or "." in inner:
            unknown.append(key)
        else:
            keys[inner] = values[key]
    if unknown:
        raise WrongQuestion(
            f"--from {name}: {', '.join(unknown[:6])}: may change precision, memory or time, and no plan holds it; "
            f"--ignore {unknown[0]} prices the rest without"
        )
    if not model:
        raise WrongQuestion(f"--from {name}: the model is not named ({' or '.join(rows['model'])})")
    nodes, devices = (keys.pop(key, None) for key in ("num_nodes", "devices"))
    for key, option in rows["inverse"].items():
        if keys.pop(key, True) is False:
            keys[option] = True
    if not any(key.startswith(rows["overlaps"]) for key in values):
        keys["no_overlap_p2p_communication"] = True
    options = megatron_family.from_keys(name, {**rows["usual"], **keys}, model)
    ranks = nodes * devices if isinstance(nodes, int) and isinstance(devices, int) else None
    tunes = re.search(rows["tunes"], built.name) is not None
    differs = [*options.differs, *([formats.PADS] if tunes and not any(packed) else [])]
    options = replace(options, ranks=ranks, method="finetune" if tunes else "pretrain", differs=differs)
    return _tuned(name, rows, options, tuned) if tuned else options


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
    if (known := rows["models"].get(plain)) is not None:
        return str(known)
    return value if "/" in value else ""


def _tabled(name: str, rows: Values, built: Built) -> FoundOptions:
    """Keys that a table says one by one."""
    common = {"matter": ".*", "harmless": [], "title": rows["title"], "runtime": rows["runtime"]}
    return formats.read(formats.Format(name, {**common, **rows}), built.values)


_READERS: Mapping[str, Callable[[str, Values, Built], FoundOptions]] = {
    "megatron": _megatron,
    "table": _tabled,
    "torchtitan": lambda name, rows, built: torchtitan.from_registry(built.name, built.values),
}
