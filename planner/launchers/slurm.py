"""Slurm: ``job.sbatch``, one task a node, one heterogeneous component a pool.

Options: Slurm 22.05. GPU lines cannot be tried without GPUs: :func:`lint` reads them back, a golden file holds them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import PurePosixPath as Path

from planner.base.errors import WrongQuestion
from planner.launchers import plan_facts, quoting, skypilot_and_dstack, time_limit, torchrun
from planner.launchers.target import EnvironmentSetting, LaunchJob, Loss, Values, by_table, of_pool, placeholder
from planner.schema.plan import Plan, Pool

NAME = "job.sbatch"
HANDLES = "--exit-signal-handler"
"""Option of a trainer that saves and ends when Slurm sends it ``SIGUSR1``, which torchrun and bash let pass."""


def emit(plan: Plan, job: LaunchJob, values: Values) -> LaunchJob:
    """A batch script that runs ``start.sh`` once on every node.

    Raises:
        WrongQuestion: a value that a #SBATCH line cannot hold, or one type of GPU for pools of several.
    """
    pools = plan.cluster.pools
    pool_names = plan_facts.pool_names(plan)
    if values["gpu-type"] and _unlike(plan):
        each = " ".join(f"--set {of_pool(name, 'gpu-type')}=..." for name in pool_names)
        raise WrongQuestion(f"--set gpu-type: the pools have different accelerators; write {each}")
    groups = [
        "\n".join(_request(plan, job, pool, name, values)) + "\n" for pool, name in zip(pools, pool_names, strict=True)
    ]
    first = "SLURM_JOB_NODELIST" if len(pools) == 1 else "SLURM_JOB_NODELIST_HET_GROUP_0"
    lines = [
        "#!/usr/bin/env bash",
        f"#SBATCH --job-name={quoting.slug(plan.workload.model)}",
        "#SBATCH hetjob\n".join(groups) + "set -euo pipefail",
        "",
        *_next_job(plan, job, values),
        f'export MASTER_ADDR="$(scontrol show hostnames "${first}" | head -n 1)"',
        "export SLURM_CPU_BIND=none",
        f"exec srun {' : '.join(_step(job, index, pool, len(pools)) for index, pool in enumerate(pools))}",
    ]
    text = "\n".join(lines) + "\n"
    lint(text, [plan_facts.hosts(pool)[1] for pool in pools])
    lost = _no_containers(job)
    return replace(job, files={**job.files, NAME: text}, start=f"sbatch {NAME}", losses=(*job.losses, *lost))


def _no_containers(job: LaunchJob) -> tuple[Loss, ...]:
    """An image that nothing would start."""
    if job.site.container.image is None or job.site.slurm.containers:
        return ()
    return (Loss("site container.image", 'no container is started unless site.toml says [slurm] containers = "pyxis"'),)


def _request(plan: Plan, job: LaunchJob, pool: Pool, name: str, values: Values) -> Iterator[str]:
    """Options of one component; each says its own, so none depends on what Slurm hands on from the first."""
    kind, partition = (values[of_pool(name, setting)] or values[setting] for setting in ("gpu-type", "partition"))
    yield f"#SBATCH --time={MEASURED if job.benchmark else limit(time_limit.job_s(plan, values))}"
    if not job.benchmark:
        yield "#SBATCH --requeue"
        if (jobs := time_limit.jobs(plan, values)) > 1 and len(plan.cluster.pools) == 1:
            yield f"#SBATCH --array=1-{jobs}%1"
        if HANDLES in job.argv:
            yield f"#SBATCH --signal=USR1@{time_limit.ending_s(plan, values)}"
    if partition:
        yield f"#SBATCH --partition={option(partition)}"
    if values["account"]:
        yield f"#SBATCH --account={option(values['account'])}"
    yield from _of_site(job)
    count, per_host = plan_facts.hosts(pool)
    if (rack := plan_facts.trays(pool)) and job.site.slurm.segment is None:
        yield f"#SBATCH --segment={rack}"
    yield f"#SBATCH --nodes={count}"
    yield "#SBATCH --ntasks-per-node=1"
    yield f"#SBATCH --gpus-per-node={gpus(kind, name, per_host)}"
    yield "#SBATCH --mem=0"
    yield "#SBATCH --exclusive"


def _of_site(job: LaunchJob) -> Iterator[str]:
    """Options that a site's profile says."""
    slurm = job.site.slurm
    for name in ("qos", "reservation", "constraint", "switches", "segment"):
        if (value := getattr(slurm, name)) is not None:
            yield f"#SBATCH --{name}={option(str(value), '&|*()[]')}"
    if job.site.storage.logs:
        yield f"#SBATCH --output={option(job.site.storage.logs)}/%x-%j.log"


def gpus(kind: str, name: str, count: int) -> str:
    """``TYPE:COUNT``, or the count alone of any type; a type that is still to be filled in stays its placeholder."""
    left = placeholder(of_pool(name, "gpu-type"))
    return f"{left if kind == left else option(kind)}:{count}" if kind else str(count)


GPU_LINE = re.compile(r"#SBATCH --gpus-per-node=(?:(?P<type>(?=[^:]*[A-Za-z])[\w.-]+):)?(?P<count>[1-9]\d*)", re.ASCII)
"""A whole line as sbatch reads it: a type has a letter (Slurm would take it for the number), lists are no type."""


NAMED = re.compile(r"#SBATCH --(partition|account|qos|reservation|constraint|output|job-name)=")
"""Lines whose value is a name of the site's, which may hold any word."""


def lint(text: str, counts: Sequence[int]) -> None:
    """Slurm refuses GPU lines only where the nodes have other GPUs: held to its grammar and the plan's pools here.

    Args:
        text: The batch script.
        counts: GPUs of a node, component by component.

    Raises:
        WrongQuestion: a line that is none, is missing or doubled, or asks for another number.
    """
    components = text.split("\n#SBATCH hetjob\n")
    if len(components) != len(counts):
        raise WrongQuestion(f"{NAME}: {len(components)} components for {len(counts)} pools")
    for index, (component, count) in enumerate(zip(components, counts, strict=True)):
        lines = [
            line
            for line in component.splitlines()
            if line.startswith("#SBATCH") and not NAMED.match(line) and "gpu" in line.lower()
        ]
        if len(lines) != 1:
            raise WrongQuestion(f"{NAME}: component {index} has {len(lines)} lines that ask for GPUs; one is expected")
        found = GPU_LINE.fullmatch(re.sub(r"=<[^<>]*>:", "=filled-in:", lines[0]))
        if found is None:
            raise WrongQuestion(
                f"{NAME}: {quoting.line(lines[0])}: write --gpus-per-node=TYPE:COUNT or COUNT; a type is of "
                "letters, digits and . _ - with a letter in it"
            )
        if int(found["count"]) != count:
            raise WrongQuestion(f"{NAME}: {lines[0]}: nodes of component {index} have {count} accelerators")


def option(text: str, more: str = "") -> str:
    """A value on a #SBATCH line, which has no quoting that all versions share.

    Raises:
        WrongQuestion: it is no plain name.
    """
    if not all(c.isalnum() or c in f"._-,/+{more}" for c in text):
        signs = " ".join(f"._-,/+{more}")
        raise WrongQuestion(f"{quoting.line(text)!r}: letters, digits and {signs} only on a #SBATCH line")
    return text


def _step(job: LaunchJob, index: int, pool: Pool, pools: int) -> str:
    """What ``srun`` starts on one component; SLURM_PROCID counts nodes over all of them."""
    group = f"--het-group={index} " if pools > 1 else ""
    count, per_host = plan_facts.hosts(pool)
    inner = f'NODE_RANK="$SLURM_PROCID" NPROC_PER_NODE={per_host} exec bash {torchrun.NAME}'
    inner = f'trap "" USR1; {inner}' if HANDLES in job.argv else inner
    return f"{group}{_container(job)}--nodes={count} --ntasks={count} bash -c {quoting.word(inner)}"


def _container(job: LaunchJob) -> str:
    """Options of pyxis: the site's image with its mounts, its checkpoints, and the submitted folder.

    Checkpoints have to outlive the container, for the next job of a run continues from them.
    """
    container, saved = job.site.container, job.site.storage.checkpoints
    if job.site.slurm.containers is None or container.image is None:
        return ""
    inside = [Path(mount.split(":")[1]) for mount in container.mounts]
    apart = saved and not any(Path(saved).is_relative_to(folder) for folder in inside)
    listed = [*container.mounts, *([f"{saved}:{saved}"] if apart else [])]
    mounts = quoting.word(",".join(listed)) + "," if listed else ""
    image = quoting.word(container.image)
    return f'--container-image={image} --container-mounts={mounts}"$PWD:$PWD" --container-workdir="$PWD" '


MEASURED = "0-00:30:00"
"""Time limit of a job that only measures a few steps: loading and compiling take longer than they."""


def limit(seconds: int) -> str:
    """A time limit as ``D-HH:MM:SS``."""
    minutes, rest = divmod(seconds, 60)
    return f"{minutes // 1440}-{minutes // 60 % 24:02d}:{minutes % 60:02d}:{rest:02d}"


def _next_job(plan: Plan, job: LaunchJob, values: Values) -> Iterator[str]:
    """Lines that queue the next job of a run over several pools: Slurm has no arrays of heterogeneous jobs.

    A job that is requeued has queued it before.
    """
    jobs = time_limit.jobs(plan, values)
    if job.benchmark or jobs == 1 or len(plan.cluster.pools) == 1:
        return
    yield f"# The run takes {jobs} jobs: each queues the next, which starts after it."
    yield f"if ((${{JOB_OF_RUN:=1}} < {jobs} && ${{SLURM_RESTART_COUNT:-0}} == 0)); then"
    yield f'  JOB_OF_RUN=$((JOB_OF_RUN + 1)) sbatch --dependency="afterany:$SLURM_JOB_ID" {NAME}'
    yield "fi"


def _unlike(plan: Plan) -> bool:
    return len({pool.accelerator for pool in plan.cluster.pools}) > 1


def of_pools(plan: Plan) -> Iterator[EnvironmentSetting]:
    """Partition and type of GPU of each pool.

    Where pools differ in their accelerators, a component without a type could get the other's nodes: types are then the
    usual names (``h100``), or placeholders where two pools would get the same or none is known.
    """
    usual = _usual_types(plan)
    for name, kind in zip(plan_facts.pool_names(plan), usual, strict=True):
        known = kind if kind and usual.count(kind) == 1 else None
        says = "its type of GPU as the cluster's gres.conf names it"
        yield EnvironmentSetting(of_pool(name, "gpu-type"), f"{says}, for {name}", known if _unlike(plan) else "")
        yield EnvironmentSetting(of_pool(name, "partition"), f"partition of {name}", "")


def _usual_types(plan: Plan) -> list[str]:
    """What each pool's GPUs are usually called in gres.conf; empty where none is known."""
    return [skypilot_and_dstack.DSTACK_NAMES.get(pool.accelerator, "").lower() for pool in plan.cluster.pools]


def typed(plan: Plan) -> dict[str, str]:
    """The type of GPU as a setting, of a plan on one pool of a cluster with others: it could get the others' nodes."""
    kind = _usual_types(plan)[0]
    return {"gpu-type": kind} if kind and len(plan.cluster.pools) == 1 else {}


EXPORTER = by_table("slurm", emit=emit, of_pools=of_pools)
