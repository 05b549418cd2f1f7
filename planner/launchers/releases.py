"""``release_check.py``: a job stops before it starts where its program is of another release than it was written for.

The section ``release`` of a launcher's table has one row a package:

    [release.Megatron-LM]
    tried = ["0.16.1", "0.20.0"]                # releases whose own code has read such files
    checkout = "megatron-lm"                    # of a program that is no package: the setting that names its folder,
    file = "megatron/core/package_info.py"      # and the file in it that says its release
    since = { "0.16" = ["exit-signal"] }        # release -> options that it brought, or what goes together ("a with b")
    state = "components/data/loader.py"         # a file by which a package between two releases is known
    newer = "..."                               # what later releases call otherwise
    clone = "https://... core_v0.16.1"          # where a checkout of the release that was tried comes from
    with = ["torch==2.13.*"]                    # packages that are installed beside it
    from = "NAME @ git+https://...@COMMIT"      # where a package that no index has comes from

Releases between the lowest and the highest that was tried are taken, by their first two numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from planner.launchers import quoting
from planner.launchers.scripts import script
from planner.launchers.target import Exporter, LaunchJob, Values
from planner.schema.launcher_table import launcher_table

NAME = "release_check.py"
KERNELS = {
    "liger-kernel": re.compile(r"\w*liger\w*[:= ]+true|LigerPlugin"),
    "flash-attn --no-build-isolation": re.compile(r"flash_attention_2|flash_attn: fa2"),
}
"""Package of kernels -> how files ask for them."""


def with_check(exporter: Exporter, job: LaunchJob, values: Values) -> LaunchJob:
    """The trainer's job with the file in its folder, which ``start.sh`` runs first."""
    rows: Mapping[str, Mapping[str, Any]] = launcher_table(exporter.name).head.get("release", {})
    if not rows:
        return job
    listed = "".join(f"    {_written_for(name, row, job, values)!r},\n" for name, row in rows.items())
    text = script(NAME, WRITTEN_FOR=f"[\n{listed}]")
    first = (*job.first, f"python3 {NAME}")
    install = (*installing(rows, job, values), *kernels(job))
    newer = "".join(_newer(name, row, job) for name, row in rows.items())
    files = {**job.files, NAME: text}
    return replace(job, files=files, needed=(*job.needed, NAME), first=first, install=install, newer=newer)


def installing(rows: Mapping[str, Mapping[str, Any]], job: LaunchJob, values: Values) -> Iterator[str]:
    """Lines of shell that install the highest release that was tried of each package, or fetch a checkout: of the
    first release that was tried, or the first that has all options of the job.
    """
    packages = [row.get("from", f"{name}=={row['tried'][-1]}") for name, row in rows.items() if "checkout" not in row]
    packages += [package for row in rows.values() for package in row.get("with", ())]
    yield f"python3 -m pip install {' '.join(map(quoting.word, packages))}"
    for row in rows.values():
        if "clone" in row:
            where, tag = row["clone"].split()
            least = max(_since(row, job).values(), key=_numbers, default="0")
            if _numbers(least) > _numbers(row["tried"][0]):
                tag = f"{tag.rpartition('v')[0]}v{least}.0"
            folder = quoting.word(values[row["checkout"]])
            yield f"[ -e {folder} ] || git clone --depth 1 --branch {tag} {where} {folder}"


def kernels(job: LaunchJob) -> Iterator[str]:
    """Lines of shell that install the kernels which a job's files or command switch on and no trainer brings along."""
    text = "\n".join([*job.files.values(), " ".join(job.argv)])
    yield from (f"python3 -m pip install {package}" for package, used in KERNELS.items() if used.search(text))


def by_hand(start: str, job: LaunchJob) -> str:
    """Lines of README: what a job that is started by hand on one machine needs installed, and how its log is kept."""
    if start != "bash start.sh" or not job.install:
        return ""
    kept = f"{start} 2>&1 | tee train.log, which clusterwright learn and estimate --measured read"
    return f"Packages: {quoting.line(' && '.join(job.install))}\nLog: {kept}\n"


def _written_for(name: str, row: Mapping[str, Any], job: LaunchJob, values: Values) -> dict[str, Any]:
    """What is checked of one package, as arguments of the script's ``check``."""
    return {
        "name": name,
        "tried": row["tried"],
        "checkout": f"{values[row['checkout']]}/{row['file']}" if "checkout" in row else None,
        "newer": row.get("newer"),
        "state": row.get("state"),
        "options": _since(row, job),
    }


def _since(row: Mapping[str, Any], job: LaunchJob) -> dict[str, str]:
    """Options of a job, and those that it has together -> the release that brought them."""
    since = {}
    for release, options in row.get("since", {}).items():
        for option in options:
            together = [f"--{name}" for name in option.split(" with ")]
            if set(together) <= set(job.argv):
                since[" with ".join(together)] = release
    return since


def _newer(name: str, row: Mapping[str, Any], job: LaunchJob) -> str:
    """What README says where a job needs a later release than the first that was tried."""
    first = _numbers(row["tried"][0])
    since = {option: release for option, release in _since(row, job).items() if _numbers(release) > first}
    if not since:
        return ""
    return f"; {name} has to be {max(since.values(), key=_numbers)} or later: {', '.join(since)}"


def _numbers(release: str) -> tuple[int, ...]:
    """The first two numbers of a release."""
    return tuple(int(number) for number in release.split(".")[:2])
