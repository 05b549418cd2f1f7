"""torchtitan's benchmark on random tokens: its own parser takes the module, which yields batches and reads nothing."""

import json
from pathlib import Path

from planner import api
from planner.launchers import bundle, parts, write
from planner.launchers.benchmark import short
from tests.launchers.environments import ask, python

PLAN = ("llama3-8b", "dgx-h100:1", ["pp=2", "tp=2", "micro=2"])


def test_batches_need_no_files(tmp_path: Path) -> None:
    python("torchtitan")
    plan = api.estimate(*PLAN, runtime="fsdp2", batch="64", seq=512).plans[0]
    made = bundle(plan, parts("torchtitan"), {}, short)
    write(tmp_path / "job", {"": made})
    argv = json.loads(made.files["target.json"])["argv"]
    (found,) = ask("torchtitan_data", [{"folder": str(tmp_path / "job"), "argv": argv}], tmp_path)
    vocab, size = plan.workload.shape["vocab"], [plan.batch.micro, 512]
    assert found == {"values": {"tokens": size, "labels": size, "positions": 511, "inside": True, "vocab": vocab}}
