"""Run by Transformers' environment: LLaMA-Factory's own parser and checks on the exported configuration.

``read_llama_factory.py CHECKOUT JOBS ANSWERS``; ``JOBS`` is a JSON list of ``{folder, argv, environment, world}``.
"""

import os
import sys
from pathlib import Path

os.environ["DISABLE_VERSION_CHECK"] = "1"  # it wants transformers up to 5.8
sys.path.insert(0, str(Path(sys.argv[1], "src")))

from accelerated import engine, enter
from answering import answer
from llamafactory.hparams import get_train_args, parser
from transformers.training_args import ParallelMode

parser.check_version = lambda *_, **__: None  # packages of options that need none to be parsed (liger-kernel)
parser.is_torch_bf16_gpu_available = lambda: True


def read(job):
    """What LLaMA-Factory makes of one job."""
    enter(job)
    parser.TrainingArguments.world_size = property(lambda _: job["world"])
    parser.TrainingArguments.parallel_mode = property(lambda _: ParallelMode.DISTRIBUTED)
    (name,) = job["argv"]
    sys.argv = ["launcher.py", name, "use_cpu=true", f"output_dir={Path('out').absolute()}"]
    model, data, found, tuning, _ = get_train_args()
    adapters = [tuning.lora_rank, tuning.lora_alpha, tuning.lora_dropout, sorted(tuning.lora_target)]
    own = engine(found)
    recompute = own["recompute"] if own["fsdp"] else not model.disable_gradient_checkpointing
    return {
        **own,
        "recompute": recompute,
        "again": [found.gradient_checkpointing, not model.disable_gradient_checkpointing],
        "model": model.model_name_or_path,
        "untrained": model.train_from_scratch,
        "stage": [tuning.stage, tuning.finetuning_type],
        "data": [data.dataset, data.dataset_dir],
        "sequence": data.cutoff_len + (tuning.stage == "sft"),  # pads to one more (data/processor/supervised.py)
        "packed": [data.packing, data.neat_packing, str(model.flash_attn)],
        "dtype": str(model.compute_dtype).removeprefix("torch."),
        "liger": model.enable_liger_kernel,
        "adapters": adapters if tuning.finetuning_type == "lora" else None,
        "bits": model.quantization_bit,
        "scales": [model.quantization_type, model.double_quantization] if model.quantization_bit == 4 else None,
    }


answer(read)
