"""The training command among those that a script may start, and its options."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from planner.base.errors import WrongQuestion
from planner.launchers import checks
from planner.launchers.reading.found_options import Options
from planner.launchers.reading.shell import counts
from planner.launchers.reading.shell.assignments import UNSEEN
from planner.launchers.reading.shell.expansion import holds_options, open_variable
from planner.launchers.reading.shell.script import Branches, Script, Words
from planner.launchers.reading.shell.slurm_variables import PLACES, SPREADS

_LAUNCHERS = ("torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch", "deepspeed")
"""Modules behind ``-m`` that start the training program rather than being it."""
_PER_NODE = ("nproc_per_node", "nproc-per-node", "num_gpus", "gpus-per-node")
_NODES = ("nnodes", "num_nodes")
_WHOLE = ("num_processes",)
_SETTING = re.compile(rf"({'|'.join(PLACES)}|{SPREADS.pattern})=")
"""A variable that is set for a command."""
_TASKS = ("-np", "-n", "--np", "--ntasks")
"""How ``mpirun`` and ``srun`` count processes."""
_WORDS_OF_ANOTHER = re.compile(r"\$\([^(].*\)|`.*`", re.DOTALL)
"""A word that another command writes, whole."""
_OF_ADDRESSES = re.compile(r"MASTER_|.*(_RANK|_KEY|_TOKEN|_ID|_ADDR|_PORT)$")
"""Variables that say where a job runs, or who runs it."""


@dataclass(frozen=True, slots=True)
class TrainingCommand:
    """A training command.

    Attributes:
        program: File or module that trains, where it is named.
        words: The arguments of the program.
        options: Of the training program: name without dashes -> its values; the last of several holds.
        launcher: Options in front of the program.
        starter: The command itself: torchrun, python, deepspeed, ...
        ranks: Processes that it starts, where it says so.
        seen: Accelerators that it sees on a node, where it says so.
        spreads: Accelerate's variables that are set for it.
        assumed: What the script leaves to others, and what was taken.
    """

    program: str
    words: Words
    options: Options
    launcher: Options
    starter: str = ""
    ranks: int | None = None
    seen: int | None = None
    spreads: Mapping[str, str] = field(default_factory=dict)
    assumed: tuple[str, ...] = ()


def command(
    script: Script,
    known: Collection[str],
    trains: Collection[str] = (),
    whole: Callable[[Words], bool] = lambda words: False,
) -> TrainingCommand | None:
    """The command with one of the `known` options; None where there is none.

    Args:
        script: What may be started.
        known: Options without dashes.
        trains: Those that only a training has: beside a command with one, others do not count.
        whole: Whether a command counts whatever its options are.

    Raises:
        WrongQuestion: several that differ in such an option, or one with a variable that the script does not set
            where such an option has its value or where options may stand.
    """
    found: list[Words] = []
    for way in script.ways:
        found += [
            words
            for words in way
            if words not in found and (whole(words) or _names(_arguments(words)[1]).intersection(known))
        ]
    found = [words for words in found if whole(words) or _names(_arguments(words)[1]).intersection(trains)] or found
    if not found:
        return None
    read = [_without(options(_arguments(words)[1], known), script.ignored) for words in found]
    files = [_of_its_file(_arguments(words)[1]) if whole(words) else {} for words in found]
    _refuse_several([{**inner, **stated} for inner, stated in zip(files, read, strict=True)], known)
    ranks = {started_ranks(words) or visible(words) for words in found}
    first = without_settings(found[0])
    launcher, arguments = _arguments(first)
    started = _unchecked(first) if any(map(_is_check, first)) else first
    program = started[len(launcher)] if launcher or len(arguments) < len(started) else ""
    return TrainingCommand(
        program=program,
        words=arguments,
        options=read[0],
        launcher=options(launcher, ()),
        starter=first[0].rpartition("/")[2],
        ranks=ranks.pop() if len(ranks) == 1 else None,
        seen=_seen(found[0]),
        spreads={name: text for name, _, text in (word.partition("=") for word in found[0]) if SPREADS.fullmatch(name)},
        assumed=tuple(assumed(script)),
    )


def file_of(words: Words) -> str | None:
    """The configuration that stands first among a program's arguments."""
    first = next((word for word in words if word.startswith("--") or word.endswith((".yaml", ".yml", ".json"))), "")
    return first if not first.startswith("--") and first else None


def pairs(words: Words) -> dict[str, str]:
    """What ``key=value`` behind a configuration's name says."""
    stated = (word.partition("=") for word in words if re.fullmatch(r"[a-z]\w*=.*", word))
    return {key: text for key, _, text in stated}


def _of_its_file(words: Words) -> Options:
    """A configuration's name and what leads over it, as options."""
    named = file_of(words)
    inner = {name: [text] for name, text in pairs(words).items()}
    return {**inner, **({"config": [named]} if named else {})}


def without_settings(words: Words) -> Words:
    """A command without the variables that are set for it alone."""
    return tuple(word for word in words if not _SETTING.match(word)) or words


def _without(found: Options, ignored: Collection[str]) -> Options:
    return {name: values for name, values in found.items() if name not in ignored}


def _refuse_several(read: Sequence[Options], known: Collection[str]) -> None:
    first, *others = read
    for other in others:
        differ = sorted(
            name for name in known if first.get(name) != other.get(name) and not _a_path(name, first, other)
        )
        if differ:
            one, two = (_written(differ[0], each) for each in (first, other))
            more = f" (and in {', '.join(f'--{name}' for name in differ[1:4])})" if differ[1:] else ""
            raise Branches(
                f"the script may start commands with {one} and with {two}{more}: set the variable that decides in the "
                "script, or read what it starts with --run-script"
            )


def _a_path(name: str, first: Options, other: Options) -> bool:
    """Whether two commands differ in what they begin from alone: nothing there yet, a checkpoint, a model's step."""
    if name == "model_name_or_path" and first.get(name) and other.get(name):
        steps = re.compile(r"[-_](intermediate|step|checkpoint|global|iter)\b.*")
        return steps.sub("", first[name][0]) == steps.sub("", other[name][0])
    return name == "finetune" or (name == "pretrained-checkpoint" and name in first and name in other)


def _written(name: str, found: Options) -> str:
    return " ".join([f"--{name}", *found[name]])[:60] if name in found else f"no --{name}"


def assumed(script: Script) -> Iterator[str]:
    """What a script leaves to others, a sentence each."""
    taken = {
        name: text
        for name, text in script.defaults.items()
        if re.fullmatch(r"[\w.+-]{1,40}", text)
        and re.fullmatch(r"[A-Za-z_]\w*", name)
        and not _OF_ADDRESSES.match(name)
    }
    counted = [f"{kind} {script.defaults[kind]}" for kind in (counts.NODE, counts.NODES) if kind in script.defaults]
    if counted:
        yield f"counted by the script: {', '.join(counted)}, those of --cluster"
    if taken:
        yield f"the script's own defaults: {', '.join(f'{name} {text}' for name, text in taken.items())}"
    if script.ignored:
        yield f"left out as asked: {', '.join(f'--{name}' for name in sorted(script.ignored))}"
    if script.went_on:
        yield "a check of what it is started with ends the script: read as if it had passed (--arg and --env say more)"
    for name in script.unread:
        yield f"{name:.80}: the script reads it in its midst, and it was not read (--run-script does)"


def _arguments(words: Words) -> tuple[Words, Words]:
    """(the launcher's words, the training program's) of a command; behind ``--`` a program starts another."""
    started = next((at for at, word in enumerate(words) if word == "--"), len(words))
    if any(word.endswith(".py") for word in words[started:]):
        before, inner = _arguments(words[started + 1 :])
        return (*words[: started + 1], *before), inner
    if any(_is_check(word) for word in words):
        return _arguments(_unchecked(words))
    for place, word in enumerate(words):
        module = place and words[place - 1] == "-m" and word not in _LAUNCHERS
        if module or word.endswith(".py"):
            return words[:place], words[place + 1 :]
    return (), words


def _is_check(word: str) -> bool:
    return word.rpartition("/")[2] == checks.NAME


def _unchecked(words: Words) -> Words:
    """A command of an exported job without the check that starts its program, which is a file or a module."""
    at = next(place for place, word in enumerate(words) if _is_check(word))
    module = not "".join(words[at + 1 : at + 2]).endswith(".py")
    return (*words[:at], *(("-m",) if module else ()), *words[at + 1 :])


def _names(words: Sequence[str]) -> set[str]:
    return {word[2:].partition("=")[0] for word in words if word.startswith("--")}


def options(words: Sequence[str], known: Collection[str]) -> Options:
    """``--name value ...`` and ``--name=value`` as a mapping; words before the first option are left out.

    Raises:
        WrongQuestion: a variable that is not set in the script, where one of the `known` options has its value or
            where options may stand.
    """
    found: Options = {}
    name = None
    for word in words:
        if known and holds_options(word):
            variable = re.sub(r"\W|\[.*", "", word)
            raise WrongQuestion(
                f"{word}: the text does not set it; --env {variable}='...' does (empty where it is), "
                "or read what it starts (--run-script)"
            )
        if known and _holds_others(word, takes=name is not None and not found[name]):
            raise Branches(f"{word:.60}: options may stand in it; write them, or run the script (--run-script)")
        if word.startswith("--") and len(word) > 2:
            name, equals, value = word[2:].partition("=")
            found[name] = [value] if equals else []
        elif name is not None:
            found[name].append(word)
    for name in found.keys() & set(known):
        left = next((value for value in found[name] if open_variable(value)), None)
        if left is not None:
            place = re.search(r"\$\{?\d", left)
            named = re.search(r"\$\{?([A-Za-z_]\w*)", left)
            how = "--arg WORD for each argument of the script" if place else "write the value"
            how = f"--env {named[1]}=VALUE" if named and not place else how
            kind = Branches if UNSEEN in left else WrongQuestion
            raise kind(
                f"--{name} {left:.60}: its value is not in the text; {how}, or read what the script starts "
                "(--run-script)"
            )
    return found


def refuse_open(words: Sequence[str]) -> None:
    """Refuses words of their own in which options may stand that the text has not; ``$@`` is nothing unless given.

    Raises:
        WrongQuestion: a variable that the script does not set.
        Branches: what another command writes, or a file of options.
    """
    for word in words:
        if (variable := re.fullmatch(r"\$\{?([A-Za-z_]\w*)(\[[@*]\])?\}?", word)) is not None:
            raise WrongQuestion(
                f"{word:.60}: the text does not set it; --env {variable[1]}='...' does (empty where it is), or read "
                "what it starts (--run-script)"
            )
        if _holds_others(word, takes=False):
            raise Branches(f"{word:.60}: options may stand in it; write them, or run the script (--run-script)")


def _holds_others(word: str, *, takes: bool) -> bool:
    """Whether options may stand in a word: a file of them, what another command writes, a dash of a text program.

    Args:
        word: As the script has it.
        takes: Whether it may be the value of the option before it.
    """
    return word.startswith(("@", "\u2013", "\u2014")) or (not takes and bool(_WORDS_OF_ANOTHER.fullmatch(word)))


def visible(words: Words) -> int | None:
    """Processes by the variables before a command that counts none itself: ms-swift's, or the accelerators it sees."""
    variables = {name: value for name, _, value in (word.partition("=") for word in words if _SETTING.match(word))}
    if re.fullmatch(r"[1-9]\d{0,5}", variables.get("NPROC_PER_NODE", "")):
        nodes = variables.get("NNODES", "1")
        return int(variables["NPROC_PER_NODE"]) * int(nodes) if re.fullmatch(r"[1-9]\d{0,5}", nodes) else None
    alone = any(re.search(r"(^|/)(swift|llm_sft\.py)$|^--nnodes", word) for word in words)  # ms-swift: one process
    return None if alone else _seen(words)


def _seen(words: Words) -> int | None:
    """Accelerators that a command sees on a node, by DeepSpeed's ``--include`` or CUDA's variable."""
    included = next((word.partition("localhost:")[2] for word in words if "localhost:" in word), "")
    visible = next((word.partition("=")[2] for word in words if word.startswith("CUDA_VISIBLE_DEVICES=")), "")
    listed = included or visible
    return len(listed.strip(",").split(",")) if re.fullmatch(r"\d+(,\d+)*,?", listed) else None


def started_ranks(words: Words) -> int | None:
    """Processes that a command starts, where it says so."""
    before = _arguments(words)[0] or words
    counted = (count for flag, count in pairwise(before) if flag in _TASKS and count.isdigit())
    return _ranks(options(before, ())) or next((int(count) for count in counted), None)


def _ranks(launcher: Mapping[str, Sequence[str]]) -> int | None:
    def stated(names: Sequence[str]) -> int | None:
        values = [launcher[name][0] for name in names if launcher.get(name)]
        return int(values[0]) if values and re.fullmatch(r"[1-9]\d{0,6}", values[0]) else None

    if "gpus" in launcher and "num_nodes" in launcher:  # open-instruct's mason.py, which counts the others anew
        per_node = stated(("gpus",))
        machines = stated(("num_nodes",))
        return None if per_node is None or machines is None else per_node * machines
    if (whole := stated(_WHOLE)) is not None:
        return whole
    each = stated(_PER_NODE)
    nodes = stated(_NODES) if any(name in launcher for name in _NODES) else 1
    return None if each is None or nodes is None else each * nodes
