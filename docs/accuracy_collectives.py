"""The section of ``accuracy-details.md`` on collectives: how far their times are from published timings.

``python -m docs.accuracy_collectives`` makes that section anew and leaves the rest of the page as it is (under half a
minute); ``make accuracy`` makes the whole page.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from docs import accuracy_plots as plots
from planner import catalog
from planner.base import writing
from planner.calibration.fit import collectives
from planner.calibration.fit.collectives import Across, CollectiveCell
from planner.calibration.runs.collective_tables import TimedCollectives, read
from planner.catalog import Catalog
from planner.cost import collective_times
from planner.figures.efficiency import Efficiencies
from planner.schema.efficiency import CollectiveEfficiency

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "benchmarks" / "data" / "measured_collectives.csv"
PAGE = ROOT / "docs" / "accuracy-details.md"
HEADING = "## Collectives\n"
MIB = 2.0**20
SWEEP = "aiconfigurator"
"""The source that has sweeps of sizes for many systems."""
Entries = Mapping[str, CollectiveEfficiency]
STEP_TIMES = {
    "all-gather": collective_times.gather,
    "all-reduce": collective_times.all_reduce,
    "all-to-all": collective_times.all_to_all,
    "reduce-scatter": collective_times.gather,
}
"""Operation -> the formula that training steps are priced with."""


def error(predicted: np.ndarray, cell: CollectiveCell | Across) -> np.ndarray:
    """Relative error of every row, without sign."""
    return np.abs(predicted / cell.measured - 1.0)


def percent(value: float) -> str:
    """A fraction as per cent."""
    return "-" if not np.isfinite(value) else f"{100 * value:.1f} %"


def table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(headers) + " |", "|" + "---|" * len(headers)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)]) + "\n"


def odd_sizes(size: np.ndarray) -> np.ndarray:
    """Every other power of two: what a fit on the others has not seen."""
    return np.asarray(np.round(np.log2(size)).astype(int) % 2 == 1)


def fitted_times(cell: CollectiveCell, priors: Entries, seen: np.ndarray) -> np.ndarray:
    """A cell's times by a fit to the rows of a mask."""
    prior = collectives.prior_of(priors, cell.accelerator, cell.op)
    return cell.times(collectives.fitted(cell, prior, seen))


def mean(values: np.ndarray) -> float:
    """Of nothing: not a number."""
    return float(values.mean()) if len(values) else float("nan")


class Single:
    """Cells of the sweeps, each fitted to half of its sizes, and without four ranks."""

    def __init__(self, rows: Sequence[TimedCollectives], priors: Entries) -> None:
        self.rows: list[dict[str, Any]] = []
        for (hardware, backend, op), cell in collectives.cells([row for row in rows if row.source == SWEEP]).items():
            odd = odd_sizes(cell.size)
            sizes = error(fitted_times(cell, priors, ~odd), cell)
            four, rest = cell.ranks == 4, np.array([])
            if (cell.ranks == 8).any():
                rest = error(fitted_times(cell, priors, ~four), cell)[four]
            nothing = error(cell.times(collectives.prior_of(priors, cell.accelerator, op)), cell)
            self.rows.append(
                {
                    "hardware": hardware,
                    "backend": backend,
                    "op": op,
                    "topology": cell.accelerator.scaleup.topology,
                    "sizes": mean(sizes[odd]),
                    "large": mean(sizes[odd & (cell.size >= 16 * MIB)]),
                    "ranks": mean(rest),
                    "nothing": mean(nothing),
                    "by_size": (cell.size[odd], sizes[odd]),
                }
            )

    def over(self, figure: str, **which: str) -> float:
        """Mean over cells."""
        found = [row[figure] for row in self.rows if all(row[name] == value for name, value in which.items())]
        return float(np.nanmean(found)) if np.isfinite(found).any() else float("nan")

    def within(self, figure: str, limit: float) -> str:
        """How many cells a limit holds in one by one."""
        found = [row[figure] for row in self.rows if np.isfinite(row[figure])]
        return f"{sum(value <= limit for value in found)} of {len(found)}"


def by_source(rows: Sequence[TimedCollectives], priors: Entries) -> list[list[str]]:
    """Each source left out, from 1 MiB, where other sources have timed the same accelerator."""
    told = []
    for source in sorted({row.source for row in rows if not row.node and row.source}):
        others = [row for row in rows if row.source != source]
        parts = {row.accelerator.id for row in others if not row.node}
        apart = [row for row in rows if row.source == source and not row.node and row.accelerator.id in parts]
        known = {**priors, **collectives.entries(others, priors, "", "")}
        for op in sorted({row.op for row in apart}):
            errors = []
            for cell in collectives.cells([row for row in apart if row.op == op]).values():
                if f"{cell.accelerator.id}/{op}" in known:
                    times = cell.times(collectives.prior_of(known, cell.accelerator, op))
                    errors += list(error(times, cell)[cell.size >= MIB])
            if errors:
                told.append([source, op, f"{len(errors):,}", f"{np.mean(errors)}"])
    return told


def unseen_ranks(rows: Sequence[TimedCollectives], priors: Entries) -> float:
    """The A100 of vTrain: fitted on 2, 4 and 8 ranks, tried on 3, 5, 6 and 7."""
    chosen = [row for row in rows if row.source == "vTrain" and row.hardware == "A100"]
    cell = next(iter(collectives.cells(chosen).values()))
    seen = np.isin(cell.ranks, (2, 4, 8))
    return mean(error(fitted_times(cell, priors, seen), cell)[~seen])


def over_nodes(rows: Sequence[TimedCollectives], known: Catalog) -> tuple[list[list[str]], dict[str, np.ndarray]]:
    """Fabrics fitted to every other row (where they have eight), and what no fit has seen."""
    using, told = known.collective_efficiencies, []
    kept: dict[str, list[np.ndarray]] = {"measured": [], "predicted": [], "unseen": [], "nothing": [], "fabric": []}
    members = [row for row in rows if row.node and row.ranks <= collectives.MOST]
    for name in sorted({row.fabric for row in members}):
        mine = sorted(
            (row for row in members if row.fabric == name), key=lambda r: (r.hardware, r.ranks, r.notes, r.size)
        )
        across = Across(mine, known, using)
        prior = collectives.fabric_prior(known.fabric_efficiencies, known.fabric(name))
        seen = np.arange(len(mine)) % 2 == 0 if len(mine) >= collectives.FEWEST else np.zeros(len(mine), dtype=bool)
        entry = collectives.fitted_fabric(across, prior, seen) if seen.any() else prior
        times, nothing = across.times({"default": entry}), across.times({"default": prior})
        for key, values in (
            ("measured", across.measured),
            ("predicted", times),
            ("unseen", ~seen),
            ("nothing", nothing),
            ("fabric", np.array([name] * len(mine))),
        ):
            kept[key].append(np.asarray(values))
        ranks = ", ".join(f"{count:g}" for count in sorted({row.ranks for row in mine}))
        medians = [float(np.median(error(which, across)[~seen])) for which in (nothing, times)]
        after = percent(medians[1]) if seen.any() else "-"
        told.append([name, f"{len(mine)}", ranks, percent(medians[0]), after])
    return told, {key: np.concatenate(values) for key, values in kept.items()}


def as_steps_are_priced(rows: Sequence[TimedCollectives], known: Catalog) -> list[list[str]]:
    """How far the formulas of training steps are from timings over several nodes, of 1 MiB and more.

    Returns:
        Fabric, operation, ranks, rows, mean error and bias (of logarithms).
    """
    used, ratios = Efficiencies.of(known), dict[tuple[str, str, float], list[float]]()
    for row in rows:
        if row.node and row.nodes > 1 and row.size >= MIB and row.ranks <= collectives.MOST and row.op in STEP_TIMES:
            _, _, network, g = collectives.placed(row, known, used.accelerator(row.accelerator))
            ratio = float(STEP_TIMES[row.op](network, row.size, g)) / row.seconds
            ratios.setdefault((row.fabric, row.op, row.ranks), []).append(ratio)
    return [
        [fabric, op, f"{ranks:g}", f"{len(of)}", percent(mean(np.abs(np.array(of) - 1.0))), _bias(of)]
        for (fabric, op, ranks), of in sorted(ratios.items())
    ]


def _bias(ratios: Sequence[float]) -> str:
    return f"{100 * float(np.mean(np.log(ratios))):+.0f} %"


def draw(
    folder: Path, single: Single, nodes: Mapping[str, np.ndarray], rows: Sequence[TimedCollectives], known: Catalog
) -> None:
    """The three plots of the section."""
    plots.save(folder, "collectives-by-size", lambda: _by_size(single))
    plots.save(folder, "collectives-h100", lambda: _curves(rows, known))
    plots.save(folder, "collectives-nodes", lambda: _nodes(nodes))


def _by_size(single: Single) -> Any:
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7.2, 3.2))
    for (colour, marker), topology in zip(plots.STYLES, ("switch", "pcie"), strict=False):
        members = [row["by_size"] for row in single.rows if row["topology"] == topology]
        size = np.concatenate([each[0] for each in members])
        wrong = np.concatenate([each[1] for each in members])
        at = np.unique(size)
        quarters = np.array([np.quantile(wrong[size == s], (0.25, 0.5, 0.75)) for s in at])
        label = {"switch": "NVLink through switches", "pcie": "PCIe"}[topology]
        axes.plot(at, 100 * quarters[:, 1], color=colour, marker=marker, label=f"{label}: median")
        axes.fill_between(at, 100 * quarters[:, 0], 100 * quarters[:, 2], color=colour, alpha=0.2, linewidth=0)
    axes.set_xscale("log", base=2)
    axes.set_xticks([2.0**power for power in (13, 17, 21, 25, 29)], ["8 KiB", "128 KiB", "2 MiB", "32 MiB", "512 MiB"])
    axes.set_ylim(0, None)
    axes.set_ylabel("error, %")
    axes.set_title("Sizes that the fit has not seen: median over cells, and the middle half")
    axes.grid(axis="y")
    axes.legend(loc="upper right")
    figure.tight_layout()
    return figure


def _curves(rows: Sequence[TimedCollectives], known: Catalog) -> Any:
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, 2, figsize=(7.2, 3.4), sharey=True)
    for axes, op in zip(panels, ("all-reduce", "all-gather"), strict=True):
        chosen = [r for r in rows if r.hardware == "h100_sxm" and r.backend == "NCCL 2.29.2" and r.op == op]
        entry = known.collective_efficiencies[f"H100-SXM5-80GB/{op}"]
        for (colour, marker), ranks in zip(plots.STYLES, (2, 4, 8), strict=False):
            cell = CollectiveCell(sorted((row for row in chosen if row.ranks == ranks), key=lambda row: row.size))
            axes.plot(cell.size, cell.measured * 1e6, linestyle="", marker=marker, markersize=4, color=colour)
            axes.plot(cell.size, cell.times(entry) * 1e6, color=colour, label=f"{ranks} ranks")
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xticks([2.0**power for power in (10, 17, 23, 29)], ["1 KiB", "128 KiB", "8 MiB", "512 MiB"])
        axes.set_title(f"H100, {op}")
        axes.grid()
    panels[0].set_ylabel("microseconds")
    panels[0].legend(loc="upper left", title="line: shipped fit")
    figure.tight_layout()
    return figure


def _nodes(nodes: Mapping[str, np.ndarray]) -> Any:
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(5.2, 4.2))
    for (colour, marker), name in zip(plots.STYLES, dict.fromkeys(nodes["fabric"]), strict=False):
        mine = (nodes["fabric"] == name) & nodes["unseen"]
        x, y = 1e6 * nodes["measured"][mine], 1e6 * nodes["predicted"][mine]
        axes.plot(x, y, linestyle="", marker=marker, markersize=4.5, color=colour, label=name)
    ends = np.array([30.0, 3e5])
    axes.plot(ends, ends, color="#333333", linewidth=1)
    for factor in (0.8, 1.25):
        axes.plot(ends, factor * ends, color="#333333", linewidth=0.7, linestyle=":")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("measured, microseconds")
    axes.set_ylabel("predicted, microseconds")
    axes.set_title("Over several nodes: rows that no fit has seen")
    axes.grid()
    axes.legend(loc="upper left")
    figure.tight_layout()
    return figure


def section(folder: Path | None = None) -> str:
    """The section's text; plots are drawn into a folder, if one is named."""
    known = catalog.load()
    priors = collectives.topologies(known.collective_efficiencies)
    found = read(TABLE, known)
    single = Single(found.rows, priors)
    sources = by_source(found.rows, priors)
    across, nodes = over_nodes(found.rows, known)
    wrong = np.abs(nodes["predicted"] / nodes["measured"] - 1.0)[nodes["unseen"]]
    nothing = np.abs(nodes["nothing"] / nodes["measured"] - 1.0)
    means = {
        name: np.mean([float(row[3]) for row in sources if row[0] == name]) for name in {row[0] for row in sources}
    }
    worst = max(means, key=lambda name: means[name])
    if folder is not None:
        draw(folder, single, nodes, found.rows, known)
    switched = single.over("nothing", topology="switch")
    reached = table(
        ["figure", "asked", "reached", "cells that hold it by themselves"],
        [
            [
                "one node, sizes not seen, from 4 KiB",
                "7 %",
                percent(single.over("sizes")),
                single.within("sizes", 0.07),
            ],
            ["the same, from 16 MiB", "4 %", percent(single.over("large")), single.within("large", 0.04)],
            ["4 ranks not seen (2 and 8 are)", "8 %", percent(single.over("ranks")), single.within("ranks", 0.08)],
            ["3, 5, 6, 7 ranks not seen (vTrain, A100)", "8 %", percent(unseen_ranks(found.rows, priors)), ""],
            [
                "a source left out, from 1 MiB, mean over sources",
                "15 %",
                f"{percent(float(np.mean(list(means.values()))))} (worst: {worst}, {percent(means[worst])})",
                f"{sum(float(row[3]) <= 0.15 for row in sources)} of {len(sources)}",
            ],
            ["several nodes, to 1,000 accelerators: median", "20 %", percent(float(np.median(wrong))), ""],
            ["  the same, no fabric fitted", "", percent(float(np.median(nothing))), ""],
            [
                "nothing fitted, one node, from 4 KiB: switched links",
                "20 %",
                percent(switched),
                f"{sum(r['nothing'] <= 0.2 for r in single.rows)} of {len(single.rows)}",
            ],
            ["  PCIe", "20 %", percent(single.over("nothing", topology="pcie")), ""],
            ["  all", "20 %", percent(single.over("nothing")), ""],
        ],
    )
    parts = [
        [
            hardware,
            op,
            *(percent(single.over(f, hardware=hardware, op=op)) for f in ("sizes", "large", "ranks", "nothing")),
        ]
        for hardware, op in sorted({(row["hardware"], row["op"]) for row in single.rows})
    ]
    left = "; ".join(f"{count:,} {reason}" for reason, count in found.left_out.items())
    return f"""{HEADING}
Times of collectives by algorithm and protocol (`planner/cost/nccl_algorithms.py`), against
`benchmarks/data/measured_collectives.csv`. One operation of one library on one accelerator is a cell; its fit moves 11
to 13 figures held to their priors, over all its sizes and ranks together. {len(found.rows):,} rows are used. Left out:
{left}.
`clusterwright calibrate --collectives` makes the fits, `python -m docs.accuracy_collectives` this section.

{reached}
The same caution holds: what the priors say of rates, ramps and adding switches was written by people who had seen
timings of NVLink systems; latencies and protocols are NCCL's own constants. PCIe hosts are further off without a fit:
their paths between slots stand on no datasheet (eight L40S reach a seventeenth of the rate of two).

A source's launches are not its links. SimuMax's calls never take less than 44 to 77 microseconds, however small they
are, as if a host launched them one by one; a call that outlasts its launch hides it. So a fit has a launch of its own
for every source, ``t = max(launch, t_links)``, which is fitted along (prior: 5 microseconds, a factor of e either way)
and forgotten; a prediction has none, also of a source left out. Without it the floor passes for the links' own: with
aiconfigurator left out the error was 32.7 % (all-to-all 71 %), and 15.1 % over sources. A launch added to each call,
``t = launch + t_links``, was tried too: 11.6 % over sources, worse for each of the four. Priors of 1 and 2 microseconds
instead of 5 change the figure by a tenth of a per cent. The form was chosen by people who had seen these tables, the
prior before its first result. SimuMax left out has the error that it had: its own floor at its small sizes is unknown.

![Errors on sizes not seen](figures/collectives-by-size.svg)

![H100 by size](figures/collectives-h100.svg)

{table(["system", "operation", "sizes not seen", "from 16 MiB", "4 ranks not seen", "nothing fitted"], parts)}
**Each source left out**, from 1 MiB, where another source has timed the accelerator:

{table(["source", "operation", "rows", "MAPE"], [[*row[:3], percent(float(row[3]))] for row in sources])}
**Several nodes.** A fabric's step, ramp and reachable NICs are fitted to every other row, where it has eight; median
errors of the others. These are few sites, and one kind of hardware differs by 40 % between two of them: expect that
much elsewhere. Twenty GB200 racks (1,440 GPUs) take twice what is predicted; no source says why; no accuracy is claimed
beyond 1,000.

{table(["fabric", "rows", "accelerators", "nothing fitted", "fitted"], across)}
![Predicted and measured over several nodes](figures/collectives-nodes.svg)

**As steps are priced.** Training steps have one formula an operation (`planner/cost/collective_times.py`), whose rates
and latencies are the catalog's and the fit's to runs. Here it is against the timings of 1 MiB and more over several
nodes; EFA's step between nodes was taken from them (as fitted above, over NCCL's own algorithms), so its rows are not
unseen. `bias` is the mean of predicted over measured (log). An NVLink switch adds before the NICs in all-reduces of two
nodes (`nvls_tree`), which these formulas leave out.

{table(["fabric", "operation", "accelerators", "rows", "mean error", "bias"], as_steps_are_priced(found.rows, known))}
"""


def refreshed(page: str, told: str) -> str:
    """The page with its section made anew, or put before the measurements on your own GPU."""
    if HEADING in page:
        return re.sub(re.escape(HEADING) + r".*?(?=^## )", lambda _: told, page, flags=re.DOTALL | re.MULTILINE)
    return page.replace("## Measured on your own GPU\n", told + "## Measured on your own GPU\n")


def main() -> int:
    """Make the section anew."""
    told = section(PAGE.parent / plots.FOLDER)
    writing.write(PAGE, refreshed(PAGE.read_text(encoding="utf-8"), told), replace=True)
    print("wrote: docs/accuracy-details.md")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
