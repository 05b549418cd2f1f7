"""Several communication back ends in one training job: every call goes where the plan's rules say, on all ranks alike.

    router = routing.start("plan.json")            # under mpiexec, or under torchrun without MPI
    router.all_reduce(gradients)                   # as torch.distributed.all_reduce
    model.register_comm_hook(None, router.hook)    # DistributedDataParallel

PyTorch and mpi4py are extras (``pip install clusterwright[runtime]``, ``clusterwright[mpi]``) and imported late.
"""

from planner.comm.routing.launch import start
from planner.comm.routing.router import Disagreement, Router
from planner.comm.routing.rules import RoutingRule, of_plan

__all__ = ["Disagreement", "Router", "RoutingRule", "of_plan", "start"]
