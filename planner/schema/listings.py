"""What ``--json`` prints of fits, models, the catalog and written files. SI units, US dollars."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from planner.schema.efficiency import AcceleratorEfficiency, CollectiveEfficiency, FabricEfficiency, RuntimeEfficiency
from planner.schema.hardware import Accelerator, Fabric, Node, Region, Runtime
from planner.schema.plan_prediction import PriceUsed
from planner.schema.record import Record
from planner.schema.reports import FittingPlan
from planner.schema.workload import ConvolutionNetwork, Model, Recommender

From = Annotated[str, Field(alias="from")]
"""``built-in``, or the file of one's own."""


class FittingTraining(Record):
    """One training that fits: what, on what, how long it takes and what it costs. SI units, US dollars."""

    model: str
    parameters: int
    sequence: int
    """Tokens per sequence: as asked, or the most that fit."""
    batch: int
    """Sequences of a step."""
    accelerator: str
    accelerators: int
    node: str
    """The catalog's node that they are taken from."""
    memory_bytes: float
    """Bytes on the fullest accelerator ..."""
    capacity_bytes: float
    """... of so many."""
    oom_chance: float | None
    step_time_s: float
    tokens_per_s: float
    tokens: float
    """To train on ..."""
    hours: float
    """... which takes so long."""
    usd: float | None
    """Rent for these; None: no current offer in the catalog."""
    price: PriceUsed | None = None
    """What the rent was computed from, for an hour of a node with these."""
    best: tuple[str, ...] = ()
    """What it is of all that were tried: fewest, cheapest, fastest."""
    hours_low: float | None = None
    """80 % interval of the hours, from the step's, from here ..."""
    hours_high: float | None = None
    """... to here."""

    def row(self) -> dict[str, Any]:
        """A row of a table: what fits on what, how long it takes and what it costs."""
        columns = {"sequence": "seq_tokens", "batch": "batch_sequences", "capacity_bytes": "memory_capacity_bytes"}
        other = ("hours", "hours_low", "hours_high", "usd", "price", "best")
        figures = {columns.get(name, name): value for name, value in vars(self).items() if name not in other}
        return {**figures, "days": self.hours / 24, "usd": self.usd, "best": ", ".join(self.best)}


class Fits(Record):
    """What fits where (``fit --json``)."""

    kind: Literal["fit"] = "fit"
    schema_version: Literal[1] = 1
    fits: tuple[FittingTraining, ...]


class EvaluatedConfiguration(Record):
    """Figures of one configuration as given, or why it has none (``evaluate_many``). SI units, US dollars."""

    configuration: str
    """As asked."""
    reason: str | None = None
    """Why there are no figures."""
    fits: bool = False
    """Whether it keeps within the memory at the OOM probability that is accepted."""
    step_time_s: float | None = None
    step_time_low_s: float | None = None
    """80 % interval from here ..."""
    step_time_high_s: float | None = None
    """... to here."""
    tokens_per_s: float | None = None
    mfu: float | None = None
    memory_bytes: float | None = None
    """Bytes on the fullest accelerator ..."""
    memory_capacity_bytes: float | None = None
    """... of so many."""
    oom_chance: float | None = None
    days: float | None = None
    """For all tokens, with what interruptions and checkpoints take."""
    usd: float | None = None
    """For these days; None: no price is known."""


# ---- models ----------------------------------------------------------------------------------------------------------


class ListedModel(Record):
    """A model of the list."""

    id: str
    name: str
    family: str
    parameters: int
    active_parameters: int
    """That one token or sample meets."""
    sample: str
    """What it learns from at a time, in words."""
    origin: From


class ModelList(Record):
    """Every model that is known (``models list --json``)."""

    kind: Literal["model-list"] = "model-list"
    schema_version: Literal[1] = 1
    models: tuple[ListedModel, ...]


class ShownTransformer(Model):
    """A transformer's own fields, counts and work (``models show --json``)."""

    kind: Literal["model"] = "model"
    schema_version: Literal[1] = 1
    parameters: dict[str, int]
    """In total, active, and by part."""
    training_flops_per_token: float
    state_bytes: dict[str, dict[str, float]]
    """Method -> weights, gradients, optimizer and together."""


class ShownNetwork(ConvolutionNetwork):
    """A convolutional network's own fields, counts and work (``models show --json``)."""

    kind: Literal["model"] = "model"
    schema_version: Literal[1] = 1
    family: Literal["cnn"] = "cnn"
    sample: str
    """What it learns from at a time, in words."""
    parameters: dict[str, int]
    """In total, active, and by part."""
    training_flops_per_sample: float


class ShownRecommender(Recommender):
    """A recommender's own fields, counts and work (``models show --json``)."""

    kind: Literal["model"] = "model"
    schema_version: Literal[1] = 1
    family: Literal["dlrm"] = "dlrm"
    sample: str
    """What it learns from at a time, in words."""
    parameters: dict[str, int]
    """In total, active, and by part."""
    training_flops_per_sample: float
    memory_bytes: dict[str, int]
    """Bytes of its tables, and of the optimizer's state for them."""


ShownModel = ShownTransformer | ShownNetwork | ShownRecommender


class LayerCollective(Record):
    """What the ranks of a group exchange."""

    kind: Literal["all-reduce", "gather-scatter", "all-to-all"]
    group: str
    bytes: float
    seconds: float


class LayerPass(Record):
    """One pass of a layer."""

    flops: float
    bytes: float
    """That kernels read and write."""
    seconds: float
    bound: Literal["compute", "memory", "-"]
    """What its time is spent on; ``-`` where it takes none."""
    collective: LayerCollective | None


class ModelLayer(Record):
    """A layer, or layers that are alike."""

    name: str
    count: float
    """How often it stands in the model."""
    forward: LayerPass
    input_gradient: LayerPass
    weight_gradient: LayerPass


class LayerTotals(Record):
    """Sums over all layers."""

    flops: float
    bytes: float
    forward_s: float
    input_gradient_s: float
    weight_gradient_s: float
    collectives_s: float
    """One after the other."""


class ModelLayers(Record):
    """A model layer by layer, of one micro-batch on one rank (``models layers --json``)."""

    kind: Literal["model-layers"] = "model-layers"
    schema_version: Literal[1] = 1
    model: str
    family: str
    unit: str
    """What a micro-batch is counted in."""
    node: str
    precision: str
    tp: int
    ep: int
    etp: int
    dp: int
    micro: int
    sequence: int | None
    """Tokens per sequence; null: the model's own."""
    sequence_parallel: bool
    attention_kernel: str
    """Asked for in place of the runtime's choice; none: that."""
    tables: str
    """How a recommender's tables are sharded."""
    layers: tuple[ModelLayer, ...]
    total: LayerTotals


class TextStep(Record):
    """One pass of a layer in a text workload."""

    seconds: float
    collective: str
    size: int
    """Bytes."""


class TextLayer(Record):
    """A layer of a text workload."""

    name: str
    forward: TextStep
    inward: TextStep
    """Gradients of the inputs."""
    weight: TextStep
    """Gradients of the weights."""
    update: float
    """Seconds."""


class TextModel(Record):
    """A text workload of ASTRA-sim (``models layers FILE.txt --json``)."""

    kind: Literal["text-workload"] = "text-workload"
    schema_version: Literal[1] = 1
    loop: str
    """Its first line; empty where there is none."""
    layers: tuple[TextLayer, ...]


# ---- the catalog -----------------------------------------------------------------------------------------------------


class CountedEntries(Record):
    """Entries of one kind."""

    kind: str
    entries: int
    own: dict[str, str]
    """One's own entries: id -> where it comes from."""


class CatalogOverview(Record):
    """How much there is of each kind (``catalog list --json``)."""

    kind: Literal["catalog-overview"] = "catalog-overview"
    schema_version: Literal[1] = 1
    versions: dict[str, str]
    """Folder -> the hash of what is in it."""
    kinds: tuple[CountedEntries, ...]


class ListedEntry(Record):
    """An entry of the list."""

    id: str
    name: str
    origin: From


class CatalogList(Record):
    """The entries of one kind, under its name (``catalog list KIND --json``)."""

    kind: Literal["catalog-list"] = "catalog-list"
    schema_version: Literal[1] = 1
    accelerators: tuple[ListedEntry, ...] | None = None
    nodes: tuple[ListedEntry, ...] | None = None
    fabrics: tuple[ListedEntry, ...] | None = None
    regions: tuple[ListedEntry, ...] | None = None
    runtimes: tuple[ListedEntry, ...] | None = None
    accelerator_efficiencies: tuple[ListedEntry, ...] | None = None
    runtime_efficiencies: tuple[ListedEntry, ...] | None = None
    collective_efficiencies: tuple[ListedEntry, ...] | None = None
    fabric_efficiencies: tuple[ListedEntry, ...] | None = None


class CatalogEntry(Record):
    """One entry (``catalog show --json``)."""

    kind: Literal["catalog-entry"] = "catalog-entry"
    schema_version: Literal[2] = 2
    of: str
    """The list that it stands in."""
    origin: From
    entry: (
        Accelerator
        | Node
        | Fabric
        | Region
        | Runtime
        | AcceleratorEfficiency
        | RuntimeEfficiency
        | CollectiveEfficiency
        | FabricEfficiency
    )


class CatalogProblem(Record):
    """What is wrong in a file."""

    file: str
    line: int
    """1 is the first; 0 where the file as a whole is meant."""
    key: str
    reason: str


class CatalogCheck(Record):
    """What is wrong in folders of the catalog (``catalog check --json``)."""

    kind: Literal["catalog-check"] = "catalog-check"
    schema_version: Literal[1] = 1
    problems: tuple[CatalogProblem, ...]


class PriceRowRemark(Record):
    """A row of a price list that could not be used, or not for all that it says."""

    file: str
    line: int
    what: str
    reason: str


class CatalogImport(Record):
    """Prices taken from lists (``catalog import-prices --json``)."""

    kind: Literal["catalog-import"] = "catalog-import"
    schema_version: Literal[1] = 1
    prices: tuple[dict[str, str], ...]
    """Column -> cell, as a catalog's ``prices/*.csv`` has them."""
    refused: tuple[PriceRowRemark, ...]
    mended: tuple[PriceRowRemark, ...]


class StalePrice(Record):
    """A price that is old on some day."""

    entry: str
    basis: str
    usd: float
    date: str
    age_days: float | None
    """Null without a date."""
    source: str


class StalePrices(Record):
    """Prices that are old, the oldest first (``catalog stale --json``)."""

    kind: Literal["catalog-stale"] = "catalog-stale"
    schema_version: Literal[1] = 1
    as_of: str
    days: int
    """From which age a price is old."""
    prices: tuple[StalePrice, ...]


# ---- files that were written -----------------------------------------------------------------------------------------


class WrittenFolders(Record):
    """What was written for a launcher (``export --json``)."""

    kind: Literal["export"] = "export"
    schema_version: Literal[1] = 1
    folders: dict[str, dict[str, Any]]
    """Folder -> what its ``target.json`` says."""
    left_out: tuple[str, ...]
    """Plans that the target cannot express, and why."""
    recommended: str | None = None
    """The one of several folders whose plan is to run."""


class ExportTarget(Record):
    """What can be written for."""

    title: str
    version: str
    """Version of the launcher that its files were tried with."""
    role: Literal["trainer", "environment", "scheduler"]
    level: str
    """How far its files were tried."""
    expresses: dict[str, str]
    """Axis of a plan -> the values that it takes."""
    settings: dict[str, str]
    """What a plan does not say -> what that is."""


class ExportTargets(Record):
    """What ``--to`` takes, by name (``export --to list --json``)."""

    kind: Literal["export-targets"] = "export-targets"
    schema_version: Literal[1] = 1
    targets: dict[str, ExportTarget]


class WrittenProfile(Record):
    """Layer times of one model on one accelerator."""

    model: str
    accelerator: str
    precision: str
    sequence: int
    points: int
    rows: int
    source: str
    sha256: str
    """SHA-256 of the source, first 16 digits."""
    date: str
    file: str


class ProfileImport(Record):
    """Measured layer times that were taken (``profile import --json``)."""

    kind: Literal["profile-import"] = "profile-import"
    schema_version: Literal[1] = 1
    profiles: tuple[WrittenProfile, ...]
    skipped_rows: int
    notes: tuple[str, ...]


class SharedRuns(Record):
    """Runs written for others (``learn --share --json``)."""

    kind: Literal["shared-runs"] = "shared-runs"
    schema_version: Literal[1] = 1
    file: str
    rows: int
    notes: tuple[str, ...]


class ListedRun(Record):
    """One run of a site, and what its catalog predicts of it now, with it learned."""

    predicted_s: float | None
    predicted_memory_bytes: float | None
    """Peak, counted as the run's own was."""
    reason: str
    """Why it cannot be predicted; empty if it can."""
    row: dict[str, str]
    """As the journal has it: column -> cell."""


class ListedRuns(Record):
    """Runs of a site's journal, and what was changed (``runs ... --json``)."""

    kind: Literal["site-runs"] = "site-runs"
    schema_version: Literal[1] = 1
    journal: str
    change: str | None
    """In words; null where nothing was changed."""
    runs: tuple[ListedRun, ...]
    """All, the one asked for, or those that a change put in."""


class RunEnding(Record):
    """What a verdict on a run rests on."""

    cause: str
    """In words; empty of a healthy one."""
    next: str
    """What to do."""
    line: int | None
    """Number of the line in its log."""
    rank: int | None
    step: int | None
    """The last step that was logged before."""
    text: str
    """The beginning of the line."""


class PreviewedRun(Record):
    """One measurement that would be learned from a log; figures are null where the log does not say them."""

    files: tuple[str, ...]
    """Names of the files that hold it."""
    format: str
    step_time_s: float | None
    steps: int | None
    """Steps that count."""
    tokens_per_s_per_gpu: float | None
    peak_memory_gib: float | None
    """GiB of the largest peak that was logged."""
    verdict: Literal["healthy", "slow", "crashed", "out of memory", "hung", "diverged", "cut off"]
    ending: RunEnding
    fits_instead: tuple[FittingPlan, ...]
    """Plans that fit, with their prices, where the run ran out of memory."""
    fits_elsewhere: str
    """What would fit where none of these does."""
    cells: dict[str, str]
    """Column of docs/runs.md -> cell of what ran."""
    missing: tuple[str, ...]
    """Columns that nobody has said, and without which nothing is learned."""
    refused: str
    """Why it would not be learned; empty where it would be, or where a column is all that lacks."""
    notes: tuple[str, ...]


class LessonPreview(Record):
    """What logs would teach, with nothing written (``learn --dry-run --json``)."""

    kind: Literal["lesson-preview"] = "lesson-preview"
    schema_version: Literal[1] = 1
    runs: tuple[PreviewedRun, ...]
    reasons: tuple[str, ...]
    """Why logs, or runs of them, say no step time."""
