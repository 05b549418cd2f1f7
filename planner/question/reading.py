"""What a question may say, as people write it, to one typed request."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

from planner.axes import AXES, PlanAxis
from planner.axes.table import BATCH, CP, CP_ALGORITHM, DP_OVERLAP, IN_ANSWERS, NODES, TP, TP_OVERLAP
from planner.base import units
from planner.base.errors import WrongQuestion, meant
from planner.base.reading import short_hash
from planner.catalog import Catalog, cluster, cluster_from_file, load
from planner.catalog.cluster import is_file
from planner.models import context, fine_tuning, text_lengths, workload
from planner.question import node_prices, pools
from planner.question.given import InZone, Named, counted, joined, lengths, listed, path, texts
from planner.question.job_pools import Pools, merged
from planner.question.plan_options import PlanOptions
from planner.question.request import OBJECTIVES, Request
from planner.question.values import batches as batches_of
from planner.question.values import (
    parse_risk,
    plain_price,
    positive_amount,
    sequence_length,
    whole_numbers,
)
from planner.schema.choices import Basis
from planner.schema.hardware import Accelerator, Cluster, Node, Price, Runtime, dated
from planner.schema.notebook import spelled
from planner.schema.workload import ConvolutionNetwork, Model, Workload
from planner.space import split_schedules
from planner.space.pins import Bound, Pins, parse_pins
from planner.space.rules import RULES

ADAPTING_RUNTIMES = ("hf-trainer-liger",)
"""The default for adapters: what they are exported to (hf-trainer, trl, axolotl, llama-factory)."""
DEFAULT_RUNTIMES = ("megatron-core", "maxtext", "deepspeed")
"""Which is taken unless one is named: the first that runs on the accelerator."""


DEFAULT_REGION = "us"


PRICE_BASES: tuple[Basis, ...] = get_args(Basis)


_MOST_PLANS = 1000
"""Plans in one document."""


def catalog_of(asked: PlanOptions) -> Catalog:
    """The catalog that a question means: the built-in one under the user's own and a site's."""
    return load(path(asked.catalog), path(asked.site))


def as_one_pool(cluster: Named | Sequence[Named], asked: PlanOptions) -> tuple[Named | Sequence[Named], PlanOptions]:
    """A question with accelerators of one kind, in nodes of one kind, as one about that cluster; others unchanged.

    Raises:
        WrongQuestion: a name that no accelerator has, or a count that is none.
    """
    accelerators = counted(asked.accelerators)
    if accelerators is None or asked.link or listed(cluster):
        return cluster, asked
    found = pools.of_accelerators(catalog_of(asked), accelerators, asked.fabric, asked.region)
    return (found[0], replace(asked, accelerators=None)) if len(found) == 1 else (cluster, asked)


def several(cluster: Named | Sequence[Named], asked: PlanOptions) -> bool:
    """Whether a question names more than one pool, links between them, or accelerators without nodes."""
    named = listed(cluster)
    zoned = any(isinstance(each, InZone) or (isinstance(each, str) and "@" in each) for each in named)
    return bool(asked.accelerators is not None or asked.link or len(named) > 1 or zoned)


def pooled_request(
    model: str | Model, named: Named | Sequence[Named], asked: PlanOptions
) -> tuple[Catalog, Request, Pools]:
    """The catalog, the request and the pools that a question about several pools means.

    Raises:
        WrongQuestion: a name, a count, a link or a price that cannot be.
    """
    if recorded := [rule.name for rule in RULES if rule.recorded and rule.name in texts(asked.waive)]:
        raise WrongQuestion(f"--waive {recorded[0]}: with nodes of one kind only, not over several pools")
    if asked.task != "sft":
        raise WrongQuestion(f"--task {asked.task}: with nodes of one kind only, not over several pools")
    if asked.lengths is not None:
        raise WrongQuestion("--lengths: with nodes of one kind only, not over several pools")
    if workload.optimizer(asked.optimizer).iterations:
        raise WrongQuestion(f"--optimizer {asked.optimizer}: with nodes of one kind only, not over several pools")
    known = catalog_of(asked)
    bases = _bases(known, listed(named), asked)
    pool_names = pools.names(bases)
    given = pools.prices(asked.price, pool_names) if asked.price is not None else {}
    paid = []
    for name, (base, _) in zip(pool_names, bases, strict=True):
        paid.append(_price(known, base.node, replace(asked, price=given.get(name, given.get("")))))
    wanted = request_over(known, model, [base for base, _ in bases], asked)
    wanted = replace(
        wanted,
        price=paid[0][0],
        sold_as=paid[0][1],
        inputs=_inputs(known, wanted.workload.model, listed(named)),
        assumptions=(
            *wanted.assumptions,
            *_meant(known, asked, bases),
            *(each for base, _ in bases for each in _rewired(known, asked, base)),
        ),
    )
    return known, wanted, pools.pools(bases, paid, texts(asked.link))


def request_over(known: Catalog, model: str | Model, clusters: Sequence[Cluster], asked: PlanOptions) -> Request:
    """The request about several clusters at once, without a price.

    Raises:
        WrongQuestion: no runtime runs on all of them.
    """
    first = clusters[0]
    _, wanted = request(model, replace(first, count=1), replace(asked, price=None, fabric=None), known=known)
    for each in clusters:
        runtime_of(known, asked.runtime or wanted.runtime.id, each.accelerator, wanted.workload)
    inputs = _inputs(known, wanted.workload.model, ())
    return replace(wanted, cluster=first, counts=(first.count,), price=None, sold_as="", inputs=inputs)


def _bases(known: Catalog, named: Sequence[Named], asked: PlanOptions) -> list[tuple[Cluster, str]]:
    """The clusters that pools are made of, and their zones."""
    region = _region(known, asked)
    bases: list[tuple[Cluster, str]] = []
    for text in named:
        plain, zone = pools.zoned(text)
        if isinstance(plain, str) and re.fullmatch(r"[^:]+:0", plain):
            known.node(plain.partition(":")[0])
            continue
        base, counts = placed(known, plain, asked)
        if len(counts) != 1:
            raise WrongQuestion(f"--cluster {text}: one count for each of several pools; what is not used is reported")
        bases.append((base, zone))
    if (accelerators := counted(asked.accelerators)) is not None:
        found = pools.of_accelerators(known, accelerators, asked.fabric, region)
        bases += [(each, "") for each in found]
    if not bases:
        raise WrongQuestion("no pool has any nodes; give at least one (--cluster NODE:COUNT)")
    return bases


def _meant(
    known: Catalog, asked: PlanOptions, bases: Sequence[tuple[Cluster, str]]
) -> tuple[tuple[str, str, str], ...]:
    """Which accelerators and nodes stand for those that were named without nodes."""
    if asked.accelerators is None:
        return ()

    def stands(c: Cluster) -> str:
        whole = known.node(c.node.id).accelerators
        part = f"{c.node.accelerators} of the {whole} of a" if c.node.accelerators < whole else f"{c.count:,} x"
        return f"{c.accelerators:,} x {c.accelerator.id} in {part} {c.node.id}"

    return tuple((stands(c), "the usual node", "--cluster") for c, _ in bases)


def _rewired(known: Catalog, asked: PlanOptions, base: Cluster) -> tuple[tuple[str, str, str], ...]:
    """A fabric whose ports the node's own NICs cannot drive: it is taken to have others."""
    node = known.nodes.get(base.node.id)
    if (
        asked.fabric is None
        or node is None
        or not node.nic_bandwidth
        or node.nic_bandwidth >= base.fabric.nic_bandwidth
    ):
        return ()
    own, wanted = (f"{8 * rate / 1e9:g} Gbit/s" for rate in (node.nic_bandwidth, base.fabric.nic_bandwidth))
    what = f"NICs of {wanted} in {node.id}"
    return ((what, f"its own, of {own}, cannot drive {base.fabric.id}", "--fabric"),)


def request(
    model: str | Model, named: Named | Sequence[Named], asked: PlanOptions, *, known: Catalog | None = None
) -> tuple[Catalog, Request]:
    """The catalog (read unless given) and the request that a question means.

    Raises:
        WrongQuestion: a name or a value that cannot be; the message names the flag.
    """
    known = known or catalog_of(asked)
    base, counts = placed(known, named, asked)
    found = model if isinstance(model, Model) else workload.model(model)
    batches = batches_of(_usual_batch(found, base, asked), asked.batch)
    asked_workload = _workload(found, batches[-1], asked)
    runtime, release = runtime_of(known, asked.runtime, base.accelerator, asked_workload)
    pins = _pins(asked)
    split_schedules.refuse_missing(known, runtime, pins)
    price, sold_as = _price(known, base.node, asked)
    if asked.objective not in OBJECTIVES:
        raise WrongQuestion(f"--objective {asked.objective}: choose {', '.join(OBJECTIVES)}")
    if not 1 <= asked.top <= _MOST_PLANS:
        raise WrongQuestion(f"--top {asked.top}: must be from 1 to {_MOST_PLANS:,}")
    return known, Request(
        workload=asked_workload,
        cluster=base,
        counts=counts,
        batches=batches,
        runtime=runtime,
        release=release,
        older="" if "@" in (asked.runtime or "") else _older(runtime),
        pins=pins,
        waived=_waived(texts(asked.waive)),
        objective=asked.objective,
        deadline_s=positive_amount("--deadline", asked.deadline, "time"),
        max_cost_usd=positive_amount("--max-cost", units.plain_dollars(asked.max_cost), "money"),
        top=asked.top,
        fold=not asked.all,
        launchable=asked.launchable,
        price=price,
        sold_as=sold_as,
        price_basis=asked.basis,
        oom_risk=parse_risk(asked.oom_risk),
        stock=known.accelerators,
        inputs=_inputs(known, found, named),
        assumptions=(*_left_open(asked, base, found, runtime), *_rewired(known, asked, base)),
    )


def _usual_batch(model: Model, base: Cluster, asked: PlanOptions) -> int:
    """Sequences of a step where none are asked for: of a fine-tuning the next multiple of the accelerators, of pairs of
    answers of twice as many.
    """
    batch, least = fine_tuning.usual(model, asked.method).batch, base.accelerators * (1 if asked.task == "sft" else 2)
    return batch if asked.method == fine_tuning.PRETRAINING else -(-batch // least) * least


def _workload(model: Model, batch: int, asked: PlanOptions) -> Workload:
    """What is trained; a figure that cannot be is named by its flag."""
    try:
        trained = workload.workload(
            model, sequence=sequence_length(asked.seq), batch=batch, tokens=asked.tokens, method=asked.method,
            rank=asked.rank, targets=None if asked.targets is None else tuple(asked.targets), optimizer=asked.optimizer,
            mtp_layers=asked.mtp_layers, imbalance=asked.imbalance, task=asked.task, lengths=lengths(asked.lengths),
        )  # fmt: skip
    except WrongQuestion as error:
        figure, is_figure, reason = str(error).partition(" = ")
        flag = f"--{'seq' if figure == 'sequence' else figure} {reason}"
        raise WrongQuestion(flag if is_figure else figure) from None
    return trained if (seen := _texts_seen(asked, trained.sequence)) is None else replace(trained, tokens=seen)


def _texts_seen(asked: PlanOptions, sequence: int) -> float | None:
    """Tokens of the texts that are to be seen, padding included; None where tokens are stated, or nothing is."""
    if asked.examples is None and asked.epochs is None:
        return None
    if asked.tokens is not None or asked.noise_scale is not None:
        other = "--tokens" if asked.tokens is not None else "--noise-scale"
        raise WrongQuestion(f"{other} with --examples or --epochs: these say the tokens; leave one out")
    return text_lengths.positions(
        lengths(asked.lengths), sequence, asked.examples, 1.0 if asked.epochs is None else asked.epochs
    )


def pinned_request(
    model: str | Model, named: Named | Sequence[Named], settings: Sequence[str], asked: PlanOptions
) -> tuple[Catalog, Request]:
    """The catalog and the request for one configuration as given (``tp=8 pp=4``); what is not given is neutral.

    Raises:
        WrongQuestion: a setting that cannot be, or several values where one is meant.
    """
    if several(named, asked):
        example = "group=copies=2,dgx-h100:layers=32:tp=2, as plan prints it"
        raise WrongQuestion(f"over several pools each group of pipelines is given: {example}; one pool takes tp=2 ...")
    known, wanted = request(model, named, asked)
    pins = one_configuration(wanted, settings)
    switched = _switched_on(wanted, pins, parse_pins(settings))
    return known, replace(wanted, pins=pins, assumptions=(*wanted.assumptions, *switched))


def _switched_on(wanted: Request, pins: Pins, given: Pins) -> Iterator[tuple[str, str, str]]:
    """Overlap of tensor parallelism, which a configuration has unless it says otherwise, if its runtime has it off."""
    name = TP_OVERLAP.name
    default = wanted.runtime.default(name, wanted.release)
    stated = name in given or name in wanted.pins
    if default and default.value is False and not stated and _may_exceed_1(TP, pins.bounds):
        if wanted.runtime.axes.get(name, "") in ("any", (False, True), (True,)):
            what = f"{name}=on where it is faster, which {wanted.runtime.id} has off by default"
            yield what, default.source, name


def one_configuration(wanted: Request, settings: Sequence[str]) -> Pins:
    """Pins for every axis of one configuration; what is not given is neutral.

    Raises:
        WrongQuestion: a setting that cannot be, or several values where one is meant.
    """
    pins = configuration(wanted, _known_elsewhere(parse_pins(settings)))
    counts = {"--cluster": len(wanted.counts), "--batch": len(wanted.batches)}
    for what, values in {**counts, **{f"{axis}={b}": len(b.values) for axis, b in pins.bounds.items()}}.items():
        if values != 1:
            raise WrongQuestion(f"{what}: estimate takes one layout a call; plan tries several values")
    return pins


OF_ALL_GROUPS = tuple(
    axis.name for axis in sorted(IN_ANSWERS, key=lambda axis: bool(axis.option)) if axis.of_groups
)  # fmt: skip
"""Axes that all groups of pipelines of a plan share."""


def grouped_request(
    model: str | Model, named: Named | Sequence[Named], settings: Sequence[str], asked: PlanOptions
) -> tuple[Catalog, Request, Pools]:
    """As :func:`pooled_request`, for groups of pipelines as given and what all of them share (``zero=1``); pools that
    are alike are one.

    Raises:
        WrongQuestion: a setting that groups state by themselves, or several batches.
    """
    known, wanted, offered = pooled_request(model, named, asked)
    pins = _known_elsewhere(parse_pins(settings))
    if own := [axis for axis in pins.bounds if axis not in OF_ALL_GROUPS]:
        axis = f"{own[0]}={pins.bounds[own[0]]}"
        raise WrongQuestion(f"{axis}: groups state their own degrees; for all of them: {', '.join(OF_ALL_GROUPS)}")
    if len(wanted.batches) != 1:
        raise WrongQuestion("--batch: estimate takes one layout a call; plan tries several values")
    joined = pools.renamed(merged(offered.all, {name for pair in offered.given for name in pair}))
    bounds = {**wanted.pins.bounds, **pins.bounds}
    return known, replace(wanted, pins=Pins(bounds)), replace(offered, all=joined)


def placed(known: Catalog, named: Named | Sequence[Named], asked: PlanOptions) -> tuple[Cluster, tuple[int, ...]]:
    """One cluster on its fabric and in its region, and the counts of nodes to try.

    Raises:
        WrongQuestion: none or several, an unknown name, or no count.
    """
    every = listed(named)
    if not every:
        raise WrongQuestion("on what? --cluster dgx-h100:16, or --accelerators A100:4,V100:8")
    if len(every) != 1:
        raise WrongQuestion("one --cluster here; clusterwright plan takes several pools")
    text = every[0].cluster if isinstance(every[0], InZone) else every[0]
    if isinstance(text, Cluster):
        return _placed(known, text, asked)
    if isinstance(text, Path) or is_file(text) or "/" in text:
        return _placed(known, cluster_from_file(Path(text).expanduser(), known), asked)
    region = _region(known, asked)
    node, colon, count = text.partition(":")
    if not node:
        raise WrongQuestion(
            f"--cluster {text!r}: which node? Write for example dgx-h100:16 (clusterwright catalog list nodes)"
        )
    if node not in known.nodes and (offered := pools.offered(known, node, count)):
        raise WrongQuestion(f"--cluster {text}: {node} is an accelerator; {offered}")
    known.node(node)
    if not colon:
        raise WrongQuestion(f"--cluster {text}: how many? Write {node}:16, or {node}:8..64 to try several counts")
    if len(several := re.split("[,+]", text)) > 1 and all(":" in each for each in several):
        apart = " ".join(f"--cluster {each}" for each in several)
        raise WrongQuestion(f"--cluster {text}: one pool each; write {apart}")
    counts = whole_numbers("--cluster", text, count)
    return cluster(known, node, counts[-1], asked.fabric, region), counts


def _region(known: Catalog, asked: PlanOptions) -> str | None:
    """The region that is asked for, or the default if the catalog has it."""
    return DEFAULT_REGION if asked.region is None and DEFAULT_REGION in known.regions else asked.region


def _placed(known: Catalog, found: Cluster, asked: PlanOptions) -> tuple[Cluster, tuple[int, ...]]:
    """A cluster that is described already, on the fabric and in the region that are asked for."""
    region = _region(known, asked)
    if asked.fabric is not None:
        fabric = known.fabric(asked.fabric)
        wired = replace(found.node, fabric=fabric.id, nic_bandwidth=fabric.nic_bandwidth)
        found = replace(found, fabric=fabric, node=wired)
    if region is not None and (found.region is None or asked.region is not None):
        found = replace(found, region=known.region(region))
    return found, (found.count,)


def runtime_of(known: Catalog, text: str | None, part: Accelerator, work: Workload) -> tuple[Runtime, str]:
    """``megatron-core`` or ``megatron-core@2024``; unless named, :func:`default_runtime`.

    Raises:
        WrongQuestion: if the release is unknown or the runtime cannot do this work on that accelerator.
    """
    able = [name for name in _training(known, work) if part.vendor in known.runtime(name).vendors]
    default = default_runtime(known, part, work)
    name, at, release = (default if text is None else text).partition("@")
    runtime = known.runtime(name)
    if at and release not in runtime.releases:
        raise WrongQuestion(f"--runtime {text}: releases of {name} are {', '.join(runtime.releases)}")
    if part.vendor not in runtime.vendors:
        others = f"these do: {', '.join(able)}" if able else "no runtime in the catalog does (--catalog)"
        raise WrongQuestion(f"{name} does not run on {part.id} ({part.vendor}); {others}")
    if name not in (able := _training(known, work)):
        base = "" if work.method.base in ("", *runtime.frozen_bases) else f"{work.method.base} weights"
        lacks = ", ".join(filter(None, (base, *sorted(needed(work) - has(runtime)))))
        flags = {work.task: f"--task {work.task}", "muon": f"--optimizer {work.optimizer.id}"}
        asked = flags.get(lacks, f"--method {work.method.name}")
        others = f"these have it: {', '.join(able)}" if able else "no runtime in the catalog has"
        raise WrongQuestion(f"{asked}: {name} has no {lacks}; {others}")
    if work.method.base == "fp8" and "fp8" not in part.peak:
        raise WrongQuestion(f"--method {work.method.name}: {part.id} has no FP8; qlora and qlora:int8 run there")
    release = release or runtime.releases[-1]
    found = runtime.at(release)
    if work.optimizer.iterations and not found.muon_zero:
        raise WrongQuestion(
            f"--optimizer {work.optimizer.id}: {name} has it since {runtime.since['muon']}, not in {release}"
        )
    return found.for_muon() if work.optimizer.iterations else found, release


def needed(work: Workload) -> set[str]:
    """Of what runtimes have (:func:`has`), what a training needs."""
    of = {"dora": work.method.magnitude, "freeze": work.method.kind == "freeze", work.task: work.task != "sft"}
    return {name for name, wanted in {**of, "muon": work.optimizer.iterations > 0}.items() if wanted}


def has(runtime: Runtime) -> set[str]:
    """What of methods, tasks and optimizers not every runtime has, and this one has."""
    return {*runtime.tunes, *(("muon",) if runtime.muon_zero else ())}


def trains(runtime: Runtime, work: Workload) -> bool:
    """Whether a runtime has such frozen weights, such a method, task and optimizer."""
    return work.method.base in ("", *runtime.frozen_bases) and needed(work) <= has(runtime)


def _training(known: Catalog, work: Workload) -> list[str]:
    return [name for name, runtime in known.runtimes.items() if trains(runtime, work)]


def default_runtime(known: Catalog, part: Accelerator, work: Workload) -> str:
    """The first default that runs on the accelerator and trains what is asked, else any that does."""
    usual = (
        DEFAULT_RUNTIMES if work.method.kind in ("pretrain", "finetune") and work.task == "sft" else ADAPTING_RUNTIMES
    )
    able = [name for name in _training(known, work) if part.vendor in known.runtime(name).vendors]
    return next((name for name in (*usual, *able) if name in able), usual[0])


RECENT_YEARS = 2.0
"""Releases of the last two years are in use beside the newest."""


def _older(runtime: Runtime) -> str:
    """The oldest release of the years before the newest, or else the one before it; empty if there is none."""
    *earlier, newest = runtime.releases
    recent = [each for each in earlier if (dated(each) or 0.0) >= (dated(newest) or 0.0) - RECENT_YEARS]
    return min(recent, key=lambda each: dated(each) or 0.0) if recent else (earlier or [""])[-1]


def _pins(asked: PlanOptions) -> Pins:
    pins = _known_elsewhere(parse_pins(texts(asked.pin)))
    precision = joined(asked.precision)
    if precision is None:
        return pins
    if "precision" in pins:
        raise WrongQuestion("--precision and --pin precision=... are duplicates; keep one")
    return Pins({**pins.bounds, **parse_pins([f"precision={precision.replace(',', '|')}"]).bounds})


def _known_elsewhere(pins: Pins) -> Pins:
    """The pins; what an option of its own says is refused rather than ignored."""
    for axis in (NODES, BATCH):
        if axis.name in pins:
            raise WrongQuestion(f"{axis.name}={pins.bounds[axis.name]}: say it with {axis.option}")
    return pins


def configuration(wanted: Request, given: Pins) -> Pins:
    """Pins for every axis: as given, else neutral (degrees 1, nothing recomputed, overlap where the runtime has it)."""
    bounds = {**wanted.pins.bounds, **given.bounds}
    texts = {axis.name: _unstated(axis, wanted.runtime, bounds) for axis in AXES.values()}
    if _may_exceed_1(CP, bounds):
        texts[CP_ALGORITHM.name] = context.algorithms(wanted.workload)[0]
    waits = wanted.runtime.axes.get(DP_OVERLAP.name, ())
    texts |= split_schedules.neutral(bounds, waits == "any" or False in waits)
    return Pins({**{name: Bound((text,)) for name, text in texts.items() if text is not None}, **bounds})


def _unstated(axis: PlanAxis[Any], runtime: Runtime, bounds: Mapping[str, Bound]) -> str | None:
    """What a configuration has on an axis that it does not state; None where that is left open."""
    if axis.preferred is None:
        return axis.unstated
    known = runtime.axes.get(axis.name, (axis.neutral,))
    has_preferred = known == "any" or axis.read(axis.preferred) in known
    if has_preferred and (not axis.goes_with or any(_may_exceed_1(AXES[name], bounds) for name in axis.goes_with)):
        return axis.preferred
    return str(next(iter(known))) if axis.unstated is None else axis.unstated


def _may_exceed_1(degree: PlanAxis[Any], bounds: Mapping[str, Bound]) -> bool:
    """Whether a configuration leaves a degree open, or states one above 1."""
    if (bound := bounds.get(degree.name)) is not None:
        return bound.values != ("1",)
    return degree.unstated != "1"


def _waived(names: Sequence[str]) -> frozenset[str]:
    rules = {rule.name: rule for rule in RULES}
    for name in names:
        if name not in rules:
            hint = meant(name, rules, f"rules are {', '.join(rules)}")
            raise WrongQuestion(f"--waive {name}: no such rule; {hint}")
        if not rules[name].waivable:
            able = ", ".join(rule.name for rule in RULES if rule.waivable)
            raise WrongQuestion(
                f"--waive {name}: a plan does not add up unless {rules[name].says}; ask for one that does "
                f"(--batch, --pin, another count of nodes). {able} can be waived"
            )
    return frozenset(names)


def _price(known: Catalog, node: Node, asked: PlanOptions) -> tuple[Price | None, str]:
    """Per node-hour: the one given, a vendor's, or the market's (:func:`planner.question.node_prices.hourly_price`)."""
    if asked.basis not in PRICE_BASES:
        raise WrongQuestion(f"--basis {asked.basis}: choose {', '.join(PRICE_BASES)}")
    if asked.price is not None:
        if asked.vendor is not None:
            raise WrongQuestion(f"--price {asked.price} --vendor {asked.vendor}: two prices of one node; keep one")
        each = positive_amount("--price", plain_price(asked.price), "price per hour")
        assert each is not None
        given = Price(basis="on-demand", usd=each * node.accelerators, date="", source="--price")
        return given, node.id
    if asked.vendor is not None:
        offers = node_prices.current_offers(known, node.accelerator, asked.basis)
        price, sold_as = node_prices.of_vendor(asked.vendor, node, asked.basis, offers)
        return node_prices.compared(price, offers), sold_as
    return node_prices.hourly_price(known, node, asked.basis)


def _inputs(known: Catalog, model: Model | ConvolutionNetwork, named: Named | Sequence[Named]) -> dict[str, str]:
    """What the answer depends on, hashed."""
    found = known.inputs()
    found[f"model {model.id}"] = digest(model)
    for place, (each, _) in enumerate(map(pools.zoned, listed(named)), 1):
        if isinstance(each, Cluster):
            found[f"cluster {each.name or f'{each.node.id}#{place}'}"] = digest(each)
        elif (path := Path(each).expanduser()).suffix == ".toml" and path.is_file():
            found[f"cluster {path.name}"] = digest(path.read_bytes())
    return found


def digest(content: object) -> str:
    """The first 16 digits of the SHA-256 of a file's bytes, or of a record with all its fields."""
    data = content if isinstance(content, bytes) else spelled(content).encode()
    return short_hash(data)


def _left_open(asked: PlanOptions, base: Cluster, model: Model, runtime: Runtime) -> tuple[tuple[str, str, str], ...]:
    """What the question did not say and this program chose."""
    usual, batch = fine_tuning.usual(model, asked.method), _usual_batch(model, base, asked)
    default = "the model's default" if asked.method == fine_tuning.PRETRAINING else fine_tuning.TUNED_LIKE
    open_ones = [
        (
            asked.mtp_layers > 0,
            "an MTP module as one more layer and head",
            "its projection of 2 h to h, a hundredth of it, is neglected",
            "--mtp-layers",
        ),
        (
            model.moe is not None and asked.imbalance is None,
            "tokens even over experts' ranks",
            "what routers are trained towards; measured runs do not say theirs",
            "--imbalance",
        ),
        (asked.batch is None, f"batch of {batch:,} sequences", default, "--batch"),
        (asked.seq is None, f"{usual.sequence:,} tokens per sequence", default, "--seq"),
        (
            asked.tokens is None and asked.examples is None and asked.epochs is None,
            f"{units.format_count(usual.tokens)} tokens to train on",
            default,
            "--tokens",
        ),
        (asked.runtime is None, runtime.id, "the default runtime, its newest release", "--runtime"),
        (asked.precision is None, "16-bit precision", "8-bit formats change numerics; ask for them", "--precision"),
        (
            asked.region is None and base.region is not None and base.region.id == DEFAULT_REGION,
            f"region {DEFAULT_REGION}",
            "the default",
            "--region",
        ),
        (
            asked.noise_scale is None and len(batches_of(1, asked.batch)) > 1,
            "the batch of most tokens a second",
            "no noise scale is given: a token counts as much at every batch",
            "--noise-scale",
        ),
    ]
    return tuple((what, why, flag) for is_open, what, why, flag in open_ones if is_open)
