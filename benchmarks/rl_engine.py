"""The rollout model beside an engine's own benchmark: no RL step is in it, and nothing is fitted.

``python -m benchmarks.rl_engine``. ``data/engine_throughput.csv`` holds output tokens/s of a replica that TensorRT-LLM
1.0 prints with all requests queued, each of one prompt and one response length, FP8 weights and cache, 95 % of the
memory for weights and cache (NVIDIA/TensorRT-LLM@00f37686, docs/source/performance/perf-overview.md; Llama 3.3 70B has
the shape of 3.1). Mixtures have attention data parallelism (`enable_attention_dp`).
"""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from statistics import fmean, median

import numpy as np

from planner.catalog import load
from planner.cost import generation, response_lengths
from planner.cost.decoding import Rollout
from planner.cost.generation import Demand
from planner.models.workload import find_model
from planner.question.job_pools import JobPool
from planner.question.plan_options import PlanOptions
from planner.rl import constants, measured, problem
from planner.rl.problem import Machines, PostTraining, RLStep

SHARE = 0.95
CACHE_BYTES = 1.0


def main() -> None:
    """Prints measured over predicted seconds, by model and accelerator and by lengths."""
    known = load(None)
    over: dict[str, list[float]] = defaultdict(list)
    with (Path(__file__).parent / "data" / "engine_throughput.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        model = find_model(row["model"])
        prompt, response, requests = (float(row[name]) for name in ("prompt", "response", "requests"))
        count = int(row["tp"])
        lengths = response_lengths.of_values(np.full(1000, response), response)
        demand = Demand(sequences=requests, prompt=prompt, lengths=lengths, samples=1.0)
        engine = constants.engine("tensorrt-llm")
        work = RLStep(task="grpo", model=model, demand=demand, updates=1, reference=False, critic=None, reward=None,
                      steps=1, engine=engine, rollout_precision="fp8")  # fmt: skip
        cluster = measured.accelerators(known, row["accelerator"], count)
        machines = [Machines(pool=JobPool(name="engine", cluster=cluster), usd_per_s=None)]
        asked = PostTraining(known=known, work=work, machines=machines, training=PlanOptions(), replica={}, split=None,
                             tried={}, objective="time", inputs={}, excess=constants.fitted())  # fmt: skip
        served = replace(problem.served(asked, cluster, known.runtime("megatron-core")), cache_bytes=CACHE_BYTES)
        spread = model.moe is not None
        layout = Rollout(tp=np.array([1.0 if spread else count]), groups=np.array([float(count) if spread else 1.0]))
        room = generation.room(served, layout, served.device.memory * SHARE - engine.reserved, 1e6, False)
        predicted_s = float(generation.seconds(served, layout, demand, room, np.array([[requests]]))[0, 0])
        ratio = requests * response / float(row["tokens_per_s"]) / predicted_s
        over[f"{row['model']} on {row['accelerator']}"].append(ratio)
        over[f"{row['prompt']} / {row['response']} tokens"].append(ratio)
        over["all"].append(ratio)
    for name, ratios in over.items():
        logs = [math.log(ratio) for ratio in ratios]
        spread_of = math.exp(float(np.std(logs)))
        print(
            f"{name}: measured over predicted {math.exp(fmean(logs)):.2f} (geometric mean; median "
            f"{median(ratios):.2f}, x/ {spread_of:.2f}) of {len(ratios)}"
        )


if __name__ == "__main__":
    main()
