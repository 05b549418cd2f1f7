"""Programs that build a configuration are followed, never run; what hangs on code that is not here is refused."""

from pathlib import Path

import pytest

from planner.base.errors import WrongQuestion
from planner.launchers.reading import python_program, recipes
from planner.launchers.reading.found_options import FoundOptions
from planner.launchers.reading.source import detect, read
from planner.launchers.reading.started import Started

BRIDGE = """
import argparse
import torch
from megatron.bridge import AutoBridge
from megatron.bridge.training.config import ConfigContainer, TrainingConfig
from megatron.bridge.training.pretrain import pretrain

def build(tp, micro=2):
    cfg = ConfigContainer(train=TrainingConfig(global_batch_size=micro * 64, micro_batch_size=micro))
    cfg.model = AutoBridge.from_hf_pretrained("meta-llama/Meta-Llama-3-8B").to_megatron_provider(load_weights=False)
    cfg.model.tensor_model_parallel_size = tp
    cfg.model.sequence_parallel = tp > 1
    cfg.dataset.seq_length = 4096 if tp == 1 else 8192
    cfg.mixed_precision = "bf16_mixed"
    cfg.ddp.use_distributed_optimizer = True
    return cfg

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tp", type=int, default=2)
    args = parser.parse_args()
    cfg = build(args.tp)
    EXTRA
    pretrain(cfg, forward_step)

if __name__ == "__main__":
    main()
"""
NEMO = """
import nemo_run as run
from nemo import lightning as nl
from nemo.collections import llm

def recipe(nodes: int = 2) -> run.Partial:
    strategy = run.Config(nl.MegatronStrategy, tensor_model_parallel_size=4, sequence_parallel=True)
    made = run.Partial(
        llm.pretrain,
        model=run.Config(llm.LlamaModel, config=run.Config(llm.Llama3Config8B)),
        trainer=run.Config(
            nl.Trainer, devices=8, num_nodes=nodes, max_steps=100, strategy=strategy,
            plugins=run.Config(nl.MegatronMixedPrecision, precision="bf16-mixed"),
        ),
        data=run.Config(llm.MockDataModule, seq_length=8192, global_batch_size=128, micro_batch_size=1),
    )
    for name, size in [("context_parallel_size", 2)]:
        setattr(made.trainer.strategy, name, size)
    return made

with run.Experiment("one") as exp:
    exp.add(recipe(), executor=run.LocalExecutor())
"""


def bridge(extra: str = "pass", *arguments: str) -> FoundOptions:
    """The recipe with a line more, on a command line."""
    return recipes.read("megatron-bridge", BRIDGE.replace("EXTRA", extra), Path(), Started(arguments))


def test_program_is_followed_to_the_configuration_it_starts() -> None:
    assert detect(BRIDGE) == "megatron-bridge"

    default, other = bridge(), bridge("pass", "--tp=1")

    assert (default.settings["tp"], default.settings["zero"], default.sequence, default.batch) == (2, 1, 8192, 128)
    assert (other.settings["tp"], other.settings["sequence_parallel"], other.sequence) == (1, "off", 4096)
    assert (default.model, default.method, default.precision) == ("llama3-8b", "pretrain", "bf16")


def test_nemo_recipe_states_ranks_and_degrees() -> None:
    found = read(detect(NEMO), NEMO)

    assert (found.ranks, found.batch, found.sequence, found.model) == (16, 128, 8192, "llama3-8b")
    assert (found.settings["tp"], found.settings["cp"], found.settings["sequence_parallel"]) == (4, 2, "on")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("from mine import tuned; tuned(cfg)", "tuned receives the configuration"),
        ("from mine import tuned; cfg = tuned()", "comes from tuned"),
        ("from mine import width; cfg.model.pipeline_model_parallel_size = width", "mine.width"),
        ("import os; cfg.model.pipeline_model_parallel_size = int(os.environ['PP'])", "--env PP"),
        (
            "import torch\n    if torch.cuda.is_available(): cfg.model.context_parallel_size = 2",
            "context_parallel_size",
        ),
        ("for x in open('sizes'): cfg.train.micro_batch_size = int(x)", "micro_batch_size is not in the program"),
        ("cfg.model.some_new_kernel = True", "some-new-kernel"),
        ("cfg.peft = object()", "peft"),
        ("cfg.model = None", "the model is not named"),
    ],
)
def test_what_is_not_in_the_program_is_refused(line: str, reason: str) -> None:
    with pytest.raises(WrongQuestion, match=reason):
        bridge(line)


def test_functions_that_print_save_or_log_change_nothing() -> None:
    lines = "print(cfg); import logging; logging.getLogger('a').info(cfg); cfg.logger.wandb_project = unknown"
    lines += "; from loguru import logger; logger.info(cfg)"

    assert bridge(lines) == bridge()


@pytest.mark.parametrize(
    "text",
    [
        "x = 'a' * 10 ** 9",
        "x = [0] * 10 ** 9",
        "x = 10 ** 10 ** 10",
        "x = 1 << 10 ** 9",
        "x = '%0999999999d' % 1",
        "def f(n): return f(n) + f(n)\nx = f(1)",
        "x = 1\nwhile True: x = x * 2",
        "x = list(range(10 ** 18))",
    ],
)
def test_values_that_grow_without_end_are_not_known(text: str) -> None:
    try:
        value = python_program.values(text)["x"]
    except WrongQuestion:
        return
    assert str(value).startswith("not in the file")


OLMO = """
from functools import partial
from olmo_core.config import DType
from olmo_core.distributed.parallel import DataParallelType
from olmo_core.internal.experiment import CommonComponents, build_config, main
from olmo_core.nn.transformer import TransformerConfig
from olmo_core.train.train_module import TransformerDataParallelConfig, TransformerTrainModuleConfig

def model(common: CommonComponents):
    return TransformerConfig.olmo2_7B(vocab_size=common.tokenizer.padded_vocab_size())

def train_module(common):
    size = 2 * common.max_sequence_length
    if common.launch is not None:
        size *= 2
    return TransformerTrainModuleConfig(
        rank_microbatch_size=size,
        max_sequence_length=common.max_sequence_length,
        dp_config=TransformerDataParallelConfig(name=DataParallelType.hsdp, param_dtype=DType.bfloat16),
        EXTRA
    )

main(config_builder=partial(
    build_config, global_batch_size=512 * 4096, max_sequence_length=4096, model_config_builder=model,
    train_module_config_builder=train_module,
))
"""


def test_olmo_cores_builders_are_called_with_its_common_parts() -> None:
    found = read(detect(OLMO), OLMO.replace("EXTRA", ""))

    assert (found.model, found.batch, found.sequence, found.settings["micro"]) == ("olmo2-7b", 512, 4096, 2)
    assert (found.settings["zero"], found.settings["zero_scope"], found.precision) == (3, "node", "bf16")


@pytest.mark.parametrize("line", ["pp_config=PipelineConfig(degree=2),", "mine=mine(),", "ac_config=AC(mode=Mode.x),"])
def test_olmo_cores_other_keys_are_refused(line: str) -> None:
    with pytest.raises(WrongQuestion, match=r"pp_config|mine|ac_config"):
        read("olmo-core", OLMO.replace("EXTRA", line))


RECIPE = """
import nemo_run as run
from nemo.collections import llm

def configured(nodes=2):
    recipe = llm.NAME(dir="/x", name="a", num_nodes=nodes, GIVEN)
    recipe.trainer.strategy.context_parallel_size = 1
    recipe.trainer.callbacks.append(Timer())
    return recipe

run.cli.main(llm.pretrain, default_factory=configured)
"""


@pytest.mark.parametrize(
    ("name", "given", "tp", "batch", "method", "zero"),
    [
        ("llama3_70b.pretrain_recipe", "num_gpus_per_node=8", 4, 512, "pretrain", 1),
        ("llama3_8b.finetune_recipe", "num_gpus_per_node=8", 1, 128, "lora", 0),
        ("llama3_8b.finetune_recipe", "peft_scheme='none'", 2, 128, "finetune", 1),
        ("llama3_8b.finetune_recipe", "peft_scheme=None, seq_length=4096", 2, 128, "finetune", 1),
    ],
)
def test_recipes_of_nemo_that_are_not_here_are_known_by_table(
    name: str, given: str, tp: int, batch: int, method: str, zero: int
) -> None:
    found = read("nemo-2", RECIPE.replace("NAME", name).replace("GIVEN", given))

    assert (found.settings["tp"], found.batch, found.method, found.settings["zero"]) == (tp, batch, method, zero)
    assert (found.settings["cp"], found.ranks) == (1, 16)
    assert any("begun with a recipe of NeMo" in note for note in found.assumed)


@pytest.mark.parametrize(
    ("name", "given", "reason"),
    [
        ("mine.pretrain_recipe", "a=1", "pretrain_recipe, which is not here"),
        ("llama3_8b.pretrain_recipe", "performance_mode=True", "performance_mode"),
        ("llama3_8b.finetune_recipe", "peft_scheme='dora'", "peft_scheme"),
    ],
)
def test_recipes_and_arguments_that_no_table_has_are_refused(name: str, given: str, reason: str) -> None:
    with pytest.raises(WrongQuestion, match=reason):
        read("nemo-2", RECIPE.replace("NAME", name).replace("GIVEN", given))


OPEN = "torch.cuda.is_available()"
"""A condition that nobody knows here."""


@pytest.mark.parametrize(
    "lines",
    [
        f"import torch\n    if {OPEN}: setattr(cfg.model, 'context_parallel_size', 4)",
        f"import torch\n    {OPEN} and setattr(cfg.model, 'context_parallel_size', 4)",
        f"import torch\n    for n in [4, 8]:\n        if {OPEN}: break\n        cfg.model.context_parallel_size = n",
        f"import torch\n    def h(c):\n        if {OPEN}: return\n        c.model.context_parallel_size = 4\n"
        "    h(cfg)",
        f"import torch\n    if {OPEN}:\n        def n(): return 4\n    else:\n        def n(): return 2\n"
        "    cfg.model.context_parallel_size = n()",
        "a = [1]\n    for x in open('sizes'): a.append(4)\n    cfg.model.context_parallel_size = a[-1]",
        "try:\n        import mine; n = 4\n    except ImportError: n = 2\n    cfg.model.context_parallel_size = n",
        "exec('cfg.model.context_parallel_size = 4')",
        "from mine import deco\n    @deco\n    def n(): return 4\n    cfg.model.context_parallel_size = n()",
        "from mine import run\n    def n(): cfg.model.context_parallel_size = 4\n    run(n)",
        "from mine import run\n    run(lambda: cfg)",
        "class A:\n        def __enter__(self): cfg.model.context_parallel_size = 4\n    with A(): pass",
        "import random\n    a = [1, 4]\n    random.shuffle(a)\n    cfg.model.context_parallel_size = a[0]",
        "from contextlib import suppress\n    with suppress(KeyError): {}['x']; cfg.model.context_parallel_size = 4",
        "cfg.model.context_parallel_size = CP",
    ],
)
def test_what_may_happen_otherwise_than_it_is_read_is_refused(lines: str) -> None:
    with pytest.raises(WrongQuestion):
        bridge(lines)


@pytest.mark.parametrize(
    "lines",
    [
        "n = 1\n    def h():\n        nonlocal n; n = 4\n    h()\n    cfg.model.context_parallel_size = n",
        "import os\n    os.environ['CP'] = '4'\n    cfg.model.context_parallel_size = int(os.environ.get('CP', '1'))",
        "a = [1]\n    b = a\n    b += [4]\n    cfg.model.context_parallel_size = a[-1]",
        "import copy\n    m = copy.copy(cfg)\n    m.model.context_parallel_size = 4",
        "cfg.model.context_parallel_size = len({4, 4, 5, 6, 7})",
        "cfg.model.context_parallel_size = ~-5",
        "n = 4\n    class K:\n        n = 1\n        def m(self): return n\n"
        "    cfg.model.context_parallel_size = K().m()",
        "def d(f): return lambda: 4\n    @d\n    def n(): return 1\n    cfg.model.context_parallel_size = n()",
        "def n():\n        try: return 1\n        finally: cfg.model.context_parallel_size = 4\n    n()",
        "[setattr(cfg.model, k, v) for k, v in {'context_parallel_size': 4}.items()]",
        "list(map(lambda k: setattr(cfg.model, k, 4), ['context_parallel_size']))",
    ],
)
def test_programs_are_followed_as_python_runs_them(lines: str) -> None:
    assert bridge(lines).settings["cp"] == 4


@pytest.mark.parametrize(
    "text",
    [
        "a = [0]\n" + "a = [a, a]\n" * 40 + "x = a == 1",
        "x = (' ' * 99999).join(['a'] * 99999)",
        "x = '%*d' % (10 ** 9, 1)",
        "a = [1]\nfor i in range(200): a = [*a, *a]\nx = a",
        "import math\nx = math.prod([2 ** 61 - 1] * 100000)",
        "x = round(2 ** 61, -10 ** 9)",
        "d = {}\nd['d'] = d\nx = d == d",
    ],
)
def test_small_programs_with_large_values_end_at_once(text: str) -> None:
    try:
        value = python_program.values(text).get("x")
    except WrongQuestion:
        return
    assert not isinstance(value, str | int | list) or str(value).startswith("not in the file")


@pytest.mark.parametrize(
    ("line", "tp"),
    [(("--tp", "1", "--tp", "4"), 4), (("--t=4",), 4)],
)
def test_command_line_is_taken_as_argparse_does(line: tuple[str, ...], tp: int) -> None:
    assert bridge("pass", *line).settings["tp"] == tp


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (BRIDGE, ("--pt=4",)),
        (BRIDGE.replace("parse_args()", "parse_args(['--tp', '4'])"), ()),
        (BRIDGE.replace("ArgumentParser()", "ArgumentParser(parents=[base])"), ()),
        (BRIDGE.replace("args = ", "import sys; sys.argv += ['--tp', '4']; args = "), ()),
        (BRIDGE.replace("args = ", "parser.add_subparsers(); args = "), ()),
        (BRIDGE.replace("type=int", "nargs='+'"), ("--tp", "4")),
    ],
)
def test_options_that_are_not_followed_are_refused(text: str, line: tuple[str, ...]) -> None:
    with pytest.raises(WrongQuestion):
        recipes.read("megatron-bridge", text.replace("EXTRA", "pass"), Path(), Started(line))


def test_check_that_ends_a_program_is_taken_as_passed() -> None:
    assert bridge("import torch\n    if not torch.cuda.is_available(): raise SystemExit(1)") == bridge()


def test_sends_do_not_overlap_where_no_configuration_says_so() -> None:
    overlap = "from megatron.bridge.training.comm_overlap import CommOverlapConfig as C; cfg.comm_overlap = C()"
    stages = "cfg.model.pipeline_model_parallel_size = 4; cfg.model.virtual_pipeline_model_parallel_size = 2"

    assert bridge(stages).settings["p2p_overlap"] == "off"
    found = bridge(f"{stages}; {overlap}")
    assert (found.settings["p2p_overlap"], found.settings["dp_overlap"]) == ("on", "on")
    assert bridge(stages).settings["dp_overlap"] == "off"


def test_modules_through_links_out_of_the_folder_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.py").write_text("width = 4\n")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "mine.py").symlink_to(tmp_path / "out" / "mine.py")
    text = BRIDGE.replace("EXTRA", "from mine import width; cfg.model.pipeline_model_parallel_size = width")

    with pytest.raises(WrongQuestion, match=r"mine\.width"):
        recipes.read("megatron-bridge", text, tmp_path / "in", Started())
    assert recipes.read("megatron-bridge", text, tmp_path / "out", Started()).settings["pp"] == 4
