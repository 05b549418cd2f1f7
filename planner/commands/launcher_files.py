"""``clusterwright export`` and ``import``: plans as the files of launchers, and the way back."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from planner.base.errors import WrongQuestion
from planner.commands import options
from planner.question.document_options import ExportQuestion
from planner.question.rl_options import RLOptions

if TYPE_CHECKING:
    from planner.api.documents import Made
    from planner.api.imported_step import ImportedStep
    from planner.launchers.reading import Present
    from planner.launchers.target import Exporter


@click.command()
@click.argument("file", type=options.PATH, required=False)
@options.declared(ExportQuestion, "to", "output", ("rank", "set"), "cluster", "benchmark", "preflight", "site", "force")
@options.json("Print what was written as JSON.")
def export(file: Path | None, as_json: bool, **asked: Any) -> None:
    """Write the plan or the plans in FILE (or one of an offer) as the files of a launcher.

    Targets chain: a trainer (what runs), an environment (NCCL settings), a scheduler (on which nodes).

    \b
      clusterwright export plan.json --to megatron+slurm
      clusterwright export plan.json --to megatron --rank 2 --set save=/checkpoints
      clusterwright plan llama3-8b --cluster dgx-h100:4 --runtime fsdp2 -o titan.json
      clusterwright export titan.json --to torchtitan
      clusterwright export shortlist.json --to megatron+slurm --benchmark
      clusterwright export plan.json --to megatron+jobset --site my-site
      clusterwright export offer.json --workload base --to megatron+slurm
      clusterwright export plan.json --to astra-sim
      clusterwright export rl.json --to verl
      clusterwright export --to list
    """  # noqa: D301 - click reads the control character itself
    from planner import launchers
    from planner.api import documents, plan_sources
    from planner.catalog import cluster_from_file, load
    from planner.commands.screen import render

    if asked["to"] == "list":
        _list(as_json)
        return
    if file is None:
        raise click.UsageError("Missing argument 'FILE': a plan that clusterwright plan -o FILE wrote.")
    if asked["cluster"] is not None:
        asked["cluster"] = cluster_from_file(asked["cluster"].expanduser(), load())
    given = asked.pop("set")
    question = ExportQuestion(file, **asked)
    made = documents.bundled(question, lambda: _settings(given))
    folder = Path(question.output or plan_sources.folder_for(file.name, question.workload, made.target))
    launchers.write(folder, made.bundles, replace=question.force)
    if as_json:
        render.json(documents.exported(folder, made))
    else:
        _report(folder, made)


def _settings(given: Sequence[str]) -> dict[str, str]:
    from planner.base.errors import WrongQuestion

    found = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals:
            raise WrongQuestion(f"--set {text}: write NAME=VALUE")
        if name in found:
            raise WrongQuestion(f"--set {name}: given twice")
        found[name] = value
    return found


def _report(folder: Path, made: Made) -> None:
    from planner.commands.screen import render

    bundles = made.bundles
    for name, bundle in bundles.items():
        mark = " (recommended)" if name == made.run else ""
        render.labelled("Wrote", f"{folder / name}{mark}: {', '.join(bundle.files)}")
    above = {"": bundles[""]} if "" in bundles else bundles
    where = "in each folder: " if len(above) > 1 else ""
    starts = {name: [f"{where}{bundle.start}"] for name, bundle in above.items()}
    missing = {
        name: [f"<{s.name}>: {s.says} (--set {s.name}=...)" for s in bundle.missing] for name, bundle in bundles.items()
    }
    losses = {name: [f"{loss.called}: {loss.why}" for loss in bundle.losses] for name, bundle in bundles.items()}
    for label, lines in (("Start", starts), ("Fill in", missing), ("Not expressed", losses)):
        render.labelled(label, *_merged(lines))
    render.labelled("Excluded", *made.refused)


def _merged(lines: dict[str, list[str]]) -> list[str]:
    """Every line of any folder once, followed by the folders it holds for unless it holds for all of them."""
    folders: dict[str, list[str]] = {}
    for name, each in lines.items():
        for line in dict.fromkeys(each):
            folders.setdefault(line, []).append(name)
    return [line if len(names) == len(lines) else f"{line} ({', '.join(names)})" for line, names in folders.items()]


def _list(as_json: bool) -> None:
    from planner.commands.screen import render
    from planner.launchers import EXPORTERS
    from planner.launchers.bundle import says

    if as_json:
        targets = {
            name: {
                "title": e.title,
                "version": e.version,
                "role": e.role,
                "level": e.level,
                "expresses": {axis: says(allowed) for axis, allowed in e.expresses.items()},
                "settings": {s.name: s.says for s in e.settings},
            }
            for name, e in EXPORTERS.items()
        }
        render.json({"kind": "export-targets", "schema_version": 1, "targets": targets})
        return
    rows = [(name, e.role, e.version, e.level, e.title, _limits(e)) for name, e in EXPORTERS.items()]
    headers = ("target", "role", "version", "tested", "writes", "limits")
    render.table(headers, rows, align="llllll", priority=("limits", "version", "tested"))
    render.text()
    render.text("astra-sim writes the text workload and network of a simulator; it does not chain.")
    render.text("verl, nemo-rl and trl write a plan of post-training (plan --task grpo); they do not chain.")
    render.text(
        "Chain a trainer, an environment and a scheduler with +: megatron+slurm. --json lists what each expresses."
    )


def _limits(exporter: Exporter) -> str:
    """What a target cannot express, in short: axes that stay at 1, and lists."""
    from planner.launchers.bundle import says

    limited = {axis: allowed for axis, allowed in exporter.expresses.items() if allowed != "any"}
    ones = [axis for axis, allowed in limited.items() if says(allowed) == "1"]
    short = [f"{'/'.join(ones)} 1"] if ones else []
    short += [f"{axis} {says(limited[axis])}" for axis in ("zero", "precision", "family") if axis in limited]
    return "; ".join(short)


TOO_HIGH = "predicted not to fit, and it ran: what is above under Memory is too high here"


@click.command("import", context_settings={"ignore_unknown_options": True})
@click.argument("configuration")
@click.option(
    "--from",
    "source",
    type=click.Choice(
        [
            *("megatron", "torchtitan", "trainer", "deepspeed", "llama-factory", "axolotl", "gpt-neox", "olmo"),
            *("llm-foundry", "torchtune", "nemo", "nanotron", "maxtext", "primus", "litgpt", "litgpt-finetune"),
            *("megatron-bridge", "nemo-2", "olmo-core", "torchtitan-registry", "aws-fsdp"),
            *("xtuner", "fms-fsdp", "openrlhf", "openrlhf-flat", "verl-sft", "verl-sft-engine", "nemo-rl-sft"),
            *("verl", "nemo-rl", "trl", "openrlhf-rl"),
        ]
    ),
    help="What the configuration is for, where it does not show.",
)
@click.option("--cluster", multiple=True, metavar="NODE[:COUNT]", help="Where it runs: dgx-h100:16.")
@click.option(
    "--accelerators", metavar="KIND[:N]", help="Or on what: A100-80GB:16. Without a count as many as it starts ranks."
)
@click.option("--model", metavar="ID", help="Model, where the configuration does not state its shape.")
@click.option("--seq", type=int, metavar="N", help="Tokens per sequence, where it does not state it.")
@click.option("--batch", metavar="N", help="Global batch in sequences, where it does not state it.")
@click.option("--micro", type=int, metavar="N", help="Sequences of a forward pass, where it does not state it.")
@click.option("--tokens", metavar="N", help="Tokens to train on, e.g. 1T.")
@click.option("--precision", metavar="P", help="Precision, where it does not state it.")
@click.option("--recompute", metavar="POLICY", help="none, selective or full, where it does not state it.")
@options.declared(RLOptions, "prompt_length", "response")
@click.option("--run-script", is_flag=True, help="Run the script in a sandbox and read what it starts (Linux).")
@click.option("--arg", "arguments", multiple=True, metavar="WORD", help="Argument that the script is started with.")
@click.option("--env", "variables", multiple=True, metavar="NAME=VALUE", help="Variable that the script finds set.")
@click.option(
    "--ignore", "ignored", multiple=True, metavar="OPTION", help="Option, or key of a file, that is left out."
)
@click.option(
    "--file",
    "files",
    multiple=True,
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File that the configuration names (DeepSpeed's, Accelerate's), or that belongs to it.",
)
@click.option("--ran", is_flag=True, help="The job ran so: that it is predicted not to fit is a warning.")
@click.option("--json", "as_json", is_flag=True, help="Print the plan instead of the report.")
@options.output("Write the plan to a file.")
def import_(
    configuration: str, source: str | None, cluster: tuple[str, ...], as_json: bool, output: Path | None, **asked: Any
) -> int:
    """Read CONFIGURATION into a plan with predictions: a command line, a script with one, or a trainer's own file.

    Read are commands of Megatron-LM, Megatron-DeepSpeed, ms-swift, torchtitan and Hugging Face's Trainer (TRL,
    DeepSpeed-Chat), DeepSpeed's JSON, and the files of TRL, LLaMA-Factory, Axolotl, GPT-NeoX, OLMo, llm-foundry,
    torchtune, LitGPT, xtuner until 0.2, NeMo 1, nanotron, MaxText, Primus and torchtitan until 0.2; supervised
    fine-tuning of verl, NeMo-RL and OpenRLHF; of post-training verl's command or YAML, NeMo-RL's recipe and TRL's GRPO,
    whose step is priced as estimate --task does.

    A command line is one word, in quotes. A script is read, not run: where it leaves open what it starts, --run-script
    runs it without network, rights or files of yours but its own folder. Exits with 1 if the plan does not fit.

    \b
      clusterwright import train.sh --from megatron --cluster dgx-h100:16 -o mine.json
      clusterwright import ds_config.json --from deepspeed --model llama3-8b --cluster dgx-a100-80gb:4
      clusterwright import run_grpo.sh --response 1k --cluster dgx-h100:1
      clusterwright compare mine.json best.json
    """  # noqa: D301 - click reads the control character itself
    from planner.api import imported_step
    from planner.commands.screen import plan_view, render
    from planner.launchers import reading
    from planner.launchers.reading import trainers_of_rl, wrappers

    recompute = asked.pop("recompute")
    pinned = {} if recompute is None else {"recompute": recompute}
    variables = dict(map(_variable, asked.pop("variables")))
    ignored = frozenset(name.lstrip("-") for name in asked.pop("ignored"))
    files = asked.pop("files")
    ran = asked.pop("ran")
    started = reading.Started(asked.pop("arguments"), variables, asked.pop("run_script"), ignored, files)
    context = click.get_current_context()
    lengths = {name: asked.pop(name) for name in ("response", "prompt_length")}
    lengths = {n: v for n, v in lengths.items() if context.get_parameter_source(n) is not ParameterSource.DEFAULT}
    with wrappers.opened(configuration, started) as (command, inside, _):
        trainer = source if source in trainers_of_rl.SOURCES else None
        trainer = trainers_of_rl.detected(command) if source is None else trainer
        if trainer is not None:
            step = imported_step.imported(trainer, command, cluster, inside, {**asked, **pinned, **lengths})
            return _deliver_step(step, as_json, output, ran)
    found = reading.plan(source, configuration, cluster, pinned=pinned, started=started, **asked)
    for name in lengths:  # after what could not be read at all
        raise WrongQuestion(f"--{name.replace('_', '-')}: for configurations of post-training only")
    plan_view.deliver(found.plans, as_json=as_json, output=output)
    if not as_json:
        render.labelled("Read as", _read_as(found))
        render.labelled("Assumes", *found.assumed)
        render.labelled("Differs", *found.differs)
        if found.unread:
            render.labelled("Ignored", f"{', '.join(found.unread)}: a plan has no field for these")
        if ran and not found.plans.search.feasible:
            render.labelled("Warning", TOO_HIGH)
    return 0 if ran or found.plans.search.feasible else 1


def _deliver_step(step: ImportedStep, as_json: bool, output: Path | None, ran: bool) -> int:
    """Shows a stated step of post-training, and what of its configuration that does not show."""
    from planner.commands.screen import render, rl_view

    rl_view.deliver(step.answer, as_json=as_json, output=output, verbose=False)
    if not as_json:
        render.labelled("Read as", f"{step.source}: {step.settings}")
        render.labelled("Assumes", *step.assumed)
        render.labelled("Differs", *step.differs)
        if ran and not step.answer.fits:
            render.labelled("Warning", TOO_HIGH)
    return 0 if ran or step.answer.fits else 1


def _read_as(found: Present) -> str:
    """What every import states: the reader, the vocabulary, the ranks, the optimizer, the batch."""
    (whole,) = found.plans.plans[:1]
    shape, batch = whole.workload.shape, whole.batch
    vocabulary = f"vocabulary {shape['vocab']:,}, " if shape.get("vocab") else ""
    return (
        f"{found.source}: {vocabulary}{whole.cluster.accelerators:,} ranks, {whole.workload.optimizer['id']}, "
        f"{batch.micro} x {batch.accumulation} sequences a rank and step"
    )


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not re.fullmatch(r"[A-Za-z_]\w*", name):
        raise WrongQuestion(f"--env {text:.40}: NAME=VALUE is expected")
    return name, value
