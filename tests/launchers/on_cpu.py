"""Copied into a job's folder as ``sitecustomize.py``: programs that need a GPU train in processes that have none.

What is replaced is the device, and what has no kernel on a CPU; the programs' own models, optimizers, sharding and
loops run. Megatron-LM: what it asks CUDA for lies in host memory, streams and events do nothing, its index builder is
the wheel's and its fused kernels are not compiled. torchtitan: the device is ``cpu``, flex attention is not asked for
it (the eager form has a backward pass), and gradients are summed, for gloo cannot scale. Accelerate shards as it
does on an accelerator.
"""

import collections
import importlib.util
import os
import pathlib
import sys
import sysconfig
import types

PROPERTIES = types.SimpleNamespace(total_memory=2**34, name="CPU", major=9, minor=0, multi_processor_count=1)


class Nothing:
    """Stands for a stream or an event: whatever is called on it does nothing."""

    def __init__(self, *_, **__):
        """Takes anything."""

    def __getattr__(self, name):
        return lambda *_, **__: None

    def elapsed_time(self, _):
        return 0.0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None


def nothing(*_, **__):
    """Takes anything, does nothing."""


def megatron_lm(torch):
    """Maps ``torch.cuda`` to host memory: the functions that Megatron-LM calls, and every ``device=`` of a tensor."""

    def on_cpu(value):
        is_cuda = str(value).startswith("cuda") if isinstance(value, str | torch.device) else False
        return torch.device("cpu") if is_cuda else value

    class OnCpu(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function, _, arguments=(), named=None):
            if function is torch.Tensor.cuda:
                return arguments[0]
            if function is torch.Tensor.type and len(arguments) == 1 and not named:
                return function(*arguments).replace("torch.", "torch.cuda.")
            named = {name: on_cpu(value) for name, value in (named or {}).items()}
            return function(*map(on_cpu, arguments), **named)

    OnCpu().__enter__()
    cuda = torch.cuda
    torch.nn.Module.cuda = lambda module, *_: module
    cuda.is_available, cuda.device_count = lambda: True, lambda: int(os.environ["LOCAL_WORLD_SIZE"])
    cuda.current_device, cuda.get_device_name = lambda: torch.device("cpu"), lambda *_: "CPU"
    cuda.get_device_capability, cuda.get_device_properties = lambda *_: (9, 0), lambda *_: PROPERTIES
    cuda.get_rng_state = cuda.random.get_rng_state = lambda *_, **__: torch.get_rng_state()
    cuda.memory_stats = lambda *_: collections.defaultdict(int)
    cuda.Stream = cuda.Event = Nothing
    cuda.current_stream = cuda.default_stream = cuda.stream = Nothing
    seeds = ("manual_seed", "manual_seed_all", "set_rng_state")
    for name in ("set_device", "synchronize", "empty_cache", "reset_peak_memory_stats", "set_stream", *seeds):
        setattr(cuda, name, lambda *_, **__: None)  # each its own: torch._dynamo lists functions by identity
    for name in ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved"):
        setattr(cuda, name, lambda *_: 0)
    for name in ("Float", "Long", "Int", "BFloat16", "Half", "Byte", "Bool"):
        setattr(cuda, f"{name}Tensor", getattr(torch, f"{name}Tensor"))
    kernels = types.ModuleType("megatron.legacy.fused_kernels")
    kernels.load = nothing
    sys.modules[kernels.__name__] = kernels
    (built,) = pathlib.Path(sysconfig.get_path("purelib"), "megatron/core/datasets").glob("helpers_cpp*.so")
    spec = importlib.util.spec_from_file_location("megatron.core.datasets.helpers_cpp", built)
    sys.modules[spec.name] = helpers = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(helpers)


def torchtitan(torch):
    """Makes ``cpu`` the device of torchtitan 0.3.0."""
    import torch.nn.attention.flex_attention as flex
    from torch.distributed.fsdp import FSDPModule

    divide = FSDPModule.set_gradient_divide_factor

    def summed(module, factor):
        module.set_force_sum_reduction_for_comms(True)
        divide(module, factor)

    FSDPModule.set_gradient_divide_factor = summed
    flex._validate_device = nothing
    torch._utils._get_available_device_type = lambda: "cpu"
    cpu = torch.cpu
    cpu.current_device, cpu.get_device_name = lambda: 0, lambda *_: "CPU"
    cpu.get_device_properties = lambda *_: PROPERTIES
    cpu.memory_stats = lambda *_: {"active_bytes.all.peak": 0, "reserved_bytes.all.peak": 0}
    cpu.reset_peak_memory_stats = cpu.empty_cache = nothing


def accelerate(torch):
    """Accelerate knows FSDP on accelerators only: told that there is one, it takes the same way with gloo."""
    import accelerate.state

    torch.distributed.init_process_group("gloo")
    state = accelerate.state.PartialState
    state._prepare_backend = lambda *_, **__: ("gloo", accelerate.state.DistributedType.MULTI_XPU)
    state.set_device = lambda self: setattr(self, "device", torch.device("cpu"))


if "RANK" in os.environ:
    import torch.overrides

    {"megatron": megatron_lm, "torchtitan": torchtitan}.get(os.environ["ON_CPU"], accelerate)(torch)
