"""Contracts of all launchers' tables: an axis is written, told or refused; an option is written and read by one row."""

from collections.abc import Iterator
from typing import Any

import pytest

from planner.axes import AXES
from planner.launchers import EXPORTERS, plan_facts, table, time_limit
from planner.launchers.bundle import losses, refusals
from planner.launchers.plan_facts import FACTS
from planner.launchers.target import LaunchJob
from planner.schema import launcher_table
from planner.schema.launcher_table import LauncherTable
from tests.launchers.environments import given
from tests.launchers.spread import Case, expressible, plan

TRAINERS = [name for name, exporter in EXPORTERS.items() if exporter.role == "trainer"]
PLAIN = Case("megatron-core", "llama3-8b", "dgx-h100:1", "tp=2")


RARE: dict[str, tuple[str, ...]] = {
    "megatron": (
        *("mamba-", "hybrid-", "spec", "moe-latent", "muon-", "mtp-", "hierarchical-", "no-bias-gelu-fusion"),
        *("rotary-percent", "squared-relu", "moe-z-loss", "moe-expert-capacity"),
        *("attention-backend", "flash-attention-version"),
    ),
    "megatron-bridge": ("model.hierarchical_",),
    "torchtitan": (),
    "maxtext": ("load_parameters_path", "quantization"),
    "hf-trainer": ("lora_magnitudes", "quantization_fp8", "trained_layers"),
    "trl": ("activation_offloading", "attn_implementation", "lora_modules_to_save", "lora_task_type", "use_dora"),
    "axolotl": ("activation_offloading", "peft_use_dora"),
    "llama-factory": (
        *("flash_attn", "neat_packing", "template", "freeze_trainable_layers", "use_dora"),
        "use_liger_kernel",  # its own is enable_liger_kernel
    ),
    "deepspeed": (),
    "accelerate": ("fsdp_config.fsdp_cpu_ram_efficient_loading",),  # of programs that load a model by themselves
}
"""Trainer -> options, or how they begin, of models and settings that the spread has none of: tests of hybrids, Muon,
kernels, context, texts, adapters and fine-tuning have. Primus has Megatron's table."""


def other_values() -> Iterator[tuple[str, object]]:
    """Every axis with each value that is not neutral, as exporters tell them apart; other work than pre-training."""
    yield from (("method", "lora"), ("optimizer", "adafactor"))
    texts = {"recompute": ("selective", "full", "block"), "offload": ("optimizer", "part")}
    texts |= {"activation_offload": ("modules", "all"), "placement": ("weights",), "zero_scope": ("node", "nodes")}
    for name, row in AXES.items():
        neutral = row.exported(row.state(row.neutral))
        stated = {"count": (2,), "switch": (True,), "text": texts.get(name, ())}
        values = stated.get(row.kind) or [row.exported(row.state(row.read(choice))) for choice in row.choices]
        yield from ((name, value) for value in dict.fromkeys(values) if value != neutral)


@pytest.mark.parametrize("name", TRAINERS)
def test_no_axis_is_dropped_in_silence(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a plan that a trainer takes as it is, one axis after the other gets another value."""
    exporter = EXPORTERS[name]
    whole = plan_facts.complete(plan(PLAIN))
    usual = plan_facts.values(whole)
    seen, silent = set(), []
    for axis, value in other_values():
        monkeypatch.setattr(plan_facts, "values", lambda _, a=axis, v=value: usual | {a: v})
        expressed = exporter.expresses.get(axis, "any" if name == "torchrun" else ())
        refused = any(why.startswith(f"{axis} {value} (") for why in refusals(whole, exporter))
        told = axis in {loss.field for loss in losses(whole, exporter)}
        says = expressed == "any" or value in expressed
        if says + refused + told != 1:
            silent.append((axis, value, says, refused, told))
        seen.add(axis)
    assert not silent
    assert seen == {*AXES, "method", "optimizer"}


@pytest.mark.parametrize("name", EXPORTERS)
def test_tables_name_what_plans_have(name: str) -> None:
    exporter = EXPORTERS[name]
    assert set(exporter.expresses) <= {*AXES, *FACTS}
    assert set(exporter.lossy) <= set(AXES)
    for axis, values in exporter.expresses.items():
        if axis in AXES and AXES[axis].kind == "choice" and values != "any":
            row = AXES[axis]
            assert set(values) <= {row.exported(row.state(row.read(choice))) for choice in row.choices}, axis
    for option in launcher_table.launcher_table(name).options.values():
        assert not option.is_axis or option.says in {*AXES, *FACTS}, option.name


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.parametrize("name", RARE)
def test_every_option_is_written_by_a_plan_or_only_read(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fact that no Python gives would leave its option out without a word."""
    whole_table = launcher_table.launcher_table(name)
    written: set[str] = set()
    document = table.document

    def recorded(asked: LauncherTable, known: table.Facts) -> dict[str, Any]:
        said = document(asked, known)
        written.update(said if asked is whole_table else ())
        return said

    monkeypatch.setattr(table, "document", recorded)
    settings = {s.name: s.default for s in EXPORTERS[name].settings if s.default is not None} | given(name)
    for _, whole in expressible(name):
        EXPORTERS[name].emit(plan_facts.complete(whole), LaunchJob(), settings)
    EXPORTERS[name].emit(plan_facts.complete(whole), LaunchJob(), {**settings, time_limit.SETTING: ""})  # under Slurm
    only_read = {option.name for option in whole_table.options.values() if option.says.startswith("read.")}
    unwritten = {option.name for option in whole_table.options.values()} - written - only_read
    assert not [option for option in unwritten if not option.startswith(RARE[name])]
    assert not only_read & written


def test_a_row_may_be_a_constant_and_lead_into_mappings() -> None:
    rows = {"a.x": launcher_table._option("a.x", False), "b": launcher_table._option("b", {"axis": "tp"})}
    rows["c"] = launcher_table._option("c", {"fact": "unknown", "format": "or-null"})
    known = {"job.always": True, "tp": 2}.get
    said = table.document(LauncherTable(head={}, options=rows), known)
    assert table.nested(said) == {"a": {"x": False}, "b": 2, "c": None}
    switches = LauncherTable(head={}, options={name: rows[name] for name in ("a.x", "b")})
    assert list(table.argv(switches, known)) == ["--b", "2"]


def test_the_options_of_a_table_may_stand_in_another() -> None:
    common, whole = (launcher_table.launcher_table(name).options for name in ("trainer-arguments", "trl"))
    names = [option.name for option in whole.values()]
    start = names.index("per_device_train_batch_size")
    assert names[start : start + len(common)] == [*common]
    assert names[start - 1] == "bf16" != [*whole][start - 1]


@pytest.mark.parametrize("row", [{}, {"axis": "tp", "fact": "x"}, {"axis": "tp", "template": "{}"}])
def test_a_row_says_one_axis_or_fact_and_nothing_else(row: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="flag x"):
        launcher_table._option("x", row)


def test_words_stand_for_the_first_value_that_says_them() -> None:
    option = launcher_table._option(
        "o", {"axis": "optimizer", "values": {"adamw": "adam", "sgd-momentum": "sgd", "sgd": "sgd"}}
    )
    whole = LauncherTable(head={}, options={"o": option})
    assert whole.words("o") == {"adam": "adamw", "sgd": "sgd-momentum"}
    assert dict(table.settings(whole, {"optimizer": "sgd"}.get)) == {"o": "sgd"}
    assert dict(table.settings(whole, {"optimizer": "lion"}.get)) == {}


def test_a_member_of_a_family_takes_over_what_it_does_not_say() -> None:
    family, member = (launcher_table.launcher_table(name) for name in ("megatron", "primus"))
    assert member.options == family.options
    assert member.head["expresses"] == family.head["expresses"] | {
        axis: member.head["expresses"][axis]
        for axis in ("schedule", "precision", "optimizer", "graphs", "attention_kernel")
    }
