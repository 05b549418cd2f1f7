"""Start a training job from the JSON of a plan alone: nothing of Clusterwright is imported.

``python start_from_plan.py plan.json train.py --rank-of-node 0 --address node0 --run`` starts ``train.py`` under
torchrun on every accelerator of this node, the plan's degrees and batch in its environment; without ``--run`` it only
says what it would start.
"""

import argparse
import json
import os
import shlex
from pathlib import Path

READS = (1, 2)
"""Versions of the plan's schema that this program reads."""

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("plan", type=Path)
parser.add_argument("script")
parser.add_argument("--rank-of-node", type=int, default=0)
parser.add_argument("--address", default="127.0.0.1")
parser.add_argument("--run", action="store_true")
asked = parser.parse_args()

document = json.loads(asked.plan.read_text(encoding="utf-8"))
plan = document["plans"][0] if document["kind"] == "plan-set" else document
if plan["schema_version"] not in READS:
    parser.error(f"{asked.plan}: schema version {plan['schema_version']}; this program reads 1 and 2")

pools, cut = plan["cluster"]["pools"], plan["parallelism"]
axes = plan.get("axes")
if axes is None:  # Version 1 has the axes in sections.
    axes = {**cut, **plan["batch"], "batch": plan["batch"]["global"], "zero": cut["zero_stage"]}
    axes |= {"precision": plan["precision"]}
nodes = [pool["accelerators_per_node"] for pool in pools for _ in range(pool["count"])]
alike = axes["tp"] * axes["pp"] * axes["cp"] * axes["dp"] == sum(nodes)
if len(cut.get("groups", ())) > 1 or not alike:
    parser.error(f"{asked.plan}: its groups of pipelines are cut differently; this program starts ranks that are alike")

told = {name.upper(): str(axes[name]) for name in ("tp", "pp", "cp", "dp", "ep", "precision")}
told |= {"GLOBAL_BATCH": str(axes["batch"]), "MICRO_BATCH": str(axes["micro"]), "ZERO_STAGE": str(axes["zero"])}
told |= {"LAYERS_OF_STAGES": ",".join(str(stage["layers"]) for stage in cut["stages"]), **plan["env"]}
command = ["torchrun", f"--nnodes={len(nodes)}", f"--nproc-per-node={nodes[asked.rank_of_node]}"]
command += [f"--node-rank={asked.rank_of_node}", f"--master-addr={asked.address}", "--master-port=29500", asked.script]
print(shlex.join([*(f"{name}={value}" for name, value in told.items()), *command]))
if asked.run:
    os.execvpe(command[0], command, os.environ | told)
