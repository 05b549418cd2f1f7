"""``site.toml``: what every job of a site needs and no plan says. Data for the schedulers of ``export``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import ConfigDict, Field

from planner.base.typed import reads
from planner.question.typed_file import TypedFile, opened
from planner.question.values import TABLE, quantity

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def word(text: object) -> str:
    """One line of text, with nothing in it that a script would read as its end."""
    if not isinstance(text, str) or not text.strip():
        raise ValueError(f"{text!r}: must be some text")
    if not text.isprintable():
        raise ValueError(f"{text!r}: must be one line of printable text")
    return text


def mount(text: object) -> str:
    """``/on/the/node:/in/the/container``, with ``:ro`` behind it where nothing may be written."""
    value = word(text)
    if not re.fullmatch(r"/[^:,]*:/[^:,]*(:ro)?", value):
        raise ValueError(f"{value!r}: write '/on/the/node:/in/the/container'")
    return value


def variables(table: object) -> Mapping[str, str]:
    """Environment variables by name."""
    if not isinstance(table, dict):
        raise ValueError("expected a table of NAME = 'value'")
    for name, value in table.items():
        if not _VARIABLE.fullmatch(name):
            raise ValueError(f"{name!r}: letters, digits and _ only, and no digit first")
        word(value)
    return dict(table)


def claim(text: object) -> str:
    """``name-of-a-claim:/in/the/container``."""
    value = word(text)
    if not re.fullmatch(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?:/[^:,]*", value):
        raise ValueError(f"{value!r}: write 'name-of-a-claim:/in/the/container'")
    return value


def counts(table: object) -> Mapping[str, int]:
    """Resources of a node, each by its name."""
    if not isinstance(table, dict):
        raise ValueError("expected a table of 'NAME' = COUNT")
    for name, value in table.items():
        if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9./_-]*[A-Za-z0-9])?", name):
            raise ValueError(f"{name!r}: not a name of a resource, such as 'rdma/ib'")
        if type(value) is not int or not 0 < value <= 1000:
            raise ValueError(f"{name} = {value!r}: must be a whole number from 1 to 1000")
    return dict(table)


Word = Annotated[str, reads(word)]


@dataclass(frozen=True, kw_only=True)
class ContainerProfile:
    """What jobs run in."""

    __pydantic_config__: ClassVar[ConfigDict] = TABLE

    image: Word | None = None
    """None: whatever the nodes have."""
    mounts: tuple[Annotated[str, reads(mount)], ...] = ()
    shared_memory: Annotated[float | None, reads(partial(quantity, "bytes"))] = None
    """Bytes of ``/dev/shm``."""


@dataclass(frozen=True, kw_only=True)
class SlurmProfile:
    """What ``sbatch`` is told besides what the plan says."""

    __pydantic_config__: ClassVar[ConfigDict] = TABLE

    partition: Word | None = None
    account: Word | None = None
    time_limit: Word | None = None
    """Longest time of one job, such as ``24 h``; None: a week."""
    qos: Word | None = None
    reservation: Word | None = None
    constraint: Word | None = None
    """Features that nodes need, ``--constraint``."""
    switches: Annotated[int, Field(ge=1, le=1000, strict=True)] | None = None
    """Most leaf switches that a job may be spread over."""
    segment: Annotated[int, Field(ge=1, le=1000, strict=True)] | None = None
    """Nodes that must lie in one block of Slurm's block topology (an NVL72 rack has 18), ``--segment``."""
    containers: Literal["pyxis"] | None = None
    """What starts the image: ``srun --container-image`` (pyxis and enroot); None: nothing does."""


@dataclass(frozen=True, kw_only=True)
class KubernetesProfile:
    """What pods are told besides what the plan says."""

    __pydantic_config__: ClassVar[ConfigDict] = TABLE

    namespace: Word | None = None
    queue: Word | None = None
    """Queue of Kueue, KAI or Volcano."""
    topology: Word | None = None
    """Level of Kueue's topology, or KAI's, that a pool's pods should share, a label of nodes."""
    kai_topology: Word | None = None
    """Name of KAI's topology; that scheduler then places all pods but Volcano's and those of a TrainJob's runtime."""
    claims: tuple[Annotated[str, reads(claim)], ...] = ()
    """Persistent volume claims, each with where it is mounted."""
    resources: Annotated[Mapping[str, int], reads(counts)] = field(default_factory=dict)
    """Devices that a pod asks for, a node with all its accelerators: RDMA devices, EFA interfaces."""
    capabilities: tuple[Word, ...] = ()
    """Linux capabilities: RDMA registers memory, which needs ``IPC_LOCK``."""
    host_network: Annotated[bool, Field(strict=True)] = False


@dataclass(frozen=True, kw_only=True)
class StorageProfile:
    """Folders that all nodes see."""

    __pydantic_config__: ClassVar[ConfigDict] = TABLE

    checkpoints: Word | None = None
    logs: Word | None = None


@dataclass(frozen=True, kw_only=True)
class SiteProfile:
    """A whole ``site.toml``; what it leaves out stays as it is without it."""

    __pydantic_config__: ClassVar[ConfigDict] = TABLE

    name: Word = "site"
    """As reports and rows of measured runs call it."""
    container: ContainerProfile = field(default_factory=ContainerProfile)
    slurm: SlurmProfile = field(default_factory=SlurmProfile)
    kubernetes: KubernetesProfile = field(default_factory=KubernetesProfile)
    storage: StorageProfile = field(default_factory=StorageProfile)
    environment: Annotated[Mapping[str, str], reads(variables)] = field(default_factory=dict)
    """Environment variables of every process of a job."""
    before: tuple[Word, ...] = ()
    """Commands that every node runs before the training starts."""


def read(path: Path) -> SiteProfile:
    """The profile in a file.

    Raises:
        WrongQuestion: it cannot be read; every problem of it, with file, line and key.
    """
    file = TypedFile(document=opened(path))
    profile = file.record(SiteProfile)
    file.done()
    assert profile is not None
    return profile


TEMPLATE = """\
# What every job of this site needs and no plan says. `clusterwright export --site` applies it to all schedulers.
# All of it is optional: drop the # in front of what holds here.

name = "{name}"                      # as reports and measured runs call this site

# before = ["module load cuda"]      # commands that every node runs before the training starts

[container]
# image = "registry.example/train:26.04"
# mounts = ["/data:/data:ro", "/checkpoints:/checkpoints"]
# shared_memory = "64 GiB"           # size of /dev/shm

[slurm]
# partition = "gpu"
# account = "research"
# time_limit = "24 h"                # longest job: a longer run is several, one after the other
# qos = "high"
# reservation = "maintenance"
# constraint = "h100&ib"             # features that nodes need
# switches = 1                       # most leaf switches that a job is spread over
# segment = 16                       # nodes in one block of the topology (NVL72)
# containers = "pyxis"               # srun starts the image (pyxis, enroot); without it nothing does

[kubernetes]
# namespace = "training"
# queue = "research"                 # of Kueue, KAI or Volcano
# topology = "cloud.google.com/gce-topology-block"  # level of Kueue's topology that pods should share
# kai_topology = "cluster-topology"  # name of KAI's topology: KAI places the pods, by the level
# claims = ["shared-data:/checkpoints"]  # persistent volume claims
# resources = {{ "rdma/ib" = 8 }}      # of a node, with its accelerators; on AWS "vpc.amazonaws.com/efa" = 32
# capabilities = ["IPC_LOCK"]        # RDMA registers memory
# host_network = true

[storage]                            # folders that all nodes see
# checkpoints = "/checkpoints"
# logs = "/checkpoints/logs"

[environment]                        # of every process of a job
# NCCL_IB_HCA = "mlx5"
"""
"""What ``clusterwright init site`` writes: every key of :class:`SiteProfile`, commented out."""
