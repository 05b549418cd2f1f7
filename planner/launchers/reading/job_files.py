"""Jobs of Kubernetes, SkyPilot, dstack, Azure ML and MosaicML: their commands, machines and variables."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from planner.base.errors import WrongQuestion
from planner.launchers.reading.found_options import FoundOptions
from planner.launchers.reading.trainer_dialects import MOST_VALUES, written_out

_GPUS = re.compile(r"(nvidia\.com/gpu|amd\.com/gpu|google\.com/tpu|habana\.ai/gaudi|gpu\.intel\.com/\w+)")
_COUNTS = ("replicas", "parallelism", "numNodes")
"""Keys of Kubernetes' objects that multiply the pods inside of them."""
TRAINS = re.compile(
    r"^(?!.*\b(pip|git|wget|curl|conda|apt|cd)\s).*\b(torchrun|accelerate\s+launch|deepspeed\s+-?\S+|composer\s|axolotl\s+train|"
    r"llamafactory-cli\s+train|swift\s+(sft|pt|rlhf)|xtuner\s+train|tune\s+run|litgpt\s+(pre|fine)\w+|trl\s+(sft|dpo|grpo)|"
    r"python3?\s+-m\s+(torch\.distributed|[\w.]{0,99}(train|ppo|sft|cli))[\w.]{0,99}|pretrain_\w+\.py|"
    r"\b\w{0,99}(train|finetune|sft|grpo|dpo)\w{0,99}\.py)\b(?!:)",
    re.MULTILINE,
)
"""Beginnings of commands that train."""


@dataclass(frozen=True, slots=True)
class Wrapped:
    """A command and what stands around it.

    Attributes:
        kind: What the file is.
        scripts: Shell scripts that may hold the command, one of which counts.
        nodes: Machines, where it says so.
        accelerators: On each machine, where it says so.
        environment: Variables that it sets.
        files: Name -> text of files that it holds.
    """

    kind: str
    scripts: tuple[str, ...]
    nodes: int | None = None
    accelerators: int | None = None
    named: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)

    def says(self, options: FoundOptions) -> FoundOptions:
        """Options of the command with the machines around it."""
        many = "" if self.nodes is None else f"{self.nodes} node{'s' * (self.nodes != 1)}"
        per_node = "" if self.accelerators is None else f"{self.accelerators} x {self.named or 'accelerators'}"
        machines = " of ".join(part for part in (many, per_node) if part)
        ranks = options.ranks
        if ranks is None and self.accelerators is not None:
            ranks = (self.nodes or 1) * self.accelerators
        note = f"{self.kind}: its command was read{f'; it asks for {machines}' if machines else ''}"
        return replace(options, ranks=ranks, assumed=[note, *options.assumed])


def training(scripts: Sequence[str], *, only: bool = False) -> tuple[str, ...]:
    """Scripts that train; of a job (`only`) all, if none looks so."""
    trains = tuple(dict.fromkeys(script for script in scripts if TRAINS.search(script)))
    return trains or (tuple(dict.fromkeys(filter(None, scripts))) if only else ())


def documents_of(text: str) -> list[dict[str, Any]]:
    """The mappings of a YAML; none where it is no YAML.

    Raises:
        WrongQuestion: its aliases make it grow without end.
    """
    import yaml

    try:
        values = list(yaml.safe_load_all(text))
        if "*" in text and written_out(values, {}) > MOST_VALUES:
            raise WrongQuestion(f"YAML whose aliases (*name) write out to more than {MOST_VALUES:,} values")
    except (yaml.YAMLError, RecursionError, ValueError):
        return []
    return [part for part in values if isinstance(part, dict)]


def _number(value: Any, environment: Mapping[str, str]) -> int | None:
    """A count, a variable put in; None where it says none."""
    text = re.sub(r"\$\{?(\w+)(?::-?=?(\w*))?\}?", lambda m: environment.get(m[1], m[2] or m[0]), str(value))
    return int(text) if re.fullmatch(r"\d{1,6}", text.strip()) else None


def joined(words: Sequence[Any]) -> str:
    """Words as a command line whose variables are still put in."""
    texts = [str(word) for word in words]
    return " ".join(
        '"' + re.sub(r'(["`])', r"\\\1", word) + '"' if "$" in word else shlex.quote(word) for word in texts
    )


def _kubernetes(documents: Sequence[dict[str, Any]], environment: Mapping[str, str]) -> Wrapped | None:
    objects = [part for document in documents for part in ([document, *mappings(document.get("items"))])]
    if not any("apiVersion" in part and "kind" in part for part in objects):
        return None
    files = {
        str(key): str(text)
        for part in objects
        if part.get("kind") == "ConfigMap"
        for key, text in (part.get("data") or {}).items()
    }
    jobs = [part for part in objects if part.get("kind") not in ("ConfigMap", "Secret", "Service")]
    pods = [pod for job in jobs for pod in _pods(job, 1, environment)]
    scripts: list[str] = []
    nodes: list[tuple[int | None, int | None]] = []
    processes = next((many for job in jobs if (many := _number(_inside(job, "nprocPerNode"), environment))), None)
    for count, container in pods:
        names = {str(part.get("name")): part.get("value") for part in mappings(container.get("env"))}
        resources = container.get("resources") or container.get("resourcesPerNode") or {}
        asked = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
        gpus = next((_number(value, environment) for key, value in asked.items() if _GPUS.fullmatch(str(key))), None)
        if any(_GPUS.fullmatch(str(key)) for key in asked):
            nodes.append((count, gpus if gpus is not None else _number(container.get("numProcPerNode"), environment)))
        stated = {name: str(value) for name, value in names.items() if value is not None and name not in environment}
        exports = "".join(
            f'export {name}="{value}"\n' if "$" in value else f"export {name}={shlex.quote(value)}\n"
            for name, value in stated.items()
        )
        if script := _command(container, names):
            scripts.append(exports + _with_files(script, files))
    kinds = list(dict.fromkeys(str(job.get("kind")) for job in jobs))
    sizes = {gpus for _, gpus in nodes}
    known = len(sizes) == 1 and all(count is not None for count, _ in nodes)
    total = sum(count or 0 for count, _ in nodes) if known else None
    gpus = processes if processes is not None else next(iter(sizes)) if len(sizes) == 1 else None
    given = {"WORLD_SIZE": total, "PET_NNODES": total, "PET_NPROC_PER_NODE": gpus}
    variables = {name: str(value) for name, value in given.items() if value is not None}
    return Wrapped(
        f"Kubernetes {', '.join(kinds)}", training(scripts, only=True), total, gpus, "GPUs", variables, files
    )


def _inside(node: Any, name: str) -> Any:
    """The value of a key anywhere inside of an object."""
    parts = [*node.values()] if isinstance(node, dict) else node if isinstance(node, list) else []
    if isinstance(node, dict) and name in node:
        return node[name]
    return next((value for part in parts if (value := _inside(part, name)) is not None), None)


def _pods(node: Any, count: int | None, environment: Mapping[str, str]) -> Iterator[tuple[int | None, dict[str, Any]]]:
    """(how many, container) of all pods inside of an object."""
    if isinstance(node, list):
        for part in node:
            yield from _pods(part, count, environment)
    if not isinstance(node, dict):
        return
    for key in _COUNTS:
        if key in node:
            many = _number(node[key], environment)
            count = None if many is None or count is None else count * many
    group = node.get("leaderWorkerTemplate")
    if isinstance(group, dict):  # a leader and size - 1 workers, the leader as the workers where it has no template
        size = _number(group.get("size", 1), environment)
        led = "leaderTemplate" in group
        yield from _pods(group.get("leaderTemplate"), count, environment)
        workers = None if size is None or count is None else count * (size - led)
        yield from _pods(group.get("workerTemplate"), workers, environment)
        return
    entry = node.get("entrypoint")  # of a RayJob
    if isinstance(entry, str):
        yield 0, {"command": ["bash", "-c", entry]}
    if isinstance(node.get("trainer"), dict) and {"command", "args", "numNodes"} & node["trainer"].keys():
        many = _number(node["trainer"].get("numNodes", 1), environment)
        yield many, node["trainer"]
        return
    for key, part in node.items():
        if key == "containers" or (key == "container" and isinstance(part, dict)):
            yield from ((count, container) for container in mappings(part if isinstance(part, list) else [part]))
        elif key != "initContainers":
            yield from _pods(part, count, environment)


def mappings(value: Any) -> list[dict[str, Any]]:
    """The mappings of a list."""
    return [part for part in value if isinstance(part, dict)] if isinstance(value, list) else []


def _command(container: Mapping[str, Any], names: Mapping[str, Any]) -> str:
    """A container's command as a script; ``$(NAME)`` is Kubernetes' way to write a variable that is set."""
    parts = [container.get("command") or [], container.get("args") or []]
    words = [str(word) for part in parts for word in (part if isinstance(part, list) else [part])]
    words = [re.sub(r"\$\((\w+)\)", lambda m: f"${{{m[1]}}}" if m[1] in names else m[0], word) for word in words]
    shell = next((at for at, word in enumerate(words[:3]) if re.fullmatch(r"-\w*c", word)), None)
    if shell is not None and shell + 1 < len(words):
        return words[shell + 1]
    return words[0] if len(words) == 1 else joined(words)


def _with_files(script: str, files: Mapping[str, str]) -> str:
    """A script with those that it starts in the place of their names, as functions."""
    for at, (name, text) in enumerate(files.items()):
        start = rf"(?:\b(?:ba|z)?sh\s+(?:-\w+\s+)*|\bsource\s+|(?<!\S)\.\s+|(?<!\S))(?:\S*/)?{re.escape(name)}(?!\S)"
        if name.endswith(".sh") and re.search(start, script):
            script = f"file_{at}() {{\n{text}\n}}\n" + re.sub(start, f"file_{at}", script)
    return script


def _variables(value: Any) -> dict[str, str]:
    """Variables of a mapping, or of a list of ``NAME=value``."""
    if isinstance(value, list):
        value = dict(str(part).partition("=")[::2] for part in value if "=" in str(part))
    return {str(key): str(text) for key, text in (value or {}).items() if text is not None}


def _gpus(value: Any, environment: Mapping[str, str]) -> tuple[str, int | None]:
    """(name, count) of ``A100:8``, ``{A100: 8}``, ``{name: A100, count: 8}``, or the first of a list."""
    if isinstance(value, list | set):
        value = next(iter(value), "")
    if isinstance(value, dict) and "count" in value:
        return str(value.get("name", "")), _number(value["count"], environment)
    if isinstance(value, dict):
        value = ":".join(map(str, next(iter(value.items()), ("", ""))))
    parts = [part for part in str(value or "").split(":") if part]
    counts = [part for part in parts if re.fullmatch(r"\d{1,3}", part)]
    names = [part for part in parts if not re.fullmatch(r"\d{1,3}|\d+GB.*", part)]
    return "".join(names[:1]), int(counts[0]) if counts else 1 if names else None


def _skypilot(documents: Sequence[dict[str, Any]], environment: Mapping[str, str]) -> Wrapped | None:
    tasks = [part for part in documents if isinstance(part.get("run"), str)]
    task = tasks[0] if tasks else None
    if task is None or not {"resources", "num_nodes", "setup", "workdir"} & task.keys():
        return None
    resources = task.get("resources") or {}
    resources = resources if isinstance(resources, dict) else {}
    choices = resources.get("any_of") or resources.get("ordered") or [{}]
    stated = resources.get("accelerators")
    kinds = stated if isinstance(stated, list | dict) and len(stated) > 1 else []
    kinds = [{key: stated[key]} for key in kinds] if isinstance(stated, dict) else kinds
    offers = [_gpus(part, environment) for part in kinds] or [
        _gpus(stated or choice.get("accelerators"), environment) for choice in choices
    ]
    name = " or ".join(dict.fromkeys(name for name, _ in offers))
    gpus = offers[0][1] if len({many for _, many in offers}) == 1 else None
    nodes = _number(task.get("num_nodes", 1), environment)
    given = {"SKYPILOT_NUM_NODES": nodes, "SKYPILOT_NUM_GPUS_PER_NODE": gpus}
    variables = {key: str(value) for key, value in given.items() if value is not None} | {"SKYPILOT_NODE_RANK": "0"}
    variables |= _variables(task.get("envs"))
    # How its documentation counts the nodes.
    counted = r"[$`]\(?\s*echo \"?\$SKYPILOT_NODE_IPS\"? \| wc -l\s*[)`]"
    runs = [re.sub(counted, str(nodes), part["run"]) for part in tasks]
    return Wrapped("a SkyPilot task", training(runs, only=True), nodes, gpus, name, variables)


def _dstack(documents: Sequence[dict[str, Any]], environment: Mapping[str, str]) -> Wrapped | None:
    task = next((part for part in documents if isinstance(part.get("commands"), list)), None)
    if task is None or "type" not in task:
        return None
    name, gpus = _gpus((task.get("resources") or {}).get("gpu"), environment)
    nodes = _number(task.get("nodes", 1), environment)
    given = {"DSTACK_NODES_NUM": nodes, "DSTACK_GPUS_PER_NODE": gpus}
    given |= {"DSTACK_GPUS_NUM": nodes * gpus} if nodes and gpus else {}
    variables = {key: str(value) for key, value in given.items() if value is not None} | {"DSTACK_NODE_RANK": "0"}
    script = "\n".join(map(str, task["commands"]))
    return Wrapped(
        "a dstack task", training([script], only=True), nodes, gpus, name, variables | _variables(task.get("env"))
    )


def _of_command(documents: Sequence[dict[str, Any]], environment: Mapping[str, str]) -> Wrapped | None:
    """Azure ML's jobs and MosaicML's runs, whose top says ``command``."""
    job = next((part for part in documents if isinstance(part.get("command"), str)), None)
    if (
        job is None
        or "parameters" in job
        or not {"compute", "image", "environment", "$schema", "resources"} & job.keys()
    ):
        return None
    inputs = {key: value.get("default", value.get("path", "")) if isinstance(value, dict) else value
              for key, value in (job.get("inputs") or {}).items()}  # fmt: skip
    command = re.sub(
        r"\$\{\{\s*inputs\.(\w+)\s*\}\}", lambda m: shlex.quote(str(inputs.get(m[1], m[1]))), job["command"]
    )
    command = re.sub(r"\$\{\{\s*outputs\.(\w+)\s*\}\}", r"\1", command)
    machines = job.get("resources") or {}
    nodes = _number(machines.get("instance_count", 1), environment)
    gpus = _number((job.get("distribution") or {}).get("process_count_per_instance"), environment)
    compute = job.get("compute") if isinstance(job.get("compute"), dict) else {}
    if (whole := _number((compute or {}).get("gpus"), environment)) is not None:
        nodes = None
        gpus = whole
    name = str((compute or {}).get("gpu_type", ""))
    return Wrapped(
        "a job's file", training([command], only=True), nodes, gpus, name, _variables(job.get("environment_variables"))
    )


READERS: Sequence[Callable[[Sequence[dict[str, Any]], Mapping[str, str]], Wrapped | None]] = (
    _kubernetes, _skypilot, _dstack, _of_command,
)  # fmt: skip
