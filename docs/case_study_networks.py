"""Communication by LIBRA's and ASTRA-sim's closed formulas beside ours: the case studies' check of networks."""

from __future__ import annotations

from benchmarks import closed_forms
from docs.case_study_ground import table


def cases() -> str:
    """One row for each workload on each network, with the algorithm that the closed formulas take."""
    rows = [
        [
            row["network"],
            row["workload"],
            *(
                cell
                for name in ("libra", "astra")
                for cell in (
                    f"{row[f'{name}_ms']:.3f}",
                    f"{row[f'ours_as_{name}_ms']:.3f}",
                    f"{abs(row[f'off_{name}_percent']):.1f} %",
                )
            ),
            f"{row['planned_ms']:.3f}",
        ]
        for row in closed_forms.rows()
    ]
    headers = [
        "network",
        "workload",
        "LIBRA, ms",
        "ours",
        "off",
        "ASTRA-sim, ms",
        "ours",
        "off",
        "as plans are charged",
    ]
    return table(headers, rows)


def exchanges() -> str:
    """The all-to-all alone."""
    rows = [
        [
            row["network"],
            row["longest_ring"] or "none",
            f"{row['libra_ms']:.3f}",
            f"{row['planned_pipelined_ms']:.3f}",
            f"{row['planned_pipelined_ms'] / row['libra_ms']:.2f}",
            f"{row['astra_direct_ms']:.3f}",
            f"{row['planned_serial_ms']:.3f}",
            f"{row['astra_ring_ms']:.3f}",
        ]
        for row in closed_forms.exchanges()
    ]
    headers = [
        "network", "longest ring", "LIBRA, ms", "plans, pipelined", "ratio", "ASTRA-sim direct", "plans, one by one",
        "ASTRA-sim ring",
    ]  # fmt: skip
    return table(headers, rows)


def topologies() -> str:
    """What the networks are, in words."""
    told = []
    for case in closed_forms.CASES["network"]:
        dimensions = " x ".join(f"{kind} {n}" for kind, n in zip(case["topology"], case["sizes"], strict=True))
        rates = ", ".join(f"{rate:.0f}" for rate in case["GBps"])
        told.append(f"{case['name']} ({dimensions}; {rates} GB/s)")
    return ", ".join(told)
