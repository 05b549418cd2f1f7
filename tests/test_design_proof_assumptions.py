"""What the bounds of a study's boxes rest on, against every point of random studies, and where they may not be used."""

import math
import random

import pytest

from planner.study.program import boxes
from planner.study.program.evaluation import Evaluator
from planner.study.question.study import LARGER_IS_BETTER
from tests.designing import known, study
from tests.sweeps import sweep

AXES = {
    "accelerator.memory": ("GiB", [16, 24, 32, 48, 80]),
    "accelerator.memory_bandwidth": ("GB/s", [300, 1000, 3350, 30000]),
    "accelerator.peak.bf16": ("TFLOP/s", [60, 400, 990, 1979, 9000]),
    "accelerator.peak.fp8": ("TFLOP/s", [200, 900, 5000]),
    "node.scaleup_bandwidth": ("GB/s", [20, 200, 900, 5000]),
    "node.nic_bandwidth": ("GB/s", [5, 50, 200]),
    "fabric.nic_bandwidth": ("GB/s", [5, 50, 200]),
}
LIMITS = ["", *(f'[[constraints]]\nof = "capital"\n{side} = "$400k"\n' for side in ("at_most", "at_least"))]
LIMITS += [f'[[constraints]]\nof = "step-time"\n{side} = "2 s"\n' for side in ("at_most", "at_least")]


def drawn(seed: int) -> str:
    """A study of three axes that make plans faster and one that is split into its values."""
    rng = random.Random(seed)
    paths = rng.sample(list(AXES), 3)
    axes = [f'"{path}" = [{", ".join(f"{v} {AXES[path][0]}" for v in AXES[path][1])}]' for path in paths]
    axes = [line.replace("[", '["').replace("]", '"]').replace(", ", '", "') for line in axes]
    axes.append(
        rng.choice(['"node.accelerators" = [4, 8]', '"fabric.oversubscription" = [1, 4]', '"node.nics" = [1, 8]'])
    )
    per = [f'"{path}" = "${rng.choice([1, 5, 30])} per {AXES[path][0]}"' for path in paths]
    return "\n".join(
        [
            f'name = "drawn"\nobjectives = ["{rng.choice(["step-time", "cost", "energy", "performance-per-dollar"])}"]',
            f'[base]\nnode = "dgx-h100"\ncount = {rng.choice([1, 4])}\n[axes]',
            *axes,
            f'[[workloads]]\nmodel = "{rng.choice(["llama3-8b", "llama3.2-1b", "qwen3-30b-a3b"])}"\nbatch = 64',
            'pins = ["cp=1", "vpp=1", "offload=none", "micro=1"]',
            '[costs]\nbasis = "purchase"\naccelerator = "$3,000"\nnode = "$20,000"\n[costs.per]',
            *per,
            f'[power]\n"{paths[0]}" = "0.7 W per {AXES[paths[0]][0]}"',
            rng.choice(LIMITS),
        ]
    )


@sweep("seed", range(6), every=3)
def test_the_proven_optimum_is_that_of_every_point(seed: int) -> None:
    asked = study(drawn(seed))
    objective = asked.objectives[0]
    sign = -1.0 if objective in LARGER_IS_BETTER else 1.0
    every = Evaluator(known(), asked).many([asked.point(n) for n in range(asked.size)])
    best = min((sign * each.objectives[objective] for each in every if each.feasible), default=math.inf)
    found = boxes.search(Evaluator(known(), asked), asked.size)
    assert found.complete and found.best == best
    assert found.evaluated + found.bounded_away == asked.size


PEAKS = """
name = "peaks"
objectives = ["step-time"]
[base]
node = "dgx-h100"
count = 1
[axes]
"accelerator.peak.bf16" = ["990 TFLOP/s", "1979 TFLOP/s"]
"accelerator.peak.fp8" = ["500 TFLOP/s", "900 TFLOP/s"]
[[workloads]]
model = "llama3.2-1b"
batch = 64
precision = "bf16"
[costs]
basis = "purchase"
accelerator = "$3,000"
"""


def test_peaks_that_happen_to_be_equal_stay_apart() -> None:
    """The catalog's peak of fp8 is 1,979 TFLOP/s: a bf16 peak of as much is not changed with it."""
    asked = study(PEAKS)
    times = [each.objectives["step-time"] for each in Evaluator(known(), asked).many([(0, 0), (0, 1), (1, 0), (1, 1)])]
    assert times[0] == times[1] > times[2] == times[3]
    found = boxes.search(Evaluator(known(), asked), 99)
    assert found.complete and found.best == times[2]


@pytest.mark.parametrize(
    ("wide", "falling"),
    [
        ("fabric.nic_bandwidth", '"node.nic_bandwidth" = "-$5 per GB/s"'),
        ("accelerator.scaleup_bandwidth", '"node.scaleup_bandwidth" = "-$5 per GB/s"'),
    ],
)
def test_a_price_that_falls_with_a_figure_of_another_name_makes_no_box(wide: str, falling: str) -> None:
    text = PEAKS.replace('"accelerator.peak.fp8" = ["500 TFLOP/s", "900 TFLOP/s"]', f'"{wide}" = ["5 GB/s", "50 GB/s"]')
    plain, turned = study(text), study(f"{text}[costs.per]\n{falling}\n")
    assert (len(boxes.axes(plain)), len(boxes.axes(turned))) == (2, 1)


def test_steps_of_several_batches_make_no_box() -> None:
    """More memory holds the batch of more tokens a second, whose steps are longer."""
    several = PEAKS.replace("batch = 64", 'batch = "2|512"')
    assert boxes.able(study(PEAKS)) and not boxes.able(study(several))
    assert boxes.able(study(several.replace('["step-time"]', '["cost"]')))
