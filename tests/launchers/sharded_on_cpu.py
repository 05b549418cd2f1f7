"""Runs a script as Accelerate's FSDP2 on CPU: ``sharded_on_cpu.py SCRIPT ARGUMENTS``.

Accelerate knows FSDP on accelerators only; told that the processes have one, it takes the same way with gloo.
"""

import runpy
import sys

import accelerate.state
import torch

torch.distributed.init_process_group("gloo")
state = accelerate.state.PartialState
state._prepare_backend = lambda *_, **__: ("gloo", accelerate.state.DistributedType.MULTI_XPU)
state.set_device = lambda self: setattr(self, "device", torch.device("cpu"))
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
