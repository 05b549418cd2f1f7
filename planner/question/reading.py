"""What a question about one cluster may say, as people write it, to one typed request."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import get_args

from planner.base import units
from planner.base.errors import WrongQuestion
from planner.base.reading import short_hash
from planner.catalog import Catalog, cluster, cluster_from_file, load
from planner.catalog.cluster import is_file
from planner.models import fine_tuning, text_lengths, workload
from planner.question import node_prices, pools
from planner.question.configuration import one_configuration, stated_pins, switched_on, waived_rules
from planner.question.given import InZone, Named, lengths, listed, path, texts
from planner.question.plan_options import PlanOptions
from planner.question.request import OBJECTIVES, Request
from planner.question.runtimes import older_release, runtime_of
from planner.question.values import batches as batches_of
from planner.question.values import parse_risk, plain_price, positive_amount, sequence_length, whole_numbers
from planner.schema.choices import Basis
from planner.schema.hardware import Cluster, Node, Price, Runtime
from planner.schema.notebook import spelled
from planner.schema.workload import ConvolutionNetwork, Model, Workload
from planner.space import split_schedules
from planner.space.pins import parse_pins

DEFAULT_REGION = "us"

PRICE_BASES: tuple[Basis, ...] = get_args(Basis)

_MOST_PLANS = 1000
"""Plans in one document."""


def catalog_of(asked: PlanOptions) -> Catalog:
    """The catalog that a question means: the built-in one under the user's own and a site's."""
    return load(path(asked.catalog), path(asked.site))


def several(cluster: Named | Sequence[Named], asked: PlanOptions) -> bool:
    """Whether a question names more than one pool, links between them, or accelerators without nodes."""
    named = listed(cluster)
    zoned = any(isinstance(each, InZone) or (isinstance(each, str) and "@" in each) for each in named)
    return bool(asked.accelerators is not None or asked.link or len(named) > 1 or zoned)


def rewired(known: Catalog, asked: PlanOptions, base: Cluster) -> tuple[tuple[str, str, str], ...]:
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
    pins = stated_pins(asked)
    split_schedules.refuse_missing(known, runtime, pins)
    price, sold_as = node_price(known, base.node, asked)
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
        older="" if "@" in (asked.runtime or "") else older_release(runtime),
        pins=pins,
        waived=waived_rules(texts(asked.waive)),
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
        inputs=input_hashes(known, found, named),
        assumptions=(*_left_open(asked, base, found, runtime), *rewired(known, asked, base)),
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
    switched = switched_on(wanted, pins, parse_pins(settings))
    return known, replace(wanted, pins=pins, assumptions=(*wanted.assumptions, *switched))


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
    region = region_of(known, asked)
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


def region_of(known: Catalog, asked: PlanOptions) -> str | None:
    """The region that is asked for, or the default if the catalog has it."""
    return DEFAULT_REGION if asked.region is None and DEFAULT_REGION in known.regions else asked.region


def _placed(known: Catalog, found: Cluster, asked: PlanOptions) -> tuple[Cluster, tuple[int, ...]]:
    """A cluster that is described already, on the fabric and in the region that are asked for."""
    region = region_of(known, asked)
    if asked.fabric is not None:
        fabric = known.fabric(asked.fabric)
        wired = replace(found.node, fabric=fabric.id, nic_bandwidth=fabric.nic_bandwidth)
        found = replace(found, fabric=fabric, node=wired)
    if region is not None and (found.region is None or asked.region is not None):
        found = replace(found, region=known.region(region))
    return found, (found.count,)


def node_price(known: Catalog, node: Node, asked: PlanOptions) -> tuple[Price | None, str]:
    """Price of a node-hour, and the node that it is sold as: the one given, a vendor's, or
    :func:`planner.question.node_prices.hourly_price`.

    Raises:
        WrongQuestion: two prices, or one that cannot be.
    """
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


def input_hashes(known: Catalog, model: Model | ConvolutionNetwork, named: Named | Sequence[Named]) -> dict[str, str]:
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
