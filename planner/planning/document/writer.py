"""The writer of plans: from a solution over pools to the document that leaves the program."""

from __future__ import annotations

from dataclasses import fields, replace

from planner.base.version import __version__
from planner.cost import money
from planner.cost.elements import FP32
from planner.figures import cost_inputs
from planner.models import blocks
from planner.models.parameters import parameters
from planner.planning.document.conditions import assumptions, constraints, prediction_section
from planner.planning.document.machines import cluster_section
from planner.planning.document.money import energy_section, money_section
from planner.planning.document.solution import Solution
from planner.question.request import Request
from planner.schema import plan as schema
from planner.schema.record import _plain
from planner.schema.workload import LOW_PRECISION, WITH_ITERATIONS


def write(solution: Solution, rank: int) -> schema.Plan:
    """Everything that is known of one solution, as the plan of that rank (from 1).

    The job must make progress: its goodput (:func:`planner.planning.document.money.goodput_of`) is above 0.
    """
    prediction = prediction_section(solution)
    run = money_section(solution)
    return schema.Plan(
        rank=rank,
        generator=schema.Generator(version=__version__, seed=0, inputs=_inputs(solution)),
        workload=workload_section(solution.request),
        cluster=cluster_section(solution),
        runtime=replace(runtime_section(solution.request, solution.configuration), older=solution.older),
        **{field.name: getattr(solution.configuration, field.name) for field in fields(schema.Configuration)},
        communication=(),
        env={},
        prediction=prediction,
        money=run,
        energy=energy_section(solution, run.days * money.DAY_S),
        constraints=constraints(solution, prediction.memory, run),
        assumptions=assumptions(solution),
        nearest_runs=solution.nearest_runs or None,
        measured=solution.measured,
    )


def _inputs(solution: Solution) -> dict[str, str]:
    """What the plan depends on, hashed: profiles of layer times under their files' names."""
    profiles = [each.profile for each in solution.pools if each.profile is not None]
    return dict(solution.request.inputs or {}) | {f"profile {each.source}": each.sha256 for each in profiles}


def workload_section(request: Request) -> schema.WorkloadSection:
    """What is trained."""
    work = request.workload
    model = request.workload.model
    counted = parameters(model)
    optimizer = work.optimizer
    return schema.WorkloadSection(
        model=model.id,
        name=model.name,
        parameters=counted.total,
        active_parameters=counted.active,
        sequence=work.sequence,
        tokens=work.tokens,
        method={
            "kind": work.method.kind,
            "rank": work.method.rank,
            "targets": list(work.method.targets),
            **{name: held for name in ("base", "magnitude", "layers") if (held := getattr(work.method, name))},
        },
        optimizer={
            "id": optimizer.id,
            "state_bytes": optimizer.state_bytes,
            "master_bytes": optimizer.master_bytes,
            "step_bytes": optimizer.step_bytes,
            **{name: getattr(optimizer, name) for name in WITH_ITERATIONS if optimizer.iterations},
        },
        shape=_plain(model),
        mtp_layers=work.mtp_layers or None,
        imbalance=work.imbalance,
        task=None if work.task == "sft" else work.task,
        texts=work.texts or None,
    )


def runtime_section(request: Request, configuration: schema.Configuration) -> schema.RuntimeSection:
    """The training framework, with what it keeps and sends in a precision (:mod:`planner.cost.elements`), and how it
    cuts several stages.
    """
    precision = configuration.precision
    layout = configuration.parallelism
    offload = configuration.offload["optimizer"]
    runtime = request.runtime
    narrowest = cost_inputs.element(precision)
    sums = precision == "bf16" and layout.zero_stage < runtime.fp32_sums_below_zero and not offload
    held = runtime.parameter_bytes and max(runtime.parameter_bytes, narrowest)
    frozen = cost_inputs.frozen_bytes(request.workload, runtime)
    model = request.workload.model
    differ = (
        blocks.differ(model, request.workload.sequence) and not layout.groups
    )  # Over several pools the search deals layers.
    frozen_in_8_bit = request.workload.method.kind == "lora" and precision in LOW_PRECISION
    return schema.RuntimeSection(
        name=runtime.id,
        release=request.release,
        bytes_per_parameter={
            "parameters": held / 2.0 if frozen_in_8_bit else held,
            "gradients": max(runtime.gradient_bytes, narrowest) + (FP32 if sums else 0.0),
            "gradient_wire": FP32 if sums else max(runtime.gradient_wire_bytes, narrowest),
            "parameter_wire": max(runtime.parameter_wire_bytes, narrowest),
            "gathers_working_copy": float(runtime.gathers_working_copy),
            "update": 0.0 if sums else runtime.update_bytes,
            **({"frozen": frozen} if frozen else {}),
        },
        offload_needs_zero=(offload and runtime.offload_needs_zero) or None,
        balances_head=runtime.balances_head or None,
        chunked_loss=runtime.chunked_loss or None,
        places_head=(layout.pp > 1 and not differ and cost_inputs.places_head(runtime, model)) or None,
        cuts_by_work=(layout.pp > 1 and differ and cost_inputs.cuts_anywhere(runtime)) or None,
    )
