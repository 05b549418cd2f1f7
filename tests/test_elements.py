"""What a precision makes of bytes: 32-bit training moves and holds twice what 16-bit training does, and no copies."""

from dataclasses import replace

import pytest

from planner import api, verify
from planner.axes.options import option_values
from planner.cost import attention, data_parallel, elements, experts, micro_batch, pipeline, stage_memory, transformer
from planner.cost.figures import Grid
from planner.cost.layer_activations import layer_activations
from planner.schema.plan import Plan
from planner.space.cost_grid import single_grid
from tests.cases import figures
from tests.sweeps import sweep

LAYOUT = {"tp": 2, "pp": 2, "vpp": 1, "cp": 1, "ep": 1, "etp": 1, "dp": 2, "micro": 2, "batch": 16, "nodes": 1}


def grid(precision: str, runtime: str = "megatron-core", zero: int = 0) -> Grid:
    of = figures("gpt2-medium", "dgx-a100-40gb:1", runtime, precisions=(precision,))
    options = option_values(precision=precision, sequence_parallel=True, zero=zero)
    return single_grid(of, LAYOUT, options)


@sweep("size", [
    micro_batch.region_bytes, transformer.embedding_bytes, attention.vector_bytes, pipeline.transfer_bytes,
    lambda of: transformer.mlp_vector_bytes(of, of.shape.ffn), lambda of: experts.dispatch(of).bytes_sent,
    lambda of: layer_activations(replace(of, shape=replace(of.shape, dropout=0.0)), 0.0).kept,
])  # fmt: skip
def test_what_is_moved_is_twice_as_wide(size) -> None:
    assert size(grid("fp32")) == 2 * size(grid("bf16"))


def test_masks_of_dropout_stay_bytes() -> None:
    wide, narrow = ({d: layer_activations(replace(of, shape=replace(of.shape, dropout=d)), 0.0).full
                     for d in (0.0, 1.0)} for of in (grid("fp32"), grid("bf16")))  # fmt: skip
    assert wide[1.0] - wide[0.0] == narrow[1.0] - narrow[0.0] > 0


@pytest.mark.parametrize(("runtime", "narrow", "wire"), [("megatron-core", 18.0, 4.0), ("deepspeed", 16.0, 2.0)])
def test_weights_in_32_bit_are_their_own_master_copy(runtime: str, narrow: float, wire: float) -> None:
    """Rajbhandari et al. 2020: 2 + 2 + 12 bytes in 16 bit; 4 + 4 + 8 in 32."""
    for precision, each, sent in (("bf16", narrow, wire), ("fp32", 16.0, 4.0)):
        of = grid(precision, runtime)
        held = data_parallel.stage_parameters(of, pipeline.split(of.shape, of.layout))[0].dense
        first = stage_memory.stages(of, pipeline.split(of.shape, of.layout))[0]
        assert first.parameters + first.gradients + first.optimizer == pytest.approx(each * held)
        assert data_parallel.gradient_bytes(of, 10.0) == 10.0 * sent
    assert elements.step_bytes(grid("bf16")) - elements.step_bytes(grid("fp32")) == 2.0


def test_weights_that_working_copies_are_gathered_from_stay() -> None:
    of = grid("fp32", "fsdp2", zero=3)
    assert elements.master_bytes(of) == of.shape.master_bytes == 4.0
    assert data_parallel.gathered_bytes(of, 10.0) == 40.0


@sweep("size", [attention.vector_bytes, experts.vector_bytes, lambda of: transformer.mlp_vector_bytes(of, 1024.0)])
def test_casts_grow_with_the_runtimes_factor(size) -> None:
    """Bytes beyond those without casts are in proportion to ``low_precision_cast``."""
    options = option_values(precision="fp8", sequence_parallel=True)
    whole = figures("mixtral-8x7b", "dgx-h100:1", "megatron-core", precisions=("fp8",))
    of = single_grid(whole, {**LAYOUT, "pp": 1, "dp": 4, "ep": 4}, options)
    none, once, thrice = (
        size(replace(of, stack=replace(of.stack, low_precision_cast=factor))) for factor in (0.0, 1.0, 3.0)
    )
    assert thrice - none == pytest.approx(3 * (once - none)) and once > none


def planned(*clusters: str, precision: str) -> Plan:
    return api.plan("gpt2-medium", clusters, batch="64", precision=precision).plans[0]


@pytest.mark.slow
@pytest.mark.parametrize("clusters", [("dgx-v100:1",), ("dgx-v100:1", "quad-rtx6000:2")])
def test_a_plan_in_32_bit_is_slower_says_its_bytes_and_is_checked(clusters: tuple[str, ...]) -> None:
    wide, narrow = (planned(*clusters, precision=precision) for precision in ("fp32", "fp16"))
    assert wide.precision == "fp32"
    assert wide.prediction.step_time_s > 1.9 * narrow.prediction.step_time_s
    each = wide.runtime.bytes_per_parameter
    assert [each[name] for name in ("parameters", "gradients", "gradient_wire", "parameter_wire")] == [4.0] * 4
    verify.check(wide)
    told = replace(wide, runtime=replace(wide.runtime, bytes_per_parameter={**each, "parameters": 80.0}))
    with pytest.raises(verify.Inconsistent):
        verify.check(told)
