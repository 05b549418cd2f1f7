"""SkyPilot: ``task.yaml`` for ``sky launch``. Fields: SkyPilot 0.14.1."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from planner.launchers import quoting
from planner.launchers.target import LaunchJob, Values, by_table
from planner.schema.plan import Plan

NAME = "task.yaml"
ACCELERATORS = {
    "A10G": "A10G",
    "A100-PCIE-40GB": "A100",
    "A100-SXM4-40GB": "A100",
    "A100-PCIE-80GB": "A100-80GB",
    "A100-SXM4-80GB": "A100-80GB",
    "B200-SXM-180GB": "B200",
    "B300-SXM-288GB": "B300",
    "GB200": "GB200",
    "GB300": "GB300",
    "GH200-96GB": "GH200",
    "H100-PCIE-80GB": "H100",
    "H100-SXM5-80GB": "H100",
    "H200-SXM-141GB": "H200",
    "L4": "L4",
    "L40S": "L40S",
    "MI300X": "MI300X",
    "P100-PCIE-16GB": "P100",
    "RTX-4090": "RTX4090",
    "RTX-A6000": "RTXA6000",
    "T4": "T4",
    "V100-PCIE-32GB": "V100-32GB",
    "V100-SXM2-16GB": "V100",
    "V100-SXM2-32GB": "V100-32GB",
}
"""Catalog id -> SkyPilot's name. Its parser takes any name, so one that is not here is refused before it is written."""
SCRIPT = """export NODE_RANK="$SKYPILOT_NODE_RANK"
export MASTER_ADDR="$(printf '%s\\n' "$SKYPILOT_NODE_IPS" | head -n 1)"
bash start.sh
"""


def emit(plan: Plan, job: LaunchJob, values: Values) -> LaunchJob:
    """A task that uploads this folder and runs ``start.sh`` on every node."""
    pool = plan.cluster.pools[0]
    resources: dict[str, Any] = {"accelerators": f"{ACCELERATORS[pool.accelerator]}:{pool.accelerators_per_node}"}
    if values["infra"]:
        resources["infra"] = values["infra"]
    if plan.money.price is not None and plan.money.price.basis == "spot":
        resources["use_spot"] = True
    if job.site.container.image is not None:
        resources["image_id"] = f"docker:{job.site.container.image}"
    if pool.count > 1:
        resources["network_tier"] = "best"
    task = {
        "name": quoting.slug(plan.workload.model),
        "num_nodes": pool.count,
        "resources": resources,
        "workdir": ".",
        "run": SCRIPT,
    }
    return replace(job, files={**job.files, NAME: quoting.yaml(task)}, start=f"sky launch {NAME}")


def refuses(plan: Plan) -> Iterator[str]:
    """Names that SkyPilot would only miss when it looks for a machine."""
    for pool in plan.cluster.pools:
        if pool.accelerator not in ACCELERATORS:
            yield f"it has no known name for {quoting.line(pool.accelerator)}"


EXPORTER = by_table("skypilot", emit=emit, refuses=refuses)
