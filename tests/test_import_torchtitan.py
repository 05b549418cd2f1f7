"""torchtitan's own configurations and TOML files as plans."""

import pytest

from planner.base.errors import WrongQuestion
from planner.launchers import reading
from planner.launchers.reading.torchtitan import CONFIGS
from planner.models import workload

RUN = "torchrun --nproc_per_node 8 -m torchtitan.train --module llama3 --config llama3_70b"


def test_what_a_configuration_holds_in_code_is_known() -> None:
    """Its 70B recomputes everything and has tensor parallelism of 8; what the command says leads."""
    found = reading.read(reading.detect(RUN), f"{RUN} --training.local_batch_size 4")
    assert (found.model, found.precision, found.sequence, found.ranks) == ("llama3.1-70b", "bf16", 8192, 8)
    assert (found.settings["tp"], found.settings["micro"], found.settings["recompute"]) == (8, 4, "full")
    assert found.assumed == ("--config llama3_70b: as torchtitan 0.3.0 has it (full recomputation, bf16)",)
    assert reading.read("torchtitan", RUN.replace("70b", "405b")).precision == "fp8"
    of_own = reading.read("torchtitan", RUN.replace("llama3_70b", "mine"))
    assert of_own.assumed[0].startswith("--config mine: not torchtitan 0.3.0's own")
    assert "recompute" not in of_own.settings


def test_its_models_are_in_the_library() -> None:
    for name, config in CONFIGS.items():
        assert workload.model(config.model).id == config.model, name


TOML = """
[model]
name = "llama3"
flavor = "8B"
converters = ["float8"]
[training]
batch_size = 2
seq_len = 8192
steps = 1000
compile = true
[parallelism]
tensor_parallel_degree = 2
enable_async_tensor_parallel = false
[experimental]
context_parallel_degree = 2
[activation_checkpoint]
mode = "full"
[optimizer]
lr = 3e-4
"""


def test_an_older_toml_file_is_read() -> None:
    found = reading.read(reading.detect(TOML), TOML)
    assert (found.model, found.precision, found.sequence, found.steps) == ("llama3-8b", "fp8", 8192, 1000)
    assert found.settings == {
        **{"tp": 2, "pp": 1, "cp": 2, "ep": 1, "micro": 2, "zero_scope": "full", "recompute": "full"},
        "tp_overlap": "off",
    }


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (f"{RUN} --parallelism.new_degree 2", "--parallelism.new_degree: may change"),
        (RUN.replace("70b", "8b_first_85_pct_layers_nvfp4"), "4-bit products cannot be taken over"),
        (TOML.replace('"full"', '"some"'), "activation_checkpoint.mode some: choose none, selective, full"),
        (TOML.replace('"float8"', '"awq"'), "model.converters awq: cannot be taken over"),
        (TOML.replace("steps = 1000", "steps ="), "not TOML"),
    ],
)
def test_what_cannot_be_read_is_told(text: str, says: str) -> None:
    with pytest.raises(WrongQuestion) as caught:
        reading.read("torchtitan", text)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("options", "differs"),
    [
        ("", "blocks are not compiled by torch.compile"),
        ("--compile.enable --compile.components loss", "blocks are not compiled by torch.compile"),
        ("--compile.enable --training.mixed_precision_reduce bfloat16", "gradients are reduced in 16 bit"),
        ("--compile.enable --parallelism.disable_loss_parallel", "every tensor-parallel rank holds all logits"),
        ("--compile.enable --training.mixed_precision_reduce float32", None),
    ],
)
def test_kernels_wire_and_logits_are_never_ignored(options: str, differs: str | None) -> None:
    found = reading.read("torchtitan", f"{RUN} {options}")

    assert not set(found.unread) & {word.removeprefix("--") for word in options.split()}
    assert [text.partition(";")[0] for text in found.differs] == ([differs] if differs else [])
