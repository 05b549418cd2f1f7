"""Configurations that programs in Python build: those that they start, and what their functions return."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from planner.base.errors import WrongQuestion
from planner.launchers.reading import formats
from planner.launchers.reading.python_outside import OutsideCall, OutsideFunctions
from planner.launchers.reading.python_program import Program
from planner.launchers.reading.python_values import ProgramFunction, ProgramObject, flat
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
    model: str | None = None
    """The model that is asked for instead of its own."""


@cache
def recipes() -> Mapping[str, Values]:
    """Framework -> how its recipes are read."""
    path = Path(__file__).resolve().parent.parent / "recipes.toml"
    frameworks: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    for rows in frameworks.values():
        rows["makes"] = {**dict(_written_out(rows)), **rows.get("makes", {})}
    return frameworks


_FUNCTIONS = {"pretrain": "pretrain_recipe", "lora": "finetune_recipe", "full": "finetune_recipe none"}
"""Column of the table of recipes -> the function that it is of, and what that is given."""


def _written_out(rows: Values) -> Iterator[tuple[str, dict[str, Any]]]:
    """(function of a recipe, key -> value of what it returns) of the words of a table."""
    for module, columns in rows.get("recipes", {}).items():
        for column, function in _FUNCTIONS.items():
            if column not in columns:
                continue
            start = "pretrain" if column == "pretrain" else "finetune"
            words = [*rows["base"][start].split(), f"model={columns['model']}", *columns[column].split()]
            values: dict[str, str] = {}
            for word in words:
                key, _, value = word.partition("=")
                values |= {} if word.startswith("-") else {key: value}
                values.pop(word[1:], None)
            made = {rows["short"].get(key, key): _typed(value) for key, value in values.items()}
            yield f"{module}.{function}", {**made, "type": start}


def _typed(text: str) -> Any:
    """A word of the table as the program has it."""
    if text in ("yes", "no"):
        return text == "yes"
    return text.split(",") if "," in text else int(text) if text.isdecimal() else text


def framework(text: str) -> str | None:
    """The framework whose configuration a program builds, by what it imports."""
    if not formats.IS_PYTHON.search(text) or "=" not in text:
        return None
    modules = {one or other for one, other in _IMPORTED.findall(text)}
    return next(
        (name for name, rows in recipes().items() if any(re.fullmatch(rows["imports"], module) for module in modules)),
        None,
    )


def program(name: str, text: str, folder: Path, started: Any) -> list[Built]:
    """The configurations of a program: those that it starts, else what its functions make.

    Raises:
        WrongQuestion: it is no Python, or never ends.
    """
    try:
        return _followed(recipes()[name], text, folder, started)
    except (RecursionError, MemoryError):
        raise WrongQuestion(f"--from {name}: a program whose objects or functions have no end") from None


def _followed(rows: Values, text: str, folder: Path, started: Any) -> list[Built]:
    built: list[Built] = []

    def keep(call: OutsideCall) -> None:
        given = [*call.arguments, *call.words.values()]
        function = next((part for part in given if isinstance(part, ProgramFunction)), None)
        record = next((part for part in given if isinstance(part, ProgramObject)), None)
        whole = record if record is not None and not rows.get("words") else ProgramObject("", dict(call.words))
        if "places" in rows and not re.fullmatch(rows["roots"], whole.type.rpartition(".")[2]):
            placed = dict(zip(rows["places"], call.arguments, strict=False))
            whole = ProgramObject(call.name, {**placed, **call.words})
        if "builders" in rows:
            whole = _with_builders(rows, reading, record or whole, function)
        many = sum(one.name.partition(" ")[0] == call.name.rpartition(".")[2] for one in built)
        built.append(_built(call.name.rpartition(".")[2] + f" {many + 1}" * (many > 0), whole))

    known = OutsideFunctions(
        harmless=re.compile(rows["unchanging"]).fullmatch,  # type: ignore[arg-type]
        itself=re.compile(rows["itself"]).fullmatch,  # type: ignore[arg-type]
        starts=re.compile(rows["starts"]).fullmatch,  # type: ignore[arg-type]
        load=_loader(rows, folder, started.files),
        sets=rows.get("sets", {}),
    )
    words = [word for word in started.arguments if word.startswith("-") or "=" not in word]
    reading = Program(known, words, dict(started.environment), on_start=keep)
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


def _with_builders(
    rows: Values, reading: Program, record: ProgramObject, function: ProgramFunction | None
) -> ProgramObject:
    """A configuration of which functions make the parts (``builders``: argument -> section), or one function all."""
    common = ProgramObject(
        rows["common"], {key: None if value == "none" else value for key, value in rows["given"].items()}
    )
    if function is not None and not any(name in record.fields for name in rows["builders"]):
        made = reading.called(function, (common, []), {})
        return made if isinstance(made, ProgramObject) else ProgramObject("", {"0": made})
    whole = ProgramObject(record.type, dict(record.fields))
    common.fields |= {name: value for name, value in record.fields.items() if name not in rows["builders"]}
    for name, section in rows["builders"].items():
        if name in whole.fields:
            whole.fields[section] = reading.called(whole.fields.pop(name), (common,), {})
    return whole


def _number(text: str) -> Any:
    return int(text) if re.fullmatch(r"\d{1,12}", text) else text


def _built(name: str, record: ProgramObject) -> Built:
    pairs = [*flat(record)]
    changed = tuple(dict.fromkeys(str(value) for key, value in pairs if key.rpartition(".")[2] == "changed_by"))
    return Built(name, {key: value for key, value in pairs if key.rpartition(".")[2] != "changed_by"}, changed)


def chosen(name: str, built: Sequence[Built], arguments: Sequence[str]) -> Built:
    """The only configuration of several that are one.

    Raises:
        WrongQuestion: there is none, or there are several.
    """
    built = [one for one in built if one.name in arguments] or built
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
