"""Arguments of a program in Python that is only read: those of its functions, and those of its command line."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from planner.base.errors import WrongQuestion
from planner.launchers.reading.python_values import Named, ProgramFunction, ProgramObject, Unknown, truth


def arguments_of(function: ProgramFunction, arguments: tuple[Any, ...], words: Mapping[str, Any]) -> dict[str, Any]:
    """Name -> value of a function's arguments."""
    given = function.node.args
    placed = [name.arg for name in (*given.posonlyargs, *given.args)]
    taken = (*function.arguments, *arguments)
    stated = {**function.words, **words}
    names = [*placed, *(name.arg for name in given.kwonlyargs)]
    why = "**" in stated
    values = {
        name: function.defaults[name]
        if name in function.defaults and not why
        else Unknown(f"{name}, an argument of {function.name}, which is not given")
        for name in names
    }
    values |= dict(zip(placed, taken, strict=False))
    values |= {name: value for name, value in stated.items() if name in names}
    if given.vararg is not None:
        values[given.vararg.arg] = [*taken[len(placed) :]]
    if given.kwarg is not None:
        values[given.kwarg.arg] = {name: value for name, value in stated.items() if name not in names}
    return values


def of_parser(
    parser: ProgramObject, name: str, arguments: tuple[Any, ...], words: Mapping[str, Any], line: Sequence[str]
) -> Any:
    """A method of ``argparse.ArgumentParser`` or of its groups, which keep their options in its field ``options``.

    Raises:
        WrongQuestion: the command line has an option that the parser does not have.
    """
    options: dict[str, Any] = parser.fields.setdefault("options", {})
    if name in ("add_argument_group", "add_mutually_exclusive_group"):
        return parser
    if name == "add_argument":
        names = [str(argument) for argument in arguments]
        flag = next((text for text in names if text.startswith("--")), names[0] if names else "")
        key = str(words.get("dest") or flag.lstrip("-").replace("-", "_"))
        options[key] = (names, dict(words))
        return ProgramObject()
    if name == "set_defaults":
        for key, value in words.items():
            names, others = options.get(key, ([f"--{key}"], {}))
            options[key] = (names, {**others, "default": value})
        return None
    if name in ("parse_args", "parse_known_args") and not arguments and not words:
        if not {"parents", "fromfile_prefix_chars"}.isdisjoint(parser.fields) or "unread" in parser.fields:
            return Unknown("options of a parser of which not all is followed")
        flags = [flag for names, _ in options.values() for flag in names]
        stray = [text for text in line if text.startswith("--") and _flag(text, flags) is None]
        if stray and name == "parse_args":
            raise WrongQuestion(f"{stray[0]:.60}: the program has no such option ({', '.join(flags[:12])})")
        values = {key: _option(names, stated, line, flags) for key, (names, stated) in options.items()}
        made = ProgramObject("argparse.Namespace", values)
        return made if name == "parse_args" else (made, [])
    parser.fields["unread"] = name
    return Unknown(f"{name}() of the parser")


def _flag(text: str, flags: Sequence[str]) -> str | None:
    """The option that a word of the command line is, or is the beginning of; None where it is none, or several."""
    word = text.partition("=")[0]
    begun = [flag for flag in flags if flag.startswith(word)]
    return word if word in flags else begun[0] if len(begun) == 1 and word.startswith("--") else None


def _option(names: Sequence[str], stated: Mapping[str, Any], line: Sequence[str], flags: Sequence[str]) -> Any:
    """The value of an option: on the command line, the last counts, or its default."""
    action = stated.get("action")
    places = [at for at, text in enumerate(line) if text.startswith("-") and _flag(text, flags) in names]
    if action in ("store_true", "store_false"):
        usual = action == "store_false"
        return (not usual) if places else stated.get("default", usual)
    if not places:
        required = truth(stated.get("required", False)) or not (names and names[0].startswith("-"))
        missing = Unknown(f"{names[0] if names else 'an option'}, which the command line says (--arg {names[0]}=VALUE)")
        negative = any(text.startswith(f"--no-{flag[2:]}") for text in line for flag in names if flag.startswith("--"))
        if negative or any(
            re.fullmatch(rf"{re.escape(flag)}\S+", text) for text in line for flag in names if len(flag) == 2
        ):
            return Unknown(f"{names[0]} as the command line has it")
        return missing if required and "default" not in stated else stated.get("default")
    place = places[-1]
    text = line[place].partition("=")[2] if "=" in line[place] else "".join(line[place + 1 : place + 2])
    if action not in (None, "store") or stated.get("nargs") is not None:
        return Unknown(f"{names[0]} {text:.40}, as the program takes it")
    return _typed(text, stated.get("type"))


def _typed(text: str, kind: Any) -> Any:
    name = kind.name if isinstance(kind, Named) else ""
    try:
        if name in ("int", "float"):
            return int(text) if name == "int" else float(text)
    except ValueError:
        return Unknown(f"{text:.40}: no number")
    if name == "bool":
        return bool(text)
    return text if kind is None or name == "str" else Unknown(f"{text:.40} as the program takes it")
