"""What a training script takes where its command says nothing: defaults of its options, read from its text.

Options are the fields of its dataclasses, ``add_argument`` calls, and the arguments of a function that ``fire`` calls.
Nothing of the script is run, and of its text nothing is shown but the values of options that are read.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from planner.base.errors import WrongQuestion
from planner.launchers.reading.trainer_dialects import NAMES, named_file

READ = {
    *(
        name
        for key in ("micro", "accumulation", "sequence", "rank", "targets", "optimizer", "recompute")
        for name in NAMES[key]
    ),
    *(name for key in ("adapters", "bits", "four_bits", "eight_bits", "nested", "packing") for name in NAMES[key]),
    *("bf16", "fp16", "full_finetune", "full_finetuning", "optim"),
}
"""Options whose defaults count: those of shape, batch, precision and adapters."""
LARGEST = 400_000
"""Characters of a script that is read."""
_ADAPTS = ("get_peft_model", "LoraConfig")
_RECOMPUTES = ("gradient_checkpointing_enable", "prepare_model_for_kbit_training", "prepare_model_for_int8_training")
_QUANTISES = ("load_in_4bit", "load_in_8bit")
_KEYWORDS = {"r": "lora_r", "target_modules": "lora_target_modules"}
"""Arguments of PEFT's configuration -> options that say them."""


def own_defaults(program: str, folder: Path, files: tuple[Path, ...]) -> dict[str, Any] | None:
    """Option -> default of a script that a command starts; None where the script is not there or cannot be read."""
    try:
        return _defaults(ast.parse(_text(program, folder, files) or "?"))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def imports(module: str, program: str, folder: Path, files: tuple[Path, ...]) -> bool | None:
    """Whether a script imports a module; None where it is not there."""
    text = _text(program, folder, files)
    return None if text is None else re.search(rf"^\s*(from|import) {module}\b", text, re.MULTILINE) is not None


def _text(program: str, folder: Path, files: tuple[Path, ...]) -> str | None:
    try:
        text = named_file(folder, program, files) if program.endswith(".py") else None
    except WrongQuestion:
        return None
    return text if text is not None and len(text) <= LARGEST else None


def _defaults(tree: ast.AST) -> dict[str, Any]:
    """Defaults of options, and what is done or built whatever they say."""
    nodes = [*ast.walk(tree)]
    stated = {name: value for name, value in _options(nodes) if name in READ and value not in (None, "", [])}
    built = [_built(node) for node in nodes if isinstance(node, ast.Call) and _called(node) == "LoraConfig"]
    always = [*_unconditional(tree)]
    done = dict.fromkeys(
        ("gradient_checkpointing",) if any(_called(call) in _RECOMPUTES for call in always) else (), True
    )
    for call in always:
        held = {word.arg: word.value for word in call.keywords if word.arg in _QUANTISES}
        done |= {str(name): True for name, value in held.items() if _value(value) is True}
    return {**(built[0] if len(built) == 1 else {}), **_adapters(always, stated), **stated, **done}


def _options(nodes: list[ast.AST]) -> Iterator[tuple[str, Any]]:
    fired = {
        word.id
        for node in nodes
        if isinstance(node, ast.Call) and _called(node) == "Fire"
        for word in node.args
        if isinstance(word, ast.Name)
    }
    for node in nodes:
        if isinstance(node, ast.ClassDef) and any("dataclass" in ast.unparse(mark) for mark in node.decorator_list):
            for field in node.body:
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and field.value:
                    yield field.target.id, _default(field.value)
        elif isinstance(node, ast.Call) and _called(node) == "add_argument":
            words = [word.value for word in node.args if isinstance(word, ast.Constant)]
            if long := next((word for word in words if isinstance(word, str) and word.startswith("--")), None):
                yield long[2:].replace("-", "_"), _default(node)
        elif isinstance(node, ast.FunctionDef) and node.name in fired:
            given = node.args.args[len(node.args.args) - len(node.args.defaults) :]
            yield from ((word.arg, _value(value)) for word, value in zip(given, node.args.defaults, strict=True))


def _default(node: ast.expr) -> Any:
    """The default of ``field(...)`` or ``add_argument(...)``, or a value itself."""
    if not isinstance(node, ast.Call):
        return _value(node)
    stated = {word.arg: word.value for word in node.keywords}
    inner = stated.get("default", stated.get("default_factory"))
    if isinstance(inner, ast.Lambda):
        inner = inner.body
    return None if inner is None else _value(inner)


def _value(node: ast.expr) -> Any:
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return None
    return value if isinstance(value, (str, int, float, bool, list)) else None


def _adapters(always: list[ast.Call], stated: dict[str, Any]) -> dict[str, Any]:
    """What a script that adapts whatever its options say takes for rank and layers, as options say them."""
    if any(name in stated for name in NAMES["adapters"]) or any(stated.get(name) == 0 for name in NAMES["rank"]):
        return {}
    adapters: dict[str, Any] = {}
    for call in always:
        if _called(call) in _ADAPTS:
            adapters |= {"use_lora": True, **_built(call)}
    return adapters


def _built(call: ast.Call) -> dict[str, Any]:
    """What a call of PEFT's configuration states, as options say it."""
    words = {word.arg: _value(word.value) for word in call.keywords if word.arg in _KEYWORDS}
    return {_KEYWORDS[str(name)]: value for name, value in words.items() if value is not None}


def _unconditional(node: ast.AST) -> Iterator[ast.Call]:
    """Calls that hang on no condition but whether the file is the program itself."""
    if isinstance(node, ast.Call):
        yield node
    if isinstance(node, (ast.If, ast.IfExp)) and "__main__" not in ast.unparse(node.test):
        return
    for child in ast.iter_child_nodes(node):
        yield from _unconditional(child)


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
