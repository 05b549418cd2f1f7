"""Plans hold, and a plan of which one figure is changed does not."""

import ast
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from planner import api
from planner.base.errors import WrongQuestion
from planner.cost.flops import token_work
from planner.figures import cost_inputs
from planner.models.parameters import lora_parameters, parameters
from planner.models.workload import library, workload
from planner.planning import document
from planner.schema.plan import Plan
from planner.schema.workload import Method
from planner.verify import CHECKS, Inconsistent, check, finding, model, violations
from tests.altering import altered
from tests.plans import QUESTIONS, plans
from tests.sweeps import sweep

VERIFY = Path(__file__).resolve().parent.parent / "planner" / "verify"


def best(name: str) -> Plan:
    return plans(name).plans[0]


@sweep("name", QUESTIONS, every=2, ci=2)
def test_what_the_planner_makes_holds(name: str) -> None:
    for plan in plans(name).plans:
        assert violations(plan) == []


def test_a_plan_still_holds_when_read_back() -> None:
    check(_parsed(document.dump(best("dense"))))


# ---- one leaf changed ------------------------------------------------------------------------------------------------

CHOICES: dict[str, tuple[Any, ...]] = {
    "workload.method.kind": ("pretrain", "finetune", "lora"),
    "workload.shape.family": ("decoder", "encoder", "encoder-decoder", "vision"),
    "workload.shape.norm": ("rms", "layer"),
    "workload.shape.qk_norm": ("none", "head", "full"),
    "cluster.fabric.kind": ("infiniband", "roce", "efa", "slingshot", "ici", "ethernet", "tcp"),
    "axes.rank_order": ("tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp"),
    "axes.schedule": ("none", "1f1b", "interleaved-1f1b"),
    "axes.zero": (0, 1, 2, 3),
    "axes.zero_scope": ("full", "node"),
    "axes.precision": ("bf16", "fp16", "fp8", "mxfp8", "fp32"),
    "runtime.bytes_per_parameter.gathers_working_copy": (0.0, 1.0),
    "axes.recompute": ("none", "selective", "full", "block:0.5", "block:half"),
    "constraints.*.name": ("memory", "accelerators", "deadline", "budget", "power"),
    "constraints.*.unit": ("", "B", "s", "USD"),
}
"""Enumerations: path -> values; every other one is tried."""

ROUNDING = 1e-12
"""Below this a figure is what rounding left of a zero."""

INPUTS = {
    # Rest on fits that the document does not hold; that they are in order is checked.
    "prediction.intervals.step_time_s.high",
    "prediction.intervals.step_time_s.low",
    "generator.seed",
    "rank",
    # What others measured, and what was said of it when the catalog's table was written: quoted, and used by no figure.
    *(f"nearest_runs.*.{name}" for name in ("accelerators", "batch", "distance", "measured_s", "predicted_s", "runs")),
    # Of several ways to train the same, which one: other figures follow from it only together with fitted ones.
    "axes.dp_overlap",
    "axes.precision",
    # Defaults of the model that the question overrides, and what only matters to time.
    "workload.optimizer.step_bytes",
    "workload.shape.batch",
    "workload.shape.sequence",
    "workload.shape.tokens",
    "workload.shape.dropout",
    # Hardware that only decides how long something takes.
    "cluster.fabric.kind",
    "cluster.fabric.latency_s",
    "cluster.fabric.leaf_nodes",
    "cluster.fabric.nic_bytes_per_s",
    "cluster.fabric.oversubscription",
    "cluster.pools.*.max_power_w",
    "cluster.pools.*.nic_bytes_per_s",
    "cluster.pools.*.nics_per_node",
    "cluster.pools.*.peak_flops.fp16",
    "cluster.pools.*.peak_flops.fp32",
    "cluster.pools.*.peak_flops.int8",
    "cluster.pools.*.peak_flops.tf32",
    "cluster.pools.*.scaleup_bytes_per_s",
    "runtime.bytes_per_parameter.gradient_wire",
    "runtime.bytes_per_parameter.parameter_wire",
    "runtime.bytes_per_parameter.update",
    # A region's price and carbon of electricity are not in the plan.
    "energy.carbon_kg",
    "energy.usd",
    # What an hour is sold for elsewhere: only that the least, the median and the most are in order.
    "money.price.offers.high_usd",
}
"""Leaves of which some change goes unseen in every plan: pure inputs, from which no other figure is derived again."""

METHOD, CAUSAL = "workload.method.kind", "workload.shape.causal"
"""Pre-training against full fine-tuning; a mask that counts of FLOPs leave out."""
FP8, NORM_BIAS = "cluster.pools.*.peak_flops.fp8", "workload.shape.norm_bias"
"""A peak that is not used; biases that an RMSNorm lacks anyway."""

CONTEXT = "workload.shape.context"
"""The most positions of a checkpoint, where its file says it: only rollouts are held to it."""

OLDER = "runtime.older.step_time_s"
"""What an older release takes, where it can do what the plan does."""

SEVERAL = {"money.price.offers.low_usd", "money.price.offers.median_usd"}
"""Where several providers sell the accelerator: of one, they are its price."""

ALSO = {
    "dense": {OLDER, CONTEXT, METHOD, CAUSAL, FP8, NORM_BIAS}
    | SEVERAL
    | {"axes.tp_overlap", "axes.p2p_overlap", "axes.rank_order", "runtime.places_head"},
    "lora": {OLDER, CONTEXT, CAUSAL, FP8, NORM_BIAS, "axes.zero_scope"}
    | SEVERAL
    | {"runtime.chunked_loss"},  # Buffers of gathered weights hold more than a copy of the logits.
    "fsdp": {OLDER, CONTEXT, METHOD, CAUSAL, FP8, NORM_BIAS}
    | SEVERAL
    | {"axes.zero", "runtime.bytes_per_parameter.gathers_working_copy"},
    "mixture": {METHOD, CAUSAL, FP8, NORM_BIAS}  # Its older release has no ep_overlap, and so no step time.
    | SEVERAL
    | {"axes.ep_overlap", "axes.p2p_overlap", "axes.rank_order", "runtime.places_head"}
    | {"workload.shape.ffn", "workload.shape.mlp_bias"},
    "tied-stages": {OLDER, METHOD, CAUSAL, "axes.rank_order", "axes.zero_scope"},
    "vision": {OLDER, METHOD, "workload.shape.embedding_width"},
}
"""Question -> the same, where that plan does not depend on it: no dense MLP in a model of experts, one node, tp 1."""


def leaves(value: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(item, (*path, key))
    else:
        yield path, value


def general(path: tuple[str | int, ...]) -> str:
    return ".".join("*" if isinstance(key, int) else key for key in path)


def changed(path: tuple[str | int, ...], value: Any) -> list[Any]:
    """Other values for a leaf: the other choices, the other truth, a percent more, one more, the negative."""
    if (choices := CHOICES.get(general(path))) is not None:
        return [choice for choice in choices if choice != value]
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1, -value] if value else [1, -1]
    if isinstance(value, float):
        return [value * 1.01, -value] if abs(value) > ROUNDING else [1e3, -1e3]
    return []


def survivors(plan: Plan) -> set[str]:
    """Leaves of which some change is not caught."""
    dumped = document.dump(plan)
    return {
        general(path)
        for path, value in [*leaves(dumped)]
        if any(_passes(dumped, path, x) for x in changed(path, value))
    }


def _passes(dumped: dict[str, Any], path: tuple[str | int, ...], value: Any) -> bool:
    place: Any = dumped
    for key in path[:-1]:
        place = place[key]
    before = place[path[-1]]
    place[path[-1]] = value
    try:
        return not violations(_parsed(dumped))
    except WrongQuestion:
        return False
    finally:
        place[path[-1]] = before


def _parsed(dumped: dict[str, Any]) -> Plan:
    parsed = document.parse(dumped, "test")
    assert isinstance(parsed, Plan)
    return parsed


BUILT = (
    *("workload.shape.norm_epsilon", "workload.shape.norm_offset", "workload.shape.scaled", "workload.shape.rotary."),
    *("workload.shape.window.chunked", "workload.shape.moe.router."),
)
"""What launchers build, and neither time nor memory depends on."""


@pytest.mark.slow
@sweep("name", ALSO, every=3, ci=2)
def test_every_derived_figure_is_checked(name: str) -> None:
    assert {field for field in survivors(best(name)) if not field.startswith(BUILT)} == INPUTS | ALSO[name]


# ---- lies that fit each other ----------------------------------------------------------------------------------------


def _named(plan: Plan) -> set[str]:
    return {violation.name for violation in violations(plan)}


def _holding(plan: Plan, part: str, more: float) -> Plan:
    """The plan with `more` bytes in one part of its memory, and everything that adds up or compares adjusted to it."""
    memory = plan.prediction.memory
    memory = replace(memory, **{part: getattr(memory, part) + more}, total_bytes=memory.total_bytes + more)
    constraints = tuple(
        replace(k, value=memory.total_bytes, slack=k.limit - memory.total_bytes, binding=False)
        if k.name == "memory"
        else k
        for k in plan.constraints
    )
    return replace(plan, prediction=replace(plan.prediction, memory=memory), constraints=constraints)


@sweep("part", ["parameters_bytes", "gradients_bytes", "optimizer_bytes"])
def test_states_cannot_be_understated(part: str) -> None:
    assert "states_follow_from_sharding" in _named(_holding(best("dense"), part, -1e6))


@pytest.mark.slow
def test_frozen_weights_read_in_8_bit_take_a_byte_and_no_less() -> None:
    """Nothing else reads them: a byte each, and a plan that says less is told."""
    plan = api.plan("llama2-70b", "dgx-h100:1", method="lora", precision="fp8", runtime="megatron-core", top=1).plans[0]
    assert plan.runtime.bytes_per_parameter["parameters"] == 1.0
    assert violations(plan) == []
    assert "states_follow_from_sharding" in _named(_holding(plan, "parameters_bytes", -1e6))
    wide = api.plan("llama2-70b", "dgx-h100:1", method="lora", runtime="megatron-core", top=1).plans[0]
    assert wide.runtime.bytes_per_parameter["parameters"] == 2.0


@sweep("name", ["dense", "mixture", "latent", "short-stages"])
def test_every_stage_says_what_it_holds(name: str) -> None:
    """States by the sharding, inputs of layers in flight, no more than the fullest."""
    plan = best(name)
    told = plan.prediction.memory.by_stage
    assert told is not None and len(told) == plan.parallelism.pp and violations(plan) == []
    assert max(each.total_bytes for each in told) == plan.prediction.memory.total_bytes

    def changed(stage: int, **parts: float) -> set[str]:
        held = [replace(each, **parts) if i == stage else each for i, each in enumerate(told)]
        return _named(altered(plan, {"prediction.memory.by_stage": tuple(held)}))

    other = 0 if plan.prediction.memory.stage else 1
    one, check = told[other], "stages_are_those_of_the_plan"
    moved = {
        "parameters_bytes": one.parameters_bytes * 1.1,
        "gradients_bytes": one.gradients_bytes - one.parameters_bytes * 0.1,
    }
    assert check in changed(other, **moved)
    least = {"activations_bytes": 1.0, "buffers_bytes": one.buffers_bytes + one.activations_bytes - 1.0}
    assert check in changed(other, **least)
    assert check in changed(other, total_bytes=one.total_bytes * 1.1)
    assert check in changed(other, resident_bytes=1e12, total_bytes=one.total_bytes - one.resident_bytes + 1e12)
    assert check in _named(altered(plan, {"prediction.memory.by_stage": told[1:]}))


def test_activations_cannot_vanish_or_explode() -> None:
    plan = best("dense")
    held = plan.prediction.memory.activations_bytes
    assert {"activations_are_possible", "no_stage_is_fuller"} & _named(
        _holding(plan, "activations_bytes", -0.99 * held)
    )
    assert "activations_are_possible" in _named(_holding(plan, "activations_bytes", 99 * held))


def test_buffers_cannot_vanish_or_explode() -> None:
    """The only stage holds the logits, which cannot be nowhere; and there is an end to what one layer needs."""
    plan = best("tied")
    held = plan.prediction.memory.buffers_bytes
    assert plan.parallelism.pp == 1
    assert "buffers_are_possible" in _named(_holding(plan, "buffers_bytes", -0.99 * held))
    assert "buffers_are_possible" in _named(_holding(plan, "buffers_bytes", 99 * held))


@sweep("cause", ["tp", "cp", "ep", "p2p", "bubble", "recompute"])
def test_nothing_takes_time_without_a_reason(cause: str) -> None:
    """One rank in every group but the replicas', nothing recomputed: a share of the products' time is given to it."""
    plan = best("tied")
    p, parts = plan.parallelism, plan.prediction.breakdown
    assert (p.tp, p.cp, p.ep, p.pp, plan.recompute.policy) == (1, 1, 1, 1, "none")
    moved = {**parts, "matrix": 0.9 * parts["matrix"], cause: 0.1 * parts["matrix"]}
    lie = replace(plan, prediction=replace(plan.prediction, breakdown=moved))
    assert "causes_have_a_reason" in _named(lie)


@pytest.mark.parametrize("factor", [0.1, 0.43])
def test_a_faster_step_needs_faster_hardware(factor: float) -> None:
    """Faster than the peak of its own precision, too: H100s reach twice as much in 8 bit."""
    plan = best("dense")
    prediction = replace(
        plan.prediction,
        step_time_s=plan.prediction.step_time_s * factor,
        breakdown={cause: seconds * factor for cause, seconds in plan.prediction.breakdown.items()},
        tokens_per_s=plan.prediction.tokens_per_s / factor,
        mfu=plan.prediction.mfu / factor,
    )
    assert "hardware_is_not_beaten" in _named(replace(plan, prediction=prediction))


def test_flops_and_utilisation_cannot_grow_together() -> None:
    prediction = best("dense").prediction
    grown = replace(prediction, mfu=prediction.mfu * 1.1, model_flops=prediction.model_flops * 1.1)
    assert _named(replace(best("dense"), prediction=grown)) == {"flops_are_counted"}


# ---- parts left out or put twice -------------------------------------------------------------------------------------


def test_missing_and_doubled_parts_are_found() -> None:
    plan = best("dense")
    p = plan.parallelism
    memory, *others = plan.constraints
    assert "constraints_are_known" in _named(replace(plan, constraints=tuple(others)))
    assert "constraints_are_known" in _named(replace(plan, constraints=(memory, memory, *others)))
    assert "layers_are_dealt" in _named(replace(plan, parallelism=replace(p, stages=p.stages[:-1])))
    assert "ranks_fill_the_cluster" in _named(
        replace(plan, cluster=replace(plan.cluster, pools=plan.cluster.pools * 2))
    )
    assert "time_adds_up" in _named(replace(plan, prediction=replace(plan.prediction, breakdown={"matrix": 0.0})))
    assert "dollars_follow_from_days" in _named(replace(plan, money=replace(plan.money, price=None)))
    assert "energy_follows_from_power" in _named(replace(plan, energy=replace(plan.energy, energy_j=None)))


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_numbers_must_be_numbers(number: float) -> None:
    plan = replace(best("dense"), money=replace(best("dense").money, days=number))
    assert _named(plan) == {"numbers_are_possible"}


def test_an_offloaded_optimizer_is_a_distributed_one() -> None:
    plan = best("offload")
    assert plan.runtime.offload_needs_zero == (1,) and plan.parallelism.zero_stage == 1
    other = replace(plan, parallelism=replace(plan.parallelism, zero_stage=0, dp_shard=1))
    assert "offload_goes_with_shards" in _named(other)


def test_stages_cut_by_cost_count_the_head() -> None:
    """As nanotron's own code deals Llama 3 8B over eight stages."""
    plan = best("head-counted")
    assert [stage.layers for stage in plan.parallelism.stages] == [5, 4, 4, 5, 4, 4, 4, 2]
    equal = tuple(replace(stage, layers=4) for stage in plan.parallelism.stages)
    assert "layers_are_dealt" in _named(replace(plan, parallelism=replace(plan.parallelism, stages=equal)))
    assert "layers_are_dealt" in _named(replace(plan, runtime=replace(plan.runtime, balances_head=None)))


def test_stages_placed_beside_the_head_give_it_room() -> None:
    """As recipes of DeepSeek-V3 place 61 layers and one module over 8 stages; before 2025.07 nothing could."""

    def deepseek(runtime: str) -> Plan:
        pins = ["pp=8", "vpp=2", "ep=32", "micro=1", "recompute=full"]
        return api.estimate("deepseek-v3", "dgx-b300:32", pins, batch=2048, runtime=runtime, mtp_layers=1).plans[0]

    plan, older = deepseek("megatron-core"), deepseek("megatron-core@2025")
    assert [stage.layers for stage in plan.parallelism.stages] == [8, 8, 8, 8, 8, 8, 8, 6]
    assert violations(plan) == []
    dealt = tuple(replace(stage, layers=n) for stage, n in zip(plan.parallelism.stages, (7, *[8] * 6, 7), strict=True))
    assert "layers_are_dealt" in _named(replace(plan, parallelism=replace(plan.parallelism, stages=dealt)))
    assert older.runtime.places_head is None and older.parallelism.stages == dealt


def test_a_malformed_shape_is_told_and_nothing_else() -> None:
    plan = best("dense")
    shape = {**plan.workload.shape, "heads": 0}
    assert _named(replace(plan, workload=replace(plan.workload, shape=shape))) == {"shape_is_a_model"}


def test_an_optimizer_has_a_name() -> None:
    plan = best("dense")
    nameless = {key: value for key, value in plan.workload.optimizer.items() if key != "id"}
    assert "tables_are_complete" in _named(replace(plan, workload=replace(plan.workload, optimizer=nameless)))


def test_all_that_is_wrong_is_told_at_once() -> None:
    plan = replace(best("dense"), batch=replace(best("dense").batch, micro=3), precision="fp7")
    with pytest.raises(Inconsistent, match=r"batch_divides(.|\n)*precision_exists") as caught:
        check(plan)
    assert {v.name for v in caught.value.violations} == _named(plan)
    assert caught.value.exit_code == 2


def test_an_estimate_may_exceed_its_limits_but_not_be_wrong() -> None:
    plan = best("dense")
    deadline = next(k for k in plan.constraints if k.name == "deadline")
    late = replace(deadline, limit=1.0, slack=1.0 - deadline.value, binding=True)
    over = replace(plan, constraints=tuple(late if k is deadline else k for k in plan.constraints))
    assert _named(over) == {"limits_hold"}
    check(over, may_exceed_limits=True)
    with pytest.raises(Inconsistent):
        check(replace(over, precision="fp7"), may_exceed_limits=True)


# ---- what no single changed figure reaches -----------------------------------------------------------------------

NONSENSE: list[tuple[str, dict[str, Any], str]] = [
    ("dense", {"generator.seed": 10**400}, "generator.seed is beyond"),
    ("dense", {"prediction.step_time_s": float("nan")}, "prediction.step_time_s is nan"),
    ("dense", {"workload.method.kind": "guess"}, "workload.method.kind is 'guess'"),
    ("dense", {"workload.method.rank": "8"}, "lacks its rank or its targets"),
    ("dense", {"workload.method.rank": 8}, "pretrain with rank 8"),
    ("dense", {"runtime.bytes_per_parameter.gathers_working_copy": 2}, "gathers_working_copy 2"),
    ("dense", {"workload.mtp_layers": 0}, "workload.mtp_layers is 0"),
    ("vision", {"workload.mtp_layers": 1}, "only decoders that are trained whole"),
    ("dense", {"parallelism.dp_shard": 3}, "dp x cp 8 over shards of 3"),
    ("dense", {"parallelism.vpp": 10**6 + 1}, "layers or chunks"),
    ("dense", {"workload.model": "gpt2"}, "the plan of gpt2"),
    ("dense", {"workload.shape.encoder_layers": 4}, "family decoder with 4 layers of an encoder"),
    ("vision", {"workload.shape.causal": True}, "attends both ways, and causal is true"),
    ("mixture", {"workload.shape.moe.experts_per_token": 99}, "more experts visited than there are"),
    ("dense", {"money.tokens_per_usd": None}, "tokens_per_usd is missing"),
    ("dense", {"energy.usd": None}, "its dollars or carbon are not"),
    ("dense", {"energy.power_w": None}, "some amounts are known without the others"),
    ("dense", {"cluster.pools.0.max_power_w": None}, "the maximum power of a node is not"),
    ("dense", {"energy.power_w": 1e12}, "all nodes together draw at most"),
    ("dense", {"waived": ("layers_are_dealt",)}, "'layers_are_dealt' cannot be waived"),
    ("tied", {"overlap.dp": True, "parallelism.dp": 1}, "overlapped data parallelism with one replica"),
    (
        "tied",
        {"parallelism.zero_scope": "node", "parallelism.zero_stage": 0},
        "shards of a node where nothing is sharded",
    ),
    ("dense", {"overlap.ep": True}, "overlapped exchanges of experts without exchanges"),
    ("mixture", {"overlap.ep": True, "recompute.layers_fraction": 0.5}, "with whole layers recomputed"),
    ("mixture", {"overlap.ep": True, "workload.mtp_layers": 2}, "several modules of multi-token prediction"),
    ("mixture", {"overlap.ep": True, "parallelism.pp": 2, "parallelism.vpp": 1}, "not interleaved"),
    ("dense", {"cluster.pools.0.peak_flops.bf16": 0.0}, "does not compute in bf16"),
    ("dense", {"generator.inputs.profile h100": "0123abcd"}, "no assumption states that layer times were measured"),
    ("dense", {"constraints.1.name": "expanded memory"}, "expanded memory limits what the plan does not know"),
    ("dense", {"placement": {"optimizer": 1.0}}, "what lies in it and the placement, some are missing"),
    ("dense", {"prediction.memory.oom_chance": None}, "of oom_risk, oom_chance and the interval memory_bytes, some"),
    ("dense", {"prediction.memory.oom_risk": 0.6}, "it must be more than 0 and at most 0.5"),
    ("dense", {"prediction.memory.stage": 99}, "stage 99"),
]
"""Question, what its best plan is made to say, and words of what is found wrong."""


@sweep(("question", "said", "words"), NONSENSE)
def test_nonsense_is_told_in_words(question: str, said: dict[str, Any], words: str) -> None:
    found = violations(altered(best(question), said))
    assert any(words in each.says for each in found), found


def test_as_many_replicas_as_context_parallel_ranks_are_several() -> None:
    """Two by two share states, wait for gradients and stand behind stages."""
    shared = {"rank_order": "tp-cp-ep-pp-dp", "zero": 1, "zero_scope": "node", "dp_overlap": True}
    found = api.estimate("llama3-8b", "dgx-h100:2", tp=2, pp=2, cp=2, batch=64, **shared).plans[0]
    assert (found.parallelism.dp, found.parallelism.cp) == (2, 2) and violations(found) == []


# ---- independence ----------------------------------------------------------------------------------------------------


def test_both_counts_of_every_model_agree() -> None:
    for entry, shape in library().items():
        counted = parameters(shape)
        assert (entry, model.parameters(shape)) == (entry, counted.total)
        assert (entry, model.active_parameters(shape)) == (entry, counted.active)
        for targets in (("q", "k", "v", "o"), ("up", "down"), ("q", "gate")):
            method = Method(kind="lora", rank=8, targets=targets)
            assert model.adapters(shape, 8, frozenset(targets)) == lora_parameters(shape, method) or (
                "gate" in targets and not shape.gated
            )


def test_both_counts_of_every_decoder_s_work_agree() -> None:
    """Multiply-adds of a token: products with weights, the head's among them, and those with recurrences' states."""
    for entry, shape in library().items():
        if shape.family == "decoder":
            ours = model.work(shape, shape.sequence)
            theirs = token_work(cost_inputs.shape(workload(entry), None))
            assert ours.products == pytest.approx(float(theirs.products + theirs.head), rel=1e-12), entry
            assert ours.states == pytest.approx(float(theirs.states), rel=1e-12), entry


def test_no_code_is_shared_with_what_makes_plans() -> None:
    for path in VERIFY.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                inside = name.startswith(("planner.schema", "planner.verify", "planner.base.errors"))
                assert inside or not name.startswith("planner"), f"{path.name} imports {name}"
                assert name.partition(".")[0] not in ("numpy", "pandas"), f"{path.name} imports {name}"


def test_every_check_states_what_it_demands() -> None:
    names = [each.__name__ for each in CHECKS]
    assert len(set(names)) == len(names)
    assert all(each.__doc__ for each in CHECKS)


def test_a_check_that_misses_a_name_says_so() -> None:
    """An edited study names another objective than its trials have: that was a traceback."""

    def looks_up() -> Iterator[str]:
        yield str({"step_time": 1.0}["cost"])

    assert [found.name for found in finding.findings([("sweeps", looks_up())])] == ["sweeps"]
