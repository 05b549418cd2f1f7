"""Primus, AMD's trainer: Megatron-LM's arguments as an experiment in YAML, which ``primus-cli`` starts on every node.

Read in AMD-AGI/Primus fd1eeabb and its Megatron-LM d3528a21. What an experiment overrides are arguments by the names
that Megatron's parser keeps them under, of their own types, for no word passes the parser
(backends/megatron/argument_builder.py). They stand over Primus's own defaults (configs/modules/megatron,
configs/models/megatron), of which those are set back that would train otherwise than ``pretrain_gpt.py`` does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from planner.launchers import checks, megatron, megatron_hybrid, plan_facts, quoting
from planner.launchers.target import LaunchJob, Loss, Shell, Values, by_table
from planner.schema.launcher_table import launcher_table
from planner.schema.plan import Plan

NAME = "primus.yaml"
GROUP, USER = "amd", "root"
"""Folders under the workspace, called as in Primus's examples."""
TABLE = launcher_table("primus")
SET_BACK: dict[str, Any] = dict(sorted({"dataloader_type": None, **TABLE.head["set_back"]}.items()))
"""Argument -> what Megatron's parser has by default and Primus has not: ``finetune`` would begin every start anew."""
KEPT_AS: dict[str, str] = TABLE.head["kept_as"]
"""Option -> the name of its value where that is another; after ``no_`` what is switched off."""
SCHEDULES: dict[str, str] = TABLE.head["schedules"]
"""Schedule -> ``pp_algorithm`` (configs/modules/megatron/primus_pipeline.yaml)."""
MXFP4: dict[str, str] = TABLE.head["mxfp4"]


def emit(plan: Plan, job: LaunchJob, values: Values) -> LaunchJob:
    """``primus-cli direct`` with the experiment; its hooks look for relative paths in their own folder."""
    job = checks.with_check(plan, job, "megatron", "primus", program="primus.cli.main")
    options, each = overrides(plan, values), plan_facts.per_node(plan)
    cluster = {"NNODES": str(plan_facts.nodes(plan)), "MASTER_PORT": values["master-port"]}
    cluster |= {"GPUS_PER_NODE": str(each)} if each else {}
    unlike = () if each else ("--env", Shell("GPUS_PER_NODE=$NPROC_PER_NODE"))
    train = ("--", "train", "pretrain", "--config", Shell(f"$PWD/{NAME}"))
    return replace(
        job,
        command=(values["primus-cli"], "direct", "--script", Shell(f"$PWD/{checks.NAME}"), *unlike, *train),
        options=options,
        environment={
            **megatron.performance(plan),
            **job.environment,
            **cluster,
            **megatron.environment(plan),
            **plan.env,
        },
        files={**job.files, NAME: _experiment(plan, values["save"], options)},
        needed=(*job.needed, NAME),
    )


def _experiment(plan: Plan, workspace: str, options: dict[str, Any]) -> str:
    trainer = {"framework": "megatron", "config": "pre_trainer.yaml", "model": "language_model.yaml"}
    whole = {
        "work_group": GROUP,
        "user_name": USER,
        "exp_name": quoting.slug(plan.workload.model),
        "workspace": workspace,
        "modules": {"pre_trainer": {**trainer, "overrides": options}},
    }
    return quoting.yaml(whole)


def overrides(plan: Plan, values: Values) -> dict[str, Any]:
    """Argument -> value of all that the plan says, and what Primus would have otherwise."""
    four_bit, schedule = plan.precision == "mxfp4", SCHEDULES.get(plan.parallelism.schedule)
    plain = replace(plan, precision="bf16") if four_bit else plan
    found = {**SET_BACK, **dict(_as_kept(megatron.arguments(plain, values))), **(MXFP4 if four_bit else {})}
    for name in ("exit_signal", "exit_signal_handler"):
        found.pop(name, None)  # a number of signal.Signals there, which YAML has no word for; the minutes are enough
    # With data_path alone its hooks would fetch a corpus of their own and train on that.
    found["train_data_path"] = found.pop("data_path")
    # Wherever it is told to save, it does so here (backends/megatron/patches/args/checkpoint_path_patches.py).
    found["load"] = found["save"] = "/".join(
        (values["save"].rstrip("/"), GROUP, USER, quoting.slug(plan.workload.model), "checkpoints")
    )
    return found | ({"patch_primus_pipeline": True, "pp_algorithm": schedule} if schedule else {})


def _as_kept(argv: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """Options of a command line as the parser would keep them."""
    starts = [at for at, word in enumerate(argv) if word.startswith("--") and word[2:3].isalpha()]
    for at, end in zip(starts, [*starts[1:], len(argv)], strict=True):
        option, words = argv[at][2:].replace("-", "_"), argv[at + 1 : end]
        name = KEPT_AS.get(option, option)
        if not words:
            yield name.removeprefix("no_"), not name.startswith("no_")
            continue
        found = [word if option in TABLE.head["texts"] else _typed(option, word) for word in words]
        yield name, found if len(found) > 1 or option in TABLE.head["lists"] else found[0]


def _typed(option: str, word: str) -> Any:
    """A number, a pair, a layer's flags one by one (only ``moe_layer_freq`` is read as it is), or a text."""
    if option == "window_size":
        return [int(n) for n in word.strip("()").split(",")]
    if option == "window_attn_skip_freq":
        return [int(flag) for flag, times in re.findall(r"\[(\d)\]\*(\d+)", word) for _ in range(int(times))]
    try:
        return float(word) if "." in word or "e-" in word else int(word)
    except ValueError:
        return word


def measured(plan: Plan, job: LaunchJob, steps: int) -> LaunchJob:
    """The job with so many steps on mock data, nothing saved; a token of its own is added to the vocabulary."""
    short: dict[str, Any] = {
        **{"mock_data": True, "tokenizer_type": "NullTokenizer", "vocab_size": int(plan.workload.shape["vocab"]) - 1},
        **dict.fromkeys(("train_data_path", "tokenizer_model", "save", "load", "pretrained_checkpoint")),
        **{"train_iters": steps, "log_interval": 1, "log_throughput": True},
    }
    options = {**job.options, **short}
    return replace(job, options=options, files={**job.files, NAME: _experiment(plan, "output", options)})


def refuses(plan: Plan) -> Iterator[str]:
    """What Megatron refuses, accelerators of others, and hybrids, which it starts in another way."""
    yield from plan_facts.runs_on(plan, "amd")
    if megatron_hybrid.is_one(plan.workload.shape):
        yield from plan_facts.blocks_are_attention(plan.workload.shape)
    yield from megatron.refuses(plan)


def loses(plan: Plan) -> Iterator[Loss]:
    """What Megatron's arguments lose."""
    yield from (loss for loss in plan_facts.other_runtime(plan, ("primus",)) if loss.field == "runtime")
    yield from (loss for loss in megatron.loses(plan) if loss.field not in ("runtime", "dispatcher"))


EXPORTER = by_table("primus", emit=emit, refuses=refuses, loses=loses)
