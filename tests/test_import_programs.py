"""``import`` of files and commands of programs on PyTorch and JAX: a row a construct, minimal texts of our own."""

from pathlib import Path
from typing import Any

import pytest

from planner.base.errors import WrongQuestion
from planner.launchers.reading.source import Started, detect, read

TITAN = """
[model]
name = "llama3"
flavor = "8B"
[training]
local_batch_size = 2
seq_len = 4096
"""
READ: dict[str, tuple[dict[str, str], dict[str, Any], str]] = {
    # name -> (files, of which the first is imported, what is read, what is told)
    "torchtitan: a command over its file": (
        {"run.sh": "torchrun --nproc_per_node 8 -m torchtitan.train --job.config_file ./a.toml --training.seq_len 8192 "
                   "--activation_checkpoint.mode full --checkpoint.enable", "a.toml": TITAN},
        {"sequence": 8192, "model": "llama3-8b", "ranks": 8, "micro": 2, "recompute": "full"}, ""),
    "torchtitan: every second block": (
        {"a.toml": TITAN}, {"recompute": "selective"}, "every 2. block is recomputed as a whole"),
    "torchtitan: every block": (
        {"a.toml": TITAN + '[activation_checkpoint]\nselective_ac_option = "1"'}, {"recompute": "full"}, ""),
    "torchtitan: 16-bit weights": ({"a.toml": TITAN + 'dtype = "bfloat16"'}, {}, "weights, gradients and moments in 16"),
    "torchtitan: experts in all tensor-parallel ranks": (
        {"a.toml": '[model]\nname = "llama4"\nflavor = "17bx16e"\n[training]\nseq_len = 64\n[parallelism]\n'
                   "tensor_parallel_degree = 8\nexpert_tensor_parallel_degree = 8"},
        {"model": "llama4-scout", "tp": 8, "etp": 8}, ""),
}  # fmt: skip


@pytest.mark.parametrize("name", READ)
def test_what_a_file_states_is_read(name: str, tmp_path: Path) -> None:
    """Settings and fields are the file's; what no plan holds is told."""
    texts, wanted, told = READ[name]
    for file, text in texts.items():
        (tmp_path / file).write_text(text, encoding="utf-8")
    path = str(tmp_path / next(iter(texts)))

    found = read(detect(path), path, Started())

    assert {key: found.settings[key] if key in found.settings else getattr(found, key) for key in wanted} == wanted
    assert told in "\n".join((*found.differs, *found.assumed))


REFUSED = {
    "torchtitan": (TITAN + "[optimizer]\nfollow_fsdp_groups = true", "optimizer.follow_fsdp_groups"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_nobody_knows_is_refused_by_its_name(name: str, tmp_path: Path) -> None:
    """A key that is in no release of a program is its fork's: nothing is known of it."""
    text, says = REFUSED[name]
    path = tmp_path / "a"
    path.write_text(text, encoding="utf-8")

    with pytest.raises(WrongQuestion, match=says.replace(".", r"\.")):
        read(detect(str(path)), str(path), Started())
