"""Run by Megatron's environment: what Primus hands its Megatron-LM of an experiment, and what that makes of it.

``read_primus.py PRIMUS JOBS ANSWERS``. Primus's parser reads ``primus.yaml`` over its presets, its builder makes
Megatron's arguments of that, its patches of them are run; ``read_megatron.py`` then reads these in place of a command
line. A key that neither Megatron's parser nor Primus's presets have is an error here: Primus would ignore it.
"""

import logging
import os
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace

import absent
import yaml

absent.ABSENT += ("triton", "einops")
absent.replace()
PRIMUS = Path(sys.argv[1]).resolve()
MEGATRON = PRIMUS / "third_party" / "Megatron-LM"
sys.path[:0] = [str(PRIMUS), str(MEGATRON)]


def experiment(folder, argument_builder):
    """The arguments that Primus would train with."""
    from primus.core.config.primus_config import load_primus_config

    os.chdir(folder)
    (module,) = load_primus_config(Path("primus.yaml")).modules
    said = yaml.safe_load(Path("primus.yaml").read_text(encoding="utf-8"))["modules"]["pre_trainer"]["overrides"]
    made = argument_builder.MegatronArgBuilder().update(module.params).finalize()
    presets = load_primus_config(plain(folder)).modules[0].params
    if unknown := [key for key in said if not hasattr(made, key) and not hasattr(presets, key)]:
        raise ValueError(f"Primus knows no {', '.join(unknown)}")
    return patched(made, module)


def plain(folder):
    """The same experiment with nothing overridden."""
    said = yaml.safe_load(Path("primus.yaml").read_text(encoding="utf-8"))
    said["modules"]["pre_trainer"]["overrides"] = {}
    Path(folder, "plain.yaml").write_text(yaml.safe_dump(said), encoding="utf-8")
    return Path(folder, "plain.yaml")


def patched(made, module):
    """Its own changes (paths, layers that are mixtures, what one rank cannot split), and what is its own."""
    from primus.backends.megatron.patches.args import (
        data_path_split_patches,
        moe_layer_freq_patches,
        sequence_parallel_tp1_patches,
    )
    from primus.core.utils.yaml_utils import merge_namespace

    context = SimpleNamespace(extra={"backend_args": made, "module_config": module, "primus_config": None})
    data_path_split_patches.patch_data_path_split(context)
    moe_layer_freq_patches.patch_moe_layer_freq(context)
    sequence_parallel_tp1_patches.patch_sequence_parallel_tp1(context)
    merge_namespace(made, module.params)
    return made


def own(made):
    """What its defaults say otherwise than Megatron's."""
    return {
        "fp4_recipe": made.fp4_recipe,
        "pipeline": made.pp_algorithm if made.patch_primus_pipeline else None,
        "data": [made.train_data_path, made.data_path, made.split],
        "checkpoints": [made.save, made.load, made.finetune, made.exit_on_missing_checkpoint],
        "rates": [
            *(made.lr_decay_style, made.lr_warmup_iters, made.weight_decay, made.lr, made.min_lr),
            made.override_opt_param_scheduler,
        ],
        "batches": [made.dataloader_type, made.eval_iters],
    }


def main():
    """Megatron's reader, with the parser replaced as Primus replaces it."""
    import answering
    import torch  # noqa: F401 - before what looks for it
    from megatron.training import arguments
    from primus.backends.megatron import argument_builder
    from primus.core.utils import file_utils, logger

    file_utils.create_path_if_not_exists = lambda *_: None  # The workspace is nowhere.
    logger._logger = logging.getLogger()
    asked = answering.answer

    def answer(read, *more):
        def of_folder(job, *rest):
            os.environ.update({"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": str(job["world"])})
            made = experiment(job["folder"], argument_builder)
            arguments.parse_args = lambda **_: made
            return read(job, *rest) | own(made)

        asked(of_folder, *more)

    answering.answer = answer
    sys.argv[1] = str(MEGATRON)
    runpy.run_path(str(Path(__file__).with_name("read_megatron.py")))


main()
