"""A training job for ``torchrun``: ranks whose samples take unequal time, uneven batches planned each epoch.

Prints one JSON line from rank 0: the loss curve, each epoch's shares and median step time. The work of a sample is a
sleep, so that the times hold on a machine with fewer cores than ranks; one rank's is four times as long.
"""

import json
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch import nn

from planner.rebalancing.training import UnevenBatches

EPOCHS, STEPS, BATCH = 4, 6, 64
FAST, SLOW = 10e-3, 40e-3
"""Seconds of a sample."""


def data() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(STEPS * BATCH, 16, generator=generator)
    return inputs, torch.randn(STEPS * BATCH, 1, generator=generator)


def network() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.LayerNorm(64), nn.Linear(64, 1))


def alone() -> list[float]:
    """The loss curve of one process with the whole batch."""
    net, (inputs, labels) = network(), data()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    losses = []
    for _ in range(EPOCHS):
        for step in range(STEPS):
            at = slice(step * BATCH, (step + 1) * BATCH)
            loss = nn.functional.mse_loss(net(inputs[at]), labels[at])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
    return losses


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    each = SLOW if rank == world - 1 else FAST
    shares = UnevenBatches(nn.parallel.DistributedDataParallel(network()), batch=BATCH)
    optimizer = torch.optim.SGD(shares.model.parameters(), lr=0.05)
    inputs, labels = data()
    losses, epochs = [], []
    for _ in range(EPOCHS):
        taken = []
        for step in range(STEPS):
            at = slice(step * BATCH + shares.first, step * BATCH + shares.first + shares.mine)
            dist.barrier()
            started = time.perf_counter()
            with shares.step():
                time.sleep(each * shares.mine)
                loss = nn.functional.mse_loss(shares.model(inputs[at]), labels[at])
                shares.weighted(loss).backward()
            taken.append(time.perf_counter() - started)
            optimizer.step()
            optimizer.zero_grad()
            whole = loss.detach() * shares.mine / BATCH
            dist.all_reduce(whole)
            losses.append(float(whole))
        epochs.append({"shares": list(shares.batches), "step_s": statistics.median(taken)})
        shares.next_epoch()
    if rank == 0:
        found = {"losses": losses, "alone": alone(), "epochs": epochs, "noise": shares.noise.scale,
                 "ideal_s": BATCH / ((world - 1) / FAST + 1 / SLOW), "even_s": BATCH / world * SLOW}  # fmt: skip
        print(json.dumps(found))
        sys.stdout.flush()
    # Together, and with nothing left that holds the group: a rank that goes while another still talks may abort.
    dist.barrier()
    del shares
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
