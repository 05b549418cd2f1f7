"""Questions about training a model on a cluster, each as the one record that declares its keywords and flags."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from planner.question.axis_keywords import GivenAxes
from planner.question.option import Option
from planner.schema.choices import METHODS, Basis, Objective, RLTask, Target, Task

if TYPE_CHECKING:
    from planner.question.axis_keywords import Axes
    from planner.question.given import Machines, Progress
    from planner.schema.workload import Model

CLUSTER = Option(
    "Nodes to train on: dgx-h100:16, dgx-h100:8..64 to try several counts (every one of up to 16; of more,"
    " multiples or doublings of the first), or your own FILE.toml. Repeat it for one job over heterogeneous pools;"
    " NODE:COUNT@ZONE gives a pool's zone.",
    "``dgx-h100:16``, ``dgx-h100:8..64`` to try several counts, a file, or the record (a node's: one of it);"
    " several make one job of several pools.",
    metavar="NODE:COUNT",
    complete="nodes",
)
BATCH = Option(
    "Sequences a step, or a range to try (default: the model's; fine-tuning 16).",
    'Sequences of a step; ``[256, 768]`` or ``"256..1024"`` tries several.',
    metavar="N|A..B",
)
METHOD = Option(
    "What is trained: all (pretrain, full), adapters over frozen weights of 16 bit (lora, dora), 4 (qlora, qdora) or 8"
    " (qlora:int8, qlora:fp8), or the last N blocks (freeze:N).",
    'What is trained: ``"full"``, ``"lora"``, ``"qlora"``, ``"qlora:fp8"``, ``"dora"``, ``"freeze:4"``, ...',
    metavar="NAME",
    complete=METHODS,
)
TASK = Option(
    "What a fine-tuning learns from: texts (sft), pairs of answers (dpo; reward, a model of scores), or its own"
    " responses (grpo, ppo, rloo: rollout and training together).",
    "What a fine-tuning learns from: texts, or pairs of answers (its own responses: :func:`plan_rl`).",
)
LENGTHS = Option(
    "Tokens of a fine-tuning's texts, packed: mean and 95th percentile (600/2k), or a file of them.",
    'Of texts packed into sequences, in tokens; ``"600/2k"`` is their mean and 95th percentile, or a file.',
    metavar="MEAN/P95|FILE",
)
EXAMPLES = Option(
    "Texts to train on, of --lengths, in place of --tokens: 20k (default with --epochs: those of the file).",
    'Texts to train on, of `lengths`, in place of `tokens`: ``20_000`` or ``"20k"``.',
    metavar="N",
)
EPOCHS = Option("How often each text is seen (default with --examples: once).", "How often each text is seen.")
RANK = Option("LoRA rank.", "Of LoRA.", metavar="R")
OPTIMIZER = Option(
    "Optimizer: adamw, muon, adam-8bit, paged-adamw, paged-adam-8bit, adafactor, sgd-momentum, sgd.",
    "Its id.",
    metavar="ID",
    complete="optimizers",
)
PRECISION = Option(
    "bf16, fp16, fp8, mxfp8, mxfp4, nvfp4, fp8-delayed or -blockwise, or several: bf16,fp8 (default: 16 bit).",
    '``"bf16"``, ``"fp8"``, ... or several to choose from.',
    metavar="P",
)
SITE = Option(
    "Your site: its profile, its measured runs and what was fitted to them (or CLUSTERWRIGHT_SITE).",
    "Folder of a site: its fitted catalog is used, and plans that it has run are ranked by that.",
    metavar="DIR",
)
CATALOG = Option(
    "Your own hardware, added to the built-in catalog.",
    "Folder of your own hardware over the built-in catalog.",
    metavar="DIR",
)

MeasuredTime = float | str | Path | Mapping[str, float]
"""What a step took: seconds, a text, a training log; of post-training seconds of its phases."""

# A field is a few lines: its name and type, the flag's help, what the keyword is said to be, all else.
# fmt: off


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What every question about a model and a cluster may say beside these two. Amounts are SI numbers, or text with
    a unit.
    """

    fabric: Annotated[str | None, Option("Network between nodes (default: the node's usual one).",
        "Id of the network between nodes.", metavar="ID", complete="fabrics")] = None
    region: Annotated[str | None, Option("Region for electricity prices and carbon intensity (default: us).",
        "Id of where it runs.", metavar="ID", complete="regions")] = None
    batch: Annotated[int | str | Sequence[int] | None, BATCH] = None
    seq: Annotated[int | str | None, Option(
        "Tokens per sequence: 8192 or 8k (default: the model's; fine-tuning 4k).",
        'Tokens per sequence: ``8192`` or ``"8k"``.', metavar="N")] = None
    tokens: Annotated[float | str | None, Option(
        "Tokens to train on, e.g. 1T, padding of packed texts included (default: the model's; fine-tuning 10M).",
        'To train on: ``1e12`` or ``"1T"``.', metavar="N")] = None
    mtp_layers: Annotated[int, Option(
        "Multi-token prediction modules trained with the model (DeepSeek-V3's recipe: 1).",
        "Multi-token prediction modules.", metavar="N")] = 0
    imbalance: Annotated[float | None, Option(
        "Tokens of the busiest expert-parallel rank over an even share: 1.3 (default: even).",
        "Tokens of the busiest expert-parallel rank over an even share (1.3); even if not given.", metavar="X")] = None
    method: Annotated[str, METHOD] = "pretrain"
    task: Annotated[Task | RLTask, TASK] = "sft"
    lengths: Annotated[str | Path | Sequence[float] | None, LENGTHS] = None
    examples: Annotated[int | str | None, EXAMPLES] = None
    epochs: Annotated[float | None, EPOCHS] = None
    rank: Annotated[int | None, RANK] = None
    targets: Annotated[Sequence[Target] | None, Option(says="Matrices with LoRA factors.")] = None
    optimizer: Annotated[str, OPTIMIZER] = "adamw"
    runtime: Annotated[str | None, Option(
        "Training framework (default: megatron-core; of adapters hf-trainer-liger; newest).",
        'Training framework, ``"megatron-core"`` or with its release behind an ``@``.', metavar="ID[@RELEASE]",
        complete="runtimes")] = None
    precision: Annotated[str | Sequence[str] | None, PRECISION] = None
    price: Annotated[float | str | None, Option(
        "Price per accelerator-hour: 2.10 or '$2.10/h'.",
        'US dollars per accelerator-hour, or ``"$2.10/h"``.', metavar="USD/H")] = None
    basis: Annotated[Basis, Option(
        "Which of the catalog's prices to use.", "Which of the catalog's prices.")] = "on-demand"
    vendor: Annotated[str | None, Option(
        "Whose price (default: the node's own, else the median of all).",
        "Whose; the node's own unless said, else the median of current offers of its accelerator.",
        metavar="NAME")] = None
    oom_risk: Annotated[float | str, Option(
        "Highest OOM probability that a plan may have; at 50 % the median prediction must just fit.",
        'Chance of running out of memory that a plan may have: ``0.05`` or ``"5 %"``.', metavar="SHARE")] = "5 %"
    waive: Annotated[str | Sequence[str], Option(
        "Drop a rule: tp_in_domain, context_chunk, ...",
        "Names of rules to drop.", metavar="RULE")] = ()
    catalog: Annotated[str | Path | None, CATALOG] = None
    site: Annotated[str | Path | None, SITE] = None
    accelerators: Annotated[str | Mapping[str, int] | None, Option(
        "Accelerators of several types: A100:4,V100:4,RTX6000:8.",
        '``{"A100": 4, "V100": 8}`` or ``"A100:4,V100:8"``, in place of clusters.', metavar="KIND:N,..")] = None
    link: Annotated[str | Sequence[str], Option(
        "Link between two pools: 'a/b=25 Gbit/s'.",
        'Between two pools: ``"a/b=25 Gbit/s"``.', metavar="A/B=RATE")] = ()


@dataclass(frozen=True, kw_only=True)
class PlanOptions(Setting):
    """Everything that a search may be told beside its model and its cluster."""

    pin: Annotated[str | Sequence[str] | Axes, Option(
        "Fix or bound axes: tp=8,pp=4..16.",
        'Axes to hold or bound: ``{"tp": [4, 8], "pp": "1..4"}`` or ``"tp=8,pp=1..4"``.', metavar="AXIS=VALUE",
        complete="axes")] = ()
    objective: Annotated[Objective, Option("What to optimise.", "What is best.")] = "time"
    noise_scale: Annotated[float | str | None, Option(
        "Gradient noise scale, or critical batch size, in sequences: choose the batch in --batch A..B with the best"
        " goodput (statistical efficiency x throughput).",
        "Gradient noise scale in sequences.", metavar="N")] = None
    deadline: Annotated[float | str | None, Option(
        "Longest training time, e.g. '30 d'.",
        'Longest training time: seconds, or ``"30 d"``.', metavar="TIME", flags=("--deadline", "--within"))] = None
    max_cost: Annotated[float | str | None, Option(
        "Highest training cost, e.g. '$500k'.",
        'US dollars, or ``"$500k"``.', metavar="USD", flags=("--max-cost", "--budget"))] = None
    launchable: Annotated[bool | None, Option(
        "Over several pools, only identical pipelines that fill their nodes, as launchers start them, or any. By"
        " default what a launcher starts comes first, and a line says what any would gain.",
        "Over several pools, only what a launcher starts (True), any pipelines (False), or what a launcher starts"
        " where anything is, with the gain of others (None).", flags=("--launchable/--any-pipelines",))] = None
    top: Annotated[int, Option("Number of plans to list.", "Plans to return.", metavar="K")] = 5
    shortlist: Annotated[int | None, Option(
        "Only plans to run in turn: the best with other degrees or schedules (export --benchmark writes their runs).",
        "In place of `top`, plans to run in turn: the best with other degrees or schedules.", metavar="N")] = None
    to: Annotated[str | None, Option(
        "Of a shortlist, only plans that this target of export starts.",
        "Of a shortlist, the target of :func:`export` that must start them.", metavar="TARGET",
        complete="targets")] = None
    contingency: Annotated[int | None, Option(
        "Also the plans that the recommended one continues with when 1 to K nodes are lost.",
        "Nodes, at most, for whose loss the recommended plan gets others to continue with.", metavar="K")] = None
    all: Annotated[bool, Option(
        "Also list plans that differ only in switches.",
        "Plans that differ in switches only, too.")] = False


def as_options(record: Any) -> PlanOptions:
    """What another question says in common with a search."""
    names = [field.name for field in fields(PlanOptions) if hasattr(record, field.name)]
    return PlanOptions(**{name: getattr(record, name) for name in names})


@dataclass(frozen=True)
class PlanQuestion(PlanOptions):
    """``clusterwright plan`` and :func:`planner.plan`."""

    model: Annotated[str | Path | Model, Option(
        says="An id, a file (TOML, or a Hugging Face ``config.json``), or the record.")]
    cluster: Annotated[Machines | Sequence[Machines], CLUSTER] = ()
    _: KW_ONLY
    progress: Annotated[Progress | None, Option(
        says="Given what is done and how many units of it, a context that yields ``advance(n)``.")] = None


@dataclass(frozen=True)
class EstimateQuestion(GivenAxes, Setting):
    """``clusterwright estimate`` and :func:`planner.estimate`."""

    model: str | Path | Model
    cluster: Machines | Sequence[Machines] = ()
    settings: str | Sequence[str] = ()
    _: KW_ONLY
    batch: int | str | None = None
    precision: str | None = None
    measured: Annotated[float | str | Path | Mapping[str, float] | None, Option(
        "What a step of yours took, 12.3s or a training log: is it normal, and what would explain it? With --task grpo,"
        " ppo, rloo: generation=120,update=40,step=230, or a log of verl or NeMo-RL.",
        'What a step took: seconds, ``"12.3s"`` or a training log; `measured` of the answer: is it normal?',
        metavar="TIME|LOG|PHASE=S,..", flags=("--measured", "--step-time"))] = None


@dataclass(frozen=True)
class EvaluateQuestion(Setting):
    """:func:`planner.evaluate_many`: many configurations, each as :class:`EstimateQuestion` has one."""

    model: str | Path | Model
    cluster: Machines | Sequence[Machines]
    configurations: Sequence[str | Axes]
    _: KW_ONLY
    batch: int | str | None = None
    precision: str | None = None


@dataclass(frozen=True)
class ImagesQuestion:
    """:func:`planner.plan_images`, a search of another kind with flags of ``clusterwright plan``."""

    model: str
    cluster: Machines | Sequence[Machines] = ()
    _: KW_ONLY
    fabric: str | None = None
    region: str | None = None
    batch: int | None = None
    precision: str | None = None
    oom_risk: float | str = Setting.oom_risk
    accelerators: str | Mapping[str, int] | None = None
    link: str | Sequence[str] = ()
    catalog: str | Path | None = None


@dataclass(frozen=True)
class FitQuestion:
    """``clusterwright fit`` and :func:`planner.fit`."""

    model: Annotated[str | Path | Model | None, Option(
        says="What is trained: an id, a file or the record; without it, the models of the library are tried.")] = None
    on: Annotated[str | None, Option(
        "Accelerators to fit on: RTX-4090:2; without it, all of the catalog.",
        'Accelerators to fit on, ``"RTX-4090:2"``; without it, those of the catalog are tried.', metavar="KIND:N",
        complete="accelerators")] = None
    _: KW_ONLY
    method: Annotated[str, Option(
        METHOD.help,
        "What of the model is trained.", metavar=METHOD.metavar, complete=METHODS)] = "qlora"
    task: Annotated[Task | RLTask, Option(
        TASK.help, "What it learns from: texts, or pairs of answers (its own responses: :func:`fit_rl`).")] = "sft"
    lengths: Annotated[str | Path | Sequence[float] | None, LENGTHS] = None
    seq: Annotated[int | str | None, Option(
        "Tokens per sequence (default: 4k; with --on, the longest that fit).",
        'Tokens per sequence: ``4096`` or ``"4k"``; with `on`, the longest are found where nothing is said.',
        metavar="N")] = None
    batch: Annotated[int | None, Option(
        "Sequences of a step (default: 16, or the next multiple).",
        "Sequences of a step; 16 unless said, or the next multiple of the accelerators.", metavar="N")] = None
    tokens: Annotated[float | str | None, Option(
        "Tokens to train on (default: 10M).",
        'To train on: ``1e7`` or ``"10M"``; 10 M unless said.', metavar="N")] = None
    examples: Annotated[int | str | None, EXAMPLES] = None
    epochs: Annotated[float | None, EPOCHS] = None
    rank: Annotated[int | None, RANK] = None
    optimizer: Annotated[str, OPTIMIZER] = "adamw"
    runtime: Annotated[str | None, Option(
        "Training framework (default: the method's).",
        "Training framework.", metavar="ID[@RELEASE]", complete="runtimes")] = None
    precision: Annotated[str | None, Option(
        "bf16, fp16, fp8, ... (default: 16 bit).",
        '``"bf16"``, ``"fp16"``, ...', metavar="P")] = None
    oom_risk: Annotated[float | str, Option(
        "Highest OOM probability.",
        "Chance of running out of memory that is accepted.", metavar="SHARE")] = Setting.oom_risk
    most: Annotated[int | None, Option(
        "Accelerators tried together (default: 8; of post-training 256).",
        "Accelerators of one kind that are tried together; 8 unless said.", metavar="N", range=(1, 65536))] = None
    top: Annotated[int, Option("Models to list (--on).", "Models to list.", metavar="K")] = 10
    catalog: Annotated[str | Path | None, Option(
        "Your own hardware, added to the catalog.",
        CATALOG.says, metavar="DIR")] = None
    site: Annotated[str | Path | None, SITE] = None
    progress: Annotated[Progress | None, Option(
        says="Given what is done and how many units of it, a context that yields ``advance(n)``.")] = None
