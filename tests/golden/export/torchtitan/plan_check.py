"""Stops a job before its first step where its model or its mesh is not the plan's; PLAN_CHECK=warn goes on.

``plan_check.py PROGRAM ARGUMENTS`` starts a file or a module under this check.
"""

import os
import runpy
import sys
from math import prod

PLANNED = {
    "parameters": 8030261248,
    "trained": 8030261248,
    "ranks": 64,
    "tp": 1,
    "pp": 1,
    "cp": 1,
    "dp": 64,
    "ep": 1,
    "etp": 1,
    "replicas": 1,
    "shards": 64,
    "zero": 3,
    "vocabulary": 128256,
    "width": 8192,
}


def compare(found, within=0.0):
    """What was built against what was planned, name by name; a share of a number may differ."""
    known = {name: value for name, value in found.items() if PLANNED.get(name) is not None}
    said = ", ".join(f"{name} {value:,} (plan: {PLANNED[name]:,})" for name, value in known.items())
    wrong = any(abs(value - PLANNED[name]) > within * PLANNED[name] for name, value in known.items())
    if wrong and os.environ.get("PLAN_CHECK") != "warn":
        raise SystemExit(f"plan_check: not what was planned, so nothing is trained: {said}; PLAN_CHECK=warn goes on")
    if os.environ.get("RANK", "0") == "0":
        print(f"plan_check: {'NOT what was planned' if wrong else 'as planned'}: {said}", flush=True)


def size(parameter):
    """Numbers of a whole parameter, also where DeepSpeed has sharded or bitsandbytes packed it."""
    state = getattr(parameter, "quant_state", None)
    return getattr(parameter, "ds_numel", None) or (prod(state.shape) if state else parameter.numel())


def before(holder, name, check):
    """Has a function look at its arguments first, once."""
    inner, seen = getattr(holder, name), []

    def checked(*words, **named):
        if not seen and check(*words, **named):
            seen.append(True)
        return inner(*words, **named)

    setattr(holder, name, checked)


def hook():
    """Nothing: what is started compares by itself."""


if __name__ == "__main__":
    program, *sys.argv = sys.argv[1], *sys.argv[1:]
    hook()
    if program.endswith(".py"):
        sys.path[0] = os.path.dirname(os.path.abspath(program))
        runpy.run_path(program, run_name="__main__")
    else:
        sys.path[0] = os.getcwd()
        runpy.run_module(program, run_name="__main__", alter_sys=True)
