"""Which training framework a question means, and which trains what is asked."""

from __future__ import annotations

from planner.base.errors import WrongQuestion
from planner.catalog import Catalog
from planner.schema.hardware import Accelerator, Runtime, dated
from planner.schema.workload import Workload

ADAPTING_RUNTIMES = ("hf-trainer-liger",)
"""The default for adapters: what they are exported to (hf-trainer, trl, axolotl, llama-factory)."""

DEFAULT_RUNTIMES = ("megatron-core", "maxtext", "deepspeed")
"""Which is taken unless one is named: the first that runs on the accelerator."""

RECENT_YEARS = 2.0
"""Releases of the last two years are in use beside the newest."""


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


def older_release(runtime: Runtime) -> str:
    """The oldest release of the years before the newest, or else the one before it; empty if there is none."""
    *earlier, newest = runtime.releases
    recent = [each for each in earlier if (dated(each) or 0.0) >= (dated(newest) or 0.0) - RECENT_YEARS]
    return min(recent, key=lambda each: dated(each) or 0.0) if recent else (earlier or [""])[-1]
