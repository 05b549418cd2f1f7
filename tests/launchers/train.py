"""A small GPT trained on CPU as a plan says; started by the exported ``start.sh``, or alone as the reference.

Reads the plan from ``CLUSTERWRIGHT_PLAN``, as any script under the ``torchrun`` target does: degrees, sharding, layers
of every stage, batch and its share of every pool. Writes its losses, one a step, to ``LOSSES``. The model and the data
come from fixed seeds; width and vocabulary are this script's, the number of layers is the plan's.
"""

import json
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

WIDTH, HEADS, VOCAB, STEPS, RATE = 32, 4, 64, 6, 0.2


class Block(nn.Module):
    """Causal attention and an MLP, each behind a norm."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        y = self.first(x)
        q, k, v = (f(y).unflatten(-1, (-1, WIDTH // HEADS)).transpose(1, 2) for f in (self.q, self.k, self.v))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        x = x + self.o(mixed)
        return x + self.down(functional.gelu(self.up(self.second(x))))


class Model(nn.Module):
    """A GPT, or a stage of one: what is not on the stage is not there."""

    def __init__(self, layers, first=True, last=True):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, WIDTH) if first else nn.Identity()
        self.blocks = nn.ModuleList(layers)
        self.head = nn.Linear(WIDTH, VOCAB) if last else nn.Identity()

    def forward(self, x):
        x = self.embedding(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def whole(layers):
    """The same model on every rank."""
    torch.manual_seed(0)
    return Model([Block() for _ in range(layers)])


def loss_of(logits, targets):
    return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def shares(plan):
    """Sequences of every data-parallel rank, in order: equal in a pool, and together what the plan gives the pool.

    Pipelines that span the pools are all of one kind and have equal shares.
    """
    dp, per_pool = plan["axes"]["dp"], plan["batch"]["per_pool"]
    for group in plan["parallelism"].get("groups", ()):
        return [group["sequences"] // dp] * dp
    ranks = dp // len(per_pool)
    return [batch // ranks for batch in per_pool for _ in range(ranks)]


def train(plan):
    """Losses of every step."""
    p, batch, sequence = plan["axes"], plan["axes"]["batch"], plan["workload"]["sequence"]
    data = torch.randint(VOCAB, (STEPS, batch, sequence + 1), generator=torch.Generator().manual_seed(1))
    model = whole(sum(stage["layers"] for stage in plan["parallelism"]["stages"]))
    if "RANK" not in os.environ:
        return alone(model, data)
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (p["pp"], p["dp"], p["tp"]), mesh_dim_names=("pp", "dp", "tp"))
    own = shares(plan)
    begin = sum(own[: mesh.get_local_rank("dp")])
    mine = data[:, begin : begin + own[mesh.get_local_rank("dp")]]
    weight = mine.shape[1] * p["dp"] / batch if os.environ.get("WEIGHTED", "1") == "1" else 1.0
    run = pipelined if p["pp"] > 1 else replicated
    return run(model, mine, weight, plan, mesh)


def alone(model, data):
    """One process, the whole batch at once."""
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    losses = []
    for step in data:
        loss = loss_of(model(step[:, :-1]), step[:, 1:])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def replicated(model, data, weight, plan, mesh):
    """Data parallelism as the plan shards it, tensor parallelism, accumulation."""
    p, accumulation = plan["axes"], plan["batch"]["accumulation"]
    if p["tp"] > 1:
        split = {
            **dict.fromkeys(("q", "k", "v", "up"), ColwiseParallel()),
            **dict.fromkeys(("o", "down"), RowwiseParallel()),
        }
        for block in model.blocks:
            parallelize_module(block, mesh["tp"], split)
    if p["zero"] == 3:
        for module in (*model.blocks, model):
            fully_shard(module, mesh=mesh["dp"], reshard_after_forward=True)
    elif p["dp"] > 1:
        model = DistributedDataParallel(model, process_group=mesh.get_group("dp"))
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    losses = []
    for step in data:
        total = torch.zeros(())
        for micro in step.chunk(accumulation):
            loss = loss_of(model(micro[:, :-1]), micro[:, 1:]) * weight / accumulation
            loss.backward()
            total += loss.detach()
        optimizer.step()
        optimizer.zero_grad()
        dist.all_reduce(total, group=mesh.get_group("dp"))
        losses.append(total.item() / p["dp"])
    return losses


def pipelined(model, data, weight, plan, mesh):
    """1F1B over stages of the plan's layers, replicas beside each other."""
    p, accumulation = plan["axes"], plan["batch"]["accumulation"]
    rank = mesh.get_local_rank("pp")
    first, last = rank == 0, rank == p["pp"] - 1
    begin = sum(stage["layers"] for stage in plan["parallelism"]["stages"][:rank])
    # torchrun tells the node's number: this stage is on the pool that the plan says.
    nodes = [index for index, pool in enumerate(plan["cluster"]["pools"]) for _ in range(pool["count"])]
    assert nodes[int(os.environ["GROUP_RANK"])] == plan["parallelism"]["stages"][rank]["pool"]
    part = Model(model.blocks[begin : begin + plan["parallelism"]["stages"][rank]["layers"]], first, last)
    part.embedding = model.embedding if first else part.embedding
    part.head = model.head if last else part.head
    stage = PipelineStage(part, rank, p["pp"], torch.device("cpu"), group=mesh.get_group("pp"))
    schedule = Schedule1F1B(stage, accumulation, loss_fn=loss_of)
    optimizer = torch.optim.SGD(part.parameters(), lr=RATE)
    losses = []
    for step in data:
        found: list[torch.Tensor] = []
        if first:
            schedule.step(step[:, :-1])
        else:
            schedule.step(target=step[:, 1:], losses=found)
        for parameter in part.parameters():
            dist.all_reduce(parameter.grad, group=mesh.get_group("dp"))
            parameter.grad /= p["dp"]
        optimizer.step()
        optimizer.zero_grad()
        total = sum(found).detach() / accumulation if last else torch.zeros(())
        dist.all_reduce(total, group=mesh.get_group("dp"))
        losses.append(total.item() / p["dp"])
    return losses if last else None


torch.set_num_threads(1)
found = train(json.loads(Path(os.environ["CLUSTERWRIGHT_PLAN"]).read_text()))
if found and (not dist.is_initialized() or dist.get_rank() == dist.get_world_size() - 1):
    Path(os.environ["LOSSES"]).write_text(json.dumps(found))
if dist.is_initialized():
    # Without an end of its own a rank may be torn down while a thread of Gloo still runs, and abort.
    dist.barrier()
    dist.destroy_process_group()
