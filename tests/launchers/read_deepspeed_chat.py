"""Run by an environment with transformers: DeepSpeed-Chat's own parser. ``read_deepspeed_chat.py MAIN JOBS ANSWERS``.

``MAIN`` is its ``main.py``, of which the function that parses is run alone; ``JOBS`` a JSON list of arguments.
"""

import argparse
import ast
import sys
import types
from pathlib import Path

from answering import answer
from transformers import SchedulerType


def read(argv, parse):
    """What DeepSpeed-Chat makes of some arguments."""
    sys.argv = ["main.py", *argv]
    args = parse()
    return {
        "micro": args.per_device_train_batch_size,
        "accumulation": args.gradient_accumulation_steps,
        "sequence": args.max_seq_len,
        "zero": args.zero_stage,
        "offload": args.offload,
        "precision": args.dtype,
        "recompute": args.gradient_checkpointing,
        "rank": args.lora_dim or None,
        "alone": args.only_optimize_lora,
    }


def parser(path):
    """``parse_args`` of a file; DeepSpeed itself adds switches that nothing here reads."""
    tree = ast.parse(Path(path).read_text(encoding="utf-8"))
    (function,) = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "parse_args"]
    engine = types.SimpleNamespace(add_config_arguments=add_config_arguments)
    known = {"argparse": argparse, "SchedulerType": SchedulerType, "deepspeed": engine}
    exec(compile(ast.Module([function], []), str(path), "exec"), known)
    return known["parse_args"]


def add_config_arguments(parser):
    """The two that its scripts use."""
    parser.add_argument("--deepspeed", action="store_true")
    parser.add_argument("--deepspeed_config")
    return parser


answer(read, parser(sys.argv[1]))
