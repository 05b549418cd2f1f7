"""COMET's questions, one by one: what its abstract says, what was computed, where it flips, why they differ."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from docs.case_study_ground import DEGREES, FACTORS, INTER, INTRA, POD, RATES, table

Series = Mapping[str, Any]
HEADERS = ("question", "COMET", "here", "where it flips", "why they differ, or may")


def compared(
    sweep: Series, expanding: Series, computing: Series, heating: Series, comparing: Series, serving: Series
) -> str:
    """A row a question, of the series behind the page's figures."""
    rows = (
        _split(sweep),
        _expanded(expanding, comparing),
        _resource(computing, heating),
        _clusters(comparing),
        _recommender(serving),
    )
    return table(HEADERS, rows)


def _split(sweep: Series) -> list[str]:
    free, fits, some = (_best(sweep[name]) for name in ("free", "fits", "any"))
    first = next(mp for mp, time in zip(DEGREES, sweep["fits"], strict=True) if not math.isnan(time))
    worst = max(time for time in sweep["free"] if not math.isnan(time)) / min(sweep["free"])
    return [
        "How much model parallelism?",
        "the best split depends on the cluster",
        f"so it does: MP{free} with memory free, MP{fits} in 80 GB with ZeRO 2, MP{some} with any ZeRO; "
        f"MP{DEGREES[-1]} takes {worst:.0f} times the best",
        f"memory decides: below MP{first} nothing fits under ZeRO 2, and what fits then leaves the pod of {POD}",
        "which sharding COMET allows is not in its abstract; ZeRO 3 moves the best split back into the pod",
    ]


def _expanded(expanding: Series, comparing: Series) -> list[str]:
    two, some = (expanding[f"{name}, serial"][0] for name in ("ZeRO 2", "any ZeRO"))
    gains = {name: alone / more for name, (alone, more) in comparing["times"].items() if not math.isnan(alone)}
    most, least = max(gains, key=gains.__getitem__), min(gains, key=gains.__getitem__)
    pays = next((rate for rate, gain in zip(RATES, some, strict=True) if gain > 1.05), None)
    return [
        "What does expanded memory gain?",
        "up to 1.4x",
        f"{some[RATES.index(512)]:.2f}x at 512 GB/s over plans with any ZeRO, {two[RATES.index(512)]:.2f}x over "
        f"plans with ZeRO 2; by accelerator from {gains[least]:.2f}x ({least}) to {gains[most]:.2f}x ({most})",
        f"from {pays} GB/s on it gains more than 5 % over any ZeRO; most where memory was smallest",
        "what it is compared with: next to plans that may use ZeRO 3, 1.4x is of the size found here for an A100",
    ]


def _resource(computing: Series, heating: Series) -> list[str]:
    times, at = computing["80 GB"], FACTORS.index(1)
    up, down = times[at] / times[FACTORS.index(4)], times[FACTORS.index(0.25)] / times[at]
    names, fourfold = list(heating["maps"]), zip(*_fourfold(heating), strict=True)
    inside, between = (dict(zip(names, column, strict=True)) for column in fourfold)
    return [
        "Which resource: compute, or which network?",
        "compute, memory and network have to be balanced",
        f"four times the compute: {up:.2f}x (a quarter of it: {1 / down:.2f}x); four times the bandwidth between pods: "
        f"{between['MP8']:.2f}x at MP8, {between['MP64']:.2f}x at MP64; inside pods: {inside['MP8']:.2f}x and "
        f"{inside['MP64']:.2f}x",
        _turn(times, between["best MP"]),
        "agrees in kind; COMET's factors are in its figures, which were not available",
    ]


def _turn(times: Sequence[float], links: float) -> str:
    """From which compute on four times the links gain more than four times the compute."""
    gains = {factor: times[n] / times[n + 2] for n, factor in enumerate(FACTORS[:-2])}
    least = next((factor for factor, gain in gains.items() if gain < links), None)
    if least is None:
        return f"nowhere up to {FACTORS[-3]:g} times an A100's compute: compute gains more than the links"
    return (
        f"at {least:g} times an A100's compute at the latest: four times as much then gains {gains[least]:.2f}x, "
        f"four times the links between pods {links:.2f}x at the best split"
    )


def _fourfold(heating: Series) -> list[tuple[float, float]]:
    """For each map: from half to twice the bandwidth inside pods, and between them."""
    a, b = INTRA.index(300), INTER.index(25)
    return [(m[b][a - 1] / m[b][a + 1], m[b - 1][a] / m[b + 1][a]) for m in heating["maps"].values()]


def _clusters(comparing: Series) -> list[str]:
    times = comparing["times"]
    alone = {name: each for name, (each, _) in times.items() if not math.isnan(each)}
    more = {name: each for name, (_, each) in times.items() if not math.isnan(each)}
    said = [
        f"{max(found.values()) / min(found.values()):.1f}x {how}, from {min(found, key=found.__getitem__)} to "
        f"{max(found, key=found.__getitem__)}"
        for found, how in ((alone, "without expanded memory"), (more, "with it"))
    ]
    flips = [name for name in more if name not in alone]
    return [
        "How far apart are clusters?",
        "up to 7.7x",
        "; ".join(said),
        f"{', '.join(flips)} cannot train it alone, and can with expanded memory" if flips else "nowhere",
        "which clusters COMET compares is not in its abstract; these are others, seven kinds of one size",
    ]


def _recommender(serving: Series) -> list[str]:
    lines, alone = serving["lines"], serving["alone"]
    gains = lines[POD]
    first = next(n for n, gain in enumerate(gains) if gain > 1)
    return [
        "A recommender: fewer ranks with expanded memory?",
        "a case study (DLRM); its result is not in the abstract",
        f"{POD} ranks do {gains[RATES.index(512)]:.2f} times the work of one of {alone}, each, at 512 GB/s",
        f"between {RATES[first - 1]} and {RATES[first]} GB/s: below, the {alone} ranks without it win"
        if first
        else f"below {RATES[0]} GB/s, if at all ({gains[0]:.2f} times there)",
        "not comparable: tables, batch and caches are this page's",
    ]


def _best(times: Sequence[float]) -> int:
    return DEGREES[min((n for n, time in enumerate(times) if not math.isnan(time)), key=lambda n: times[n])]
