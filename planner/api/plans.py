"""Plans from Python: the same questions as ``clusterwright plan`` and ``clusterwright estimate``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, TypedDict, Unpack

from planner import planning
from planner.api import answers, records
from planner.api.entry import entry
from planner.api.records import Machines
from planner.base.errors import WrongQuestion
from planner.question.reading import PlanOptions
from planner.schema.images import ImagePlan
from planner.schema.plan import PlanSet
from planner.schema.workload import Model, Target, Task

Basis = Literal["on-demand", "spot", "reserved-1y", "reserved-3y"]
Objective = Literal["time", "cost", "energy", "tokens-per-dollar"]


class Axes(TypedDict, total=False):
    """Axes of a plan. Several values to try are a list, a text (``"1|2"``) or a range (``"1..8"``)."""

    tp: int | str | Sequence[int]
    pp: int | str | Sequence[int]
    vpp: int | str | Sequence[int]
    cp: int | str | Sequence[int]
    ep: int | str | Sequence[int]
    etp: int | str | Sequence[int]
    cp_algorithm: str
    schedule: str | Sequence[str]
    dp: int | str | Sequence[int]
    micro: int | str | Sequence[int]
    zero: int | str | Sequence[int]
    zero_scope: str
    recompute: str | Sequence[str]
    sequence_parallel: bool | str
    tp_overlap: bool | str
    dp_overlap: bool | str
    p2p_overlap: bool | str
    ep_overlap: bool | str
    rank_order: str
    offload: str
    offload_overlap: bool | str
    activation_offload: str
    graphs: str
    dispatcher: str
    placement: str


@entry
def plan(
    model: str | Path | Model,
    cluster: Machines | Sequence[Machines] = (),
    *,
    fabric: str | None = None,
    region: str | None = None,
    batch: int | str | Sequence[int] | None = None,
    seq: int | str | None = None,
    tokens: float | str | None = None,
    mtp_layers: int = 0,
    imbalance: float | None = None,
    method: str = "pretrain",
    task: Task = "sft",
    lengths: str | Path | Sequence[float] | None = None,
    rank: int | None = None,
    targets: Sequence[Target] | None = None,
    optimizer: str = "adamw",
    runtime: str | None = None,
    precision: str | Sequence[str] | None = None,
    price: float | str | None = None,
    basis: Basis = "on-demand",
    vendor: str | None = None,
    oom_risk: float | str = "5 %",
    waive: str | Sequence[str] = (),
    catalog: str | Path | None = None,
    site: str | Path | None = None,
    accelerators: str | Mapping[str, int] | None = None,
    link: str | Sequence[str] = (),
    pin: str | Sequence[str] | Axes = (),
    objective: Objective = "time",
    noise_scale: float | str | None = None,
    deadline: float | str | None = None,
    max_cost: float | str | None = None,
    launchable: bool = False,
    top: int = 5,
    shortlist: int | None = None,
    to: str | None = None,
    contingency: int | None = None,
    all: bool = False,
    progress: planning.Progress | None = None,
) -> PlanSet:
    """The best ways to train a model on a cluster, best first.

    Args:
        model: An id, a file (TOML, or a Hugging Face ``config.json``), or the record.
        cluster: ``dgx-h100:16``, ``dgx-h100:8..64`` to try several counts, a file, or the record (a node's: one of it);
            several make one job of several pools.
        fabric: Id of the network between nodes.
        region: Id of where it runs.
        batch: Sequences of a step; ``[256, 768]`` or ``"256..1024"`` tries several.
        seq: Tokens per sequence: ``8192`` or ``"8k"``.
        tokens: To train on: ``1e12`` or ``"1T"``.
        mtp_layers: Multi-token prediction modules.
        imbalance: Tokens of the busiest expert-parallel rank over an even share (1.3); even if not given.
        method: What is trained: ``"full"``, ``"lora"``, ``"qlora"``, ``"qlora:fp8"``, ``"dora"``, ``"freeze:4"``, ...
        task: What a fine-tuning learns from: texts, or pairs of answers.
        lengths: Of texts packed into sequences, in tokens; ``"600/2k"`` is their mean and 95th percentile, or a file.
        rank: Of LoRA.
        targets: Matrices with LoRA factors.
        optimizer: Its id.
        runtime: Training framework, ``"megatron-core"`` or with its release behind an ``@``.
        precision: ``"bf16"``, ``"fp8"``, ... or several to choose from.
        price: US dollars per accelerator-hour, or ``"$2.10/h"``.
        basis: Which of the catalog's prices.
        vendor: Whose; the node's own unless said, else the median of current offers of its accelerator.
        oom_risk: Chance of running out of memory that a plan may have: ``0.05`` or ``"5 %"``.
        waive: Names of rules to drop.
        catalog: Folder of your own hardware over the built-in catalog.
        site: Folder of a site: its fitted catalog is used, and plans that it has run are ranked by that.
        accelerators: ``{"A100": 4, "V100": 8}`` or ``"A100:4,V100:8"``, in place of clusters.
        link: Between two pools: ``"a/b=25 Gbit/s"``.
        pin: Axes to hold or bound: ``{"tp": [4, 8], "pp": "1..4"}`` or ``"tp=8,pp=1..4"``.
        objective: What is best.
        noise_scale: Gradient noise scale in sequences.
        deadline: Longest training time: seconds, or ``"30 d"``.
        max_cost: US dollars, or ``"$500k"``.
        launchable: Over several pools, only what a launcher starts as it is.
        top: Plans to return.
        shortlist: In place of `top`, plans to run in turn: the best with other degrees or schedules.
        to: Of a shortlist, the target of :func:`export` that must start them.
        contingency: Nodes, at most, for whose loss the recommended plan gets others to continue with.
        all: Plans that differ in switches only, too.
        progress: Given what is done and how many units of it, a context that yields ``advance(n)``.

    Raises:
        WrongQuestion: a name, a value or a combination that cannot be.
        NoAnswer: no plan fits or keeps the limits; the message says what would.

    >>> best = plan("llama3-8b", "dgx-h100:2", top=1)[0]
    >>> best.parallelism.tp * best.parallelism.pp * best.parallelism.cp * best.parallelism.dp
    16
    """
    if isinstance(model, str) and answers.counts_images(model):
        raise WrongQuestion(f"{model} is a convolutional network: plan_images({model!r}, ...)")
    options = PlanOptions(
        fabric=fabric, region=region, batch=_several(batch), seq=seq, tokens=tokens, mtp_layers=mtp_layers,
        imbalance=imbalance, method=method, task=task, rank=rank, targets=None if targets is None else tuple(targets),
        lengths=records.as_lengths(lengths), optimizer=optimizer, runtime=runtime, precision=_joined(precision),
        price=price, basis=basis, vendor=vendor,
        oom_risk=oom_risk, waive=_texts(waive), catalog=_folder(catalog), site=_folder(site), pin=_texts(pin),
        accelerators=_counted(accelerators), link=_texts(link),
        objective=objective, noise_scale=noise_scale, deadline=deadline, max_cost=max_cost, launchable=launchable,
        top=top, shortlist=shortlist, to=to, contingency=contingency, all=all,
    )  # fmt: skip
    return answers.plan(records.as_model(model), records.as_clusters(cluster), options, progress)


@entry
def estimate(
    model: str | Path | Model,
    cluster: Machines | Sequence[Machines] = (),
    settings: str | Sequence[str] = (),
    *,
    fabric: str | None = None,
    region: str | None = None,
    batch: int | str | None = None,
    seq: int | str | None = None,
    tokens: float | str | None = None,
    mtp_layers: int = 0,
    imbalance: float | None = None,
    method: str = "pretrain",
    task: Task = "sft",
    lengths: str | Path | Sequence[float] | None = None,
    rank: int | None = None,
    targets: Sequence[Target] | None = None,
    optimizer: str = "adamw",
    runtime: str | None = None,
    precision: str | None = None,
    price: float | str | None = None,
    basis: Basis = "on-demand",
    vendor: str | None = None,
    oom_risk: float | str = "5 %",
    waive: str | Sequence[str] = (),
    catalog: str | Path | None = None,
    site: str | Path | None = None,
    accelerators: str | Mapping[str, int] | None = None,
    link: str | Sequence[str] = (),
    **axes: Unpack[Axes],
) -> PlanSet:
    """One configuration as given, whether it fits or not: a set of one plan.

    An axis that is not given is neutral: degrees and micro-batch 1, DP what is left of the accelerators, nothing
    recomputed or offloaded, ZeRO 1, and sequence parallelism with TP and overlap of DP where the runtime has them.
    Overlap of TP and of point-to-point transfers is the faster of on and off.

    Axes are keywords (:class:`Axes` lists them), ``tp=8, pp=4, recompute="full"``, or texts as on the command line,
    ``"tp=8 pp=4"``. Over several pools each group of identical pipelines is a text,
    ``"group=copies=4,dgx-h100:layers=16:tp=2,dgx-v100:layers=16"`` (docs/mixed.md). All else is as in :func:`plan`.

    Raises:
        WrongQuestion: the configuration is not legal; the message says why.

    >>> estimate("llama3-8b", "dgx-h100:1", tp=8, batch=64)[0].parallelism.tp
    8
    """
    options = PlanOptions(
        fabric=fabric, region=region, batch=batch, seq=seq, tokens=tokens, mtp_layers=mtp_layers, method=method,
        task=task, imbalance=imbalance, rank=rank, targets=None if targets is None else tuple(targets),
        lengths=records.as_lengths(lengths), optimizer=optimizer, runtime=runtime, precision=precision, price=price,
        basis=basis, vendor=vendor,
        oom_risk=oom_risk, waive=_texts(waive), catalog=_folder(catalog), site=_folder(site),
        accelerators=_counted(accelerators), link=_texts(link),
    )  # fmt: skip
    given = (*_texts(settings), *_texts(axes))
    return answers.estimate(records.as_model(model), records.as_clusters(cluster), given, options)


@entry
def plan_images(
    model: str,
    cluster: Machines | Sequence[Machines] = (),
    *,
    fabric: str | None = None,
    region: str | None = None,
    batch: int | None = None,
    precision: str | None = None,
    oom_risk: float | str = "5 %",
    accelerators: str | Mapping[str, int] | None = None,
    link: str | Sequence[str] = (),
    catalog: str | Path | None = None,
) -> ImagePlan:
    """The shortest data-parallel step of a convolutional network over one or several pools: images for each.

    `model` is the id of a convolutional network (``resnet50``), `batch` counts images; all else is as in :func:`plan`.

    Raises:
        WrongQuestion: a name or a value that cannot be.
        NoAnswer: the batch does not fit into memory.

    >>> sum(pool.images for pool in plan_images("resnet50", accelerators={"A100": 4, "V100": 4}, batch=256))
    256
    """
    options = PlanOptions(
        fabric=fabric, region=region, batch=batch, precision=precision, oom_risk=oom_risk,
        accelerators=_counted(accelerators), link=_texts(link), catalog=_folder(catalog),
    )  # fmt: skip
    return answers.images(model, records.as_clusters(cluster), options)


def _texts(given: str | Sequence[str] | Axes) -> tuple[str, ...]:
    """One text or several, or axes with their values, as texts."""
    if isinstance(given, Mapping):
        return tuple(f"{axis}={_spelling(value)}" for axis, value in given.items())
    return (given,) if isinstance(given, str) else tuple(given)


def _spelling(value: object) -> str:
    if isinstance(value, list | tuple):
        return "|".join(map(_spelling, value))
    return ("off", "on")[value] if isinstance(value, bool) else str(value)


def _several(given: int | str | Sequence[int] | None) -> int | str | None:
    return given if given is None or isinstance(given, int | str) else _spelling(given)


def _joined(given: str | Sequence[str] | None) -> str | None:
    return given if given is None or isinstance(given, str) else ",".join(given)


def _counted(given: str | Mapping[str, int] | None) -> str | None:
    return ",".join(f"{kind}:{count}" for kind, count in given.items()) if isinstance(given, Mapping) else given


def _folder(given: str | Path | None) -> Path | None:
    return None if given is None else Path(given)
