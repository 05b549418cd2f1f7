"""What stands around a training command: jobs of Kubernetes, SkyPilot, dstack, Azure ML and MosaicML, notebooks, pages
with code. The command is read as a script; nodes and accelerators are taken from around it.
"""

from __future__ import annotations

import json
import re
import shlex
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from planner.base.errors import WrongQuestion
from planner.launchers.reading import python_program
from planner.launchers.reading.job_files import READERS, TRAINS, Wrapped, documents_of, mappings, training
from planner.launchers.reading.started import Started, text_of

_TEMPLATE = re.compile(r"\{\{-?\s*(if|else|end|range|with|include|define|template|for|endif|endfor|block|set)\b|\{%")
_FENCE = re.compile(r"^[ \t]*(```+|~~~+)[ \t]*(bash|sh|shell|console|zsh|cmd|text)?[ \t]*\n(.*?)^[ \t]*\1", re.M | re.S)


def wrapped(text: str, name: str, environment: Mapping[str, str]) -> Wrapped | None:
    """What a file holds if it is none of a trainer or a shell, by its text and its name.

    Raises:
        WrongQuestion: a template that has to be filled first, or no command that trains in it.
    """
    if name.endswith((".md", ".rst", ".markdown")):
        blocks = [re.sub(r"^\$ ", "", match[3], flags=re.M) for match in _FENCE.finditer(text)]
        return Wrapped("a page", training(blocks))
    if re.search(r"(^|/)(GNUm|M|m)akefile$|\.mk$", name):
        raise WrongQuestion("a Makefile: make -n TARGET > job.sh writes the commands of a target out; read that")
    if re.match(r"\s*\{", text) and '"cells"' in text:
        return _notebook(text)
    if not re.search(r"^[ \t]*[\w$\"]+:", text, re.M) or re.match(r"#!", text):
        return None
    if re.search(r"^(apiVersion|kind):", text, re.M) and _TEMPLATE.search(text):
        raise WrongQuestion(
            f"{name or 'this'}: a template, no job; write it out first (helm template CHART > job.yaml)"
        )
    if not re.search(r"^(apiVersion|run|commands|command|setup):", text, re.M):
        return None
    documents = documents_of(
        re.sub(r"(?<!\$)\{\{-?\s*\.?([\w.]+)[^{}]*\}\}", lambda m: f"${{{m[1].replace('.', '_')}}}", text)
    )
    return next((job for reader in READERS if (job := reader(documents, environment)) is not None), None)


def _notebook(text: str) -> Wrapped | None:
    """Cells that start a command (``!torchrun ...``, ``%%bash``); what Python sets in others fills ``{name}``."""
    try:
        cells = json.loads(text)["cells"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    scripts: list[str] = []
    python: list[str] = []
    files: dict[str, str] = {}
    for cell in mappings(cells):
        source = cell.get("source", "")
        lines = "".join(map(str, source)) if isinstance(source, list) else str(source)
        if cell.get("cell_type") != "code":
            continue
        if lines.startswith("%%writefile -a"):
            python.append(f"# {lines.partition(chr(10))[0]}")
        elif match := re.match(r"%%writefile\s+(\S+)\n", lines):
            files[Path(match[1]).name] = lines[match.end() :]
        elif re.match(r"%%(bash|sh|script)", lines):
            scripts.append(_filled(lines.partition("\n")[2], python, whole=True))
        else:
            for line in re.sub(r"\\\n", " ", lines).splitlines():
                if re.match(r"\s*!", line):
                    scripts.append(_filled(line.strip().lstrip("!"), python))
                elif not re.match(r"\s*%(?!env\s)", line):
                    python.append(re.sub(r"^%env\s+(\w+)[= ](.*)", r"import os; os.environ['\1'] = '\2'", line))
    whole = "\n".join((*scripts, *python))
    touches = r"(\bsed\s+-i|>|\b(?:tee|mv|cp|open|write_text)\b|%%writefile\s+-a)"
    changed = [name for name in files if re.search(rf"{touches}[^\n]*{re.escape(name)}", whole)]
    return Wrapped("a notebook", training(scripts), files={name: files[name] for name in files if name not in changed})


def _filled(script: str, python: list[str], *, whole: bool = False) -> str:
    """A command with what the cells before it set: variables of the environment and, but in a `whole` script, names."""
    program = python_program.Program()
    try:
        names = program.module("\n".join(python)).names
    except WrongQuestion:
        names = {}
    values = {key: str(value) for key, value in names.items() if not whole and isinstance(value, str | int | float)}
    filled = re.sub(r"(?<!\$)\{(\w+)\}|\$(\w+)\b", lambda m: values.get(m[1] or m[2], m[0].replace("{", "${")), script)
    before = [
        f"export {key}={shlex.quote(str(value))}"
        for key, value in program.environment.items()
        if isinstance(value, str)
    ]
    return "\n".join([*before, filled])


# ---- the command ---------------------------------------------------------------------------------------------------


@contextmanager
def opened(text: str, started: Started) -> Iterator[tuple[str, Started, Wrapped | None]]:
    """A configuration with its command in place of what stands around it, and how that is started.

    Args:
        text: The configuration, or the name of its file.
        started: How it is started; of several commands ``--arg N`` takes the N-th.

    Raises:
        WrongQuestion: it holds no command that trains, or several.
    """
    job = wrapped(text_of(text), text if len(text) < 4096 else "", started.environment)
    if job is None:
        yield text, started, None
        return
    scripts = job.scripts
    if not scripts:
        raise WrongQuestion(f"{job.kind}: no command in it that is known to train")
    chosen = next((int(word) for word in started.arguments if re.fullmatch(r"[1-9]\d?", word)), None)
    if chosen is not None and chosen <= len(scripts):
        scripts = scripts[chosen - 1 : chosen]
        started = replace(started, arguments=[word for word in started.arguments if word != str(chosen)])
    if len(scripts) > 1 and not job.kind.startswith("Kubernetes"):
        starts = "; ".join(f"{at}: {TRAINS.search(script)[2]}" for at, script in enumerate(scripts[:9], 1))  # type: ignore[index]
        raise WrongQuestion(f"{job.kind} with {len(scripts)} commands that train ({starts}); --arg 1 takes the first")
    folder = Path(text).absolute().parent if len(text) < 4096 and Path(text).is_file() else Path()
    with tempfile.TemporaryDirectory() as top:
        paths = []
        for name, content in job.files.items():
            if re.fullmatch(r"[\w.-]+", name) and name.strip(".") and any(name in script for script in scripts):
                paths.append(Path(top) / name)
                paths[-1].write_text(content, encoding="utf-8")
        environment = {**job.environment, **started.environment}
        files = (*started.files, *paths)
        yield "\n".join(scripts), replace(started, environment=environment, files=files, folder=folder), job
