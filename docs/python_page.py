"""The functions' part of ``docs/python.md``: every signature as it is, with its docstring."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

PAGE = Path(__file__).resolve().parent / "python.md"
FUNCTIONS = re.compile(r"(<!-- functions -->\n)(.*?)(<!-- end -->\n)", re.DOTALL)
ORDER = (
    *(
        "plan",
        "fit",
        "estimate",
        "evaluate_many",
        "procure",
        "design",
        "compare",
        "explain",
        "export",
        "validate",
        "calibrate",
        "learn",
        "load",
    ),
    *("page", "plan_images", "cluster", "node", "accelerator", "model"),
)


def filled(page: str) -> str:
    """The page with the functions as they are today."""
    import clusterwright

    sections = "\n".join(_section(name, getattr(clusterwright, name)) for name in ORDER)
    return FUNCTIONS.sub(lambda found: f"{found[1]}\n{sections}\n{found[3]}", page)


def _section(name: str, function: object) -> str:
    assert callable(function)
    return f"### `{name}`\n\n```python\n{_signature(name, inspect.signature(function))}\n```\n\n{_said(function)}"


def _signature(name: str, signature: inspect.Signature) -> str:
    """One line, or a line for each parameter where that is too long."""
    end = f") -> {signature.return_annotation}"
    texts, starred = [], False
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            texts, starred = [*texts, "*"], True
        default = "" if parameter.default is parameter.empty else f" = {parameter.default!r}"
        star = "**" if parameter.kind is parameter.VAR_KEYWORD else ""
        texts.append(f"{star}{parameter.name}: {parameter.annotation}{default}")
    line = f"{name}({', '.join(texts)}{end}"
    return line if len(line) <= 100 else "\n".join([f"{name}(", *(f"    {text}," for text in texts), end])


def _said(function: object) -> str:
    """A docstring as Markdown: sections become lists, references plain code."""
    text = re.sub(r":\w+:`~?(?:[\w.]+\.)?(\w+)`", r"`\1`", inspect.getdoc(function) or "").replace("``", "`")
    text = re.sub(r"\n(Args|Raises):\n", r"\n**\1**\n\n", text)
    text = re.sub(r"^    (\w+): ", r"- `\1`: ", text, flags=re.MULTILINE)
    text = re.sub(r"^        (?=\S)", "  ", text, flags=re.MULTILINE)
    return re.sub(r"((?:^>>> .*\n?(?:(?!>>> |\n).*\n?)*)+)", r"```python\n\1\n```\n", text, flags=re.MULTILINE)
