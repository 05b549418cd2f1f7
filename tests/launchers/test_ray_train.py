"""A plan on two nodes of a Ray cluster, which this machine plays: trained on CPU, every loss as in one process."""

import json
import os
import subprocess
from pathlib import Path

from planner import api
from planner.launchers import bundle, parts, write
from tests.launchers.environments import READERS, python
from tests.launchers.test_training import CLOSE, SCRIPT, apart


def test_a_job_on_two_nodes_trains(tmp_path: Path) -> None:
    interpreter = python("ray-train")
    asked = api.estimate("gpt2", "p5.4xlarge:2", ["zero=0", "micro=2"], runtime="pytorch-ddp", batch="8", seq=16)
    given = {"script": str(SCRIPT), "master-port": str(29600 + os.getpid() % 1000)}
    folder = tmp_path / "job"
    write(folder, {"": bundle(asked.plans[0], parts("torchrun+ray-train"), given)})
    known = os.environ | {"PATH": f"{interpreter.parent}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    known |= {"CLUSTERWRIGHT_PLAN": "plan.json", "RAY_USAGE_STATS_ENABLED": "0"}
    found = []
    for name, words in (("together", [READERS / "run_ray_train.py", folder, "2"]), ("alone", [SCRIPT])):
        here = known | {"LOSSES": str(folder / name)}
        done = subprocess.run(
            [interpreter, *words], cwd=folder, env=here, capture_output=True, text=True, check=False, timeout=600
        )
        assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
        found.append(json.loads((folder / name).read_text(encoding="utf-8")))
    assert found[1][-1] < found[1][0], "it learns nothing"
    assert apart(*found) <= CLOSE
