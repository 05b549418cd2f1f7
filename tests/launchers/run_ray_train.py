"""Run by Ray's environment: an exported script on a Ray cluster of this machine. ``run_ray_train.py FOLDER NODES``."""

import os
import runpy
import sys

import ray
from ray.cluster_utils import Cluster

folder, nodes = sys.argv[1:]
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "num_gpus": 0, "include_dashboard": False})
for _ in range(int(nodes)):
    cluster.add_node(num_cpus=1, num_gpus=1)  # so many there are by name: Ray does not look for them
ray.init(address=cluster.address)
os.chdir(folder)
runpy.run_path("ray_train.py", run_name="__main__")
ray.shutdown()  # before the cluster goes, which would end this process with an error
cluster.shutdown()
