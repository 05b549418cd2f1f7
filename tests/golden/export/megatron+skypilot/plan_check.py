"""Stops a job before its first step where its model or its mesh is not the plan's; PLAN_CHECK=warn goes on.

``plan_check.py PROGRAM ARGUMENTS`` starts a file or a module under this check.
"""

import os
import runpy
import sys
from math import prod

PLANNED = {
    "parameters": 46702792704,
    "trained": 46702792704,
    "ranks": 256,
    "tp": 2,
    "pp": 1,
    "cp": 1,
    "dp": 128,
    "ep": 8,
    "etp": 2,
    "replicas": 1,
    "shards": 128,
    "zero": 1,
    "vocabulary": 32000,
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


COUNTS = [0, 0, 0]


def hook():
    """Counts every chunk of the model when it is built, and compares before the first step."""
    from megatron.core.models.gpt.gpt_model import GPTModel
    from megatron.training import training

    build, whole = GPTModel.__init__, training.setup_model_and_optimizer

    def counted(model, *words, **named):
        build(model, *words, **named)
        count([model])

    def checked(*words, **named):
        made = whole(*words, **named)
        over_all_ranks()
        return made

    GPTModel.__init__, training.setup_model_and_optimizer = counted, checked


def count(chunks):
    """Parameters of experts, those that tensor parallelism cuts, and those that it does not."""
    for chunk in chunks:
        PLANNED["built"] = chunk.vocab_size
        for name, parameter in chunk.named_parameters():
            kind = 0 if ".experts." in name else 1 if getattr(parameter, "tensor_model_parallel", False) else 2
            COUNTS[kind] += 0 if getattr(parameter, "shared", False) else parameter.numel()


def over_all_ranks():
    """Compares the degrees, and the parameters of all ranks without their copies.

    The embedding is as long as the tokenizer's vocabulary, rounded up: so it is in what was planned.
    """
    import torch
    from megatron.core import parallel_state as mesh

    degrees = {
        "tp": mesh.get_tensor_model_parallel_world_size(),
        "pp": mesh.get_pipeline_model_parallel_world_size(),
        "cp": mesh.get_context_parallel_world_size(),
        "dp": mesh.get_data_parallel_world_size(),
        "ep": mesh.get_expert_model_parallel_world_size(),
        "etp": mesh.get_expert_tensor_parallel_world_size(),
        "ranks": torch.distributed.get_world_size(),
    }
    compare(degrees)
    of_stage = degrees["ranks"] // degrees["pp"]
    copies = of_stage // (degrees["ep"] * degrees["etp"]), of_stage // degrees["tp"], of_stage
    summed = torch.tensor(COUNTS, dtype=torch.int64, device="cuda" if torch.cuda.is_available() else "cpu")
    torch.distributed.all_reduce(summed)
    found = sum(number // times for number, times in zip(summed.tolist(), copies, strict=True))
    words, built = PLANNED["vocabulary"], PLANNED["built"]
    compare({"vocabulary": built}, within=0.03 + 128 * degrees["tp"] / words)
    PLANNED["parameters"] = PLANNED["parameters"] and PLANNED["parameters"] + (built - words) * PLANNED["width"]
    compare({"parameters": found})


if __name__ == "__main__":
    program, *sys.argv = sys.argv[1], *sys.argv[1:]
    hook()
    if program.endswith(".py"):
        sys.path[0] = os.path.dirname(os.path.abspath(program))
        runpy.run_path(program, run_name="__main__")
    else:
        sys.path[0] = os.getcwd()
        runpy.run_module(program, run_name="__main__", alter_sys=True)
