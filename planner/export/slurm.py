"""Slurm: ``job.sbatch``, one task a node, one heterogeneous component a pool.

Options: Slurm 22.05. GPU lines cannot be tried without GPUs; they are held to a golden file.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from planner.export import quoting, start
from planner.export.target import Exporter, Job, Loss, Setting, Values
from planner.schema.plan import Plan, Pool

NAME = "job.sbatch"
LONGEST_H = 7 * 24
"""Time limit that most partitions allow, hours."""


def emit(plan: Plan, job: Job, values: Values) -> Job:
    """A batch script that runs ``start.sh`` once on every node."""
    pools = plan.cluster.pools
    groups = ["\n".join(_request(plan, pool, values)) for pool in pools]
    lines = [
        "#!/usr/bin/env bash",
        f"#SBATCH --job-name={quoting.slug(plan.workload.model)}",
        f"#SBATCH --time={limit(plan)}",
        *([f"#SBATCH --partition={option(values['partition'])}"] if values["partition"] else []),
        *([f"#SBATCH --account={option(values['account'])}"] if values["account"] else []),
        "\n#SBATCH hetjob\n".join(groups),
        "set -euo pipefail",
        "",
        'export MASTER_ADDR="$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)"',
        "export SLURM_CPU_BIND=none",
        f"exec srun {' : '.join(_step(index, pool, len(pools)) for index, pool in enumerate(pools))}",
    ]
    return replace(job, files={**job.files, NAME: "\n".join(lines) + "\n"}, start=f"sbatch {NAME}")


def _request(plan: Plan, pool: Pool, values: Values) -> Iterator[str]:
    """Options of one component."""
    kind = f"{option(values['gpu-type'])}:" if values["gpu-type"] else ""
    yield f"#SBATCH --nodes={pool.count}"
    yield "#SBATCH --ntasks-per-node=1"
    yield f"#SBATCH --gpus-per-node={kind}{pool.accelerators_per_node}"
    yield "#SBATCH --mem=0"
    yield "#SBATCH --exclusive"


def option(text: str) -> str:
    """A value on a #SBATCH line, which has no quoting that all versions share: what is no plain name is refused."""
    from planner.errors import WrongQuestion

    if not all(c.isalnum() or c in "._-,/+" for c in text):
        raise WrongQuestion(f"{quoting.line(text)!r}: letters, digits and . _ - , / + only on a #SBATCH line")
    return text


def _step(index: int, pool: Pool, pools: int) -> str:
    """What ``srun`` starts on one component; SLURM_PROCID counts nodes over all of them."""
    group = f"--het-group={index} " if pools > 1 else ""
    inner = f'NODE_RANK="$SLURM_PROCID" NPROC_PER_NODE={pool.accelerators_per_node} exec bash {start.NAME}'
    return f"{group}--nodes={pool.count} --ntasks={pool.count} bash -c {quoting.word(inner)}"


def limit(plan: Plan) -> str:
    """The predicted days and a tenth more, at most a week, as ``D-HH:MM:SS``."""
    hours = min(_hours(plan), LONGEST_H)
    return f"{hours // 24}-{hours % 24:02d}:00:00"


def _hours(plan: Plan) -> int:
    return max(math.ceil(plan.money.days * 24 * 1.1), 1)


def loses(plan: Plan) -> Iterator[Loss]:
    """A run that is longer than a job may be."""
    if _hours(plan) > LONGEST_H:
        jobs = math.ceil(_hours(plan) / LONGEST_H)
        yield Loss(
            "money.days", f"a job ends after {LONGEST_H // 24} days; submit it {jobs} times (--dependency=singleton)"
        )


EXPORTER = Exporter(
    name="slurm",
    title="Slurm batch script",
    version="22.05.8",
    role="starter",
    expresses={"pools": "any"},
    settings=(
        Setting("partition", "partition to submit to", ""),
        Setting("account", "account that is charged", ""),
        Setting("gpu-type", "type of GPU as the cluster's gres.conf names it", ""),
    ),
    emit=emit,
    loses=loses,
    level="dry-scheduled",
    validated_by="sbatch --test-only, and jobs run on slurmctld and slurmd 22.05.8, without the GPU lines",
)
