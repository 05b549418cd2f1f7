"""Run by Transformers' environment: TRL's own parser on the exported configuration, and what its script makes of it.

``read_trl.py JOBS ANSWERS``; ``JOBS`` is a JSON list of ``{folder, argv, environment, world}``.
"""

from pathlib import Path

from accelerated import engine, enter
from answering import answer
from trl import ModelConfig, ScriptArguments, SFTConfig, TrlParser, get_peft_config, get_quantization_config


def read(job):
    """What TRL makes of one job; keys that it does not know are refused here (its script passes over them)."""
    enter(job)
    SFTConfig.world_size = property(lambda _: job["world"])
    parser = TrlParser((ScriptArguments, SFTConfig, ModelConfig))
    argv = [*job["argv"], "--use_cpu", "true", "--output_dir", str(Path("out").absolute())]
    script, found, model = parser.parse_args_and_config(argv)
    peft, quantised = get_peft_config(model), get_quantization_config(model)
    return {
        "model": model.model_name_or_path,
        "data": script.dataset_name,
        "sequence": found.max_length,
        "packed": [found.packing, found.packing_strategy, model.attn_implementation],
        "dtype": model.dtype,
        "liger": found.use_liger_kernel,
        "adapters": [peft.r, peft.lora_alpha, peft.lora_dropout, sorted(peft.target_modules)] if peft else None,
        "bits": 8 if quantised and quantised.load_in_8bit else 4 if quantised else None,
        "scales": _scales(quantised) if quantised and quantised.load_in_4bit else None,
        **engine(found),
    }


def _scales(quantised):
    storage = str(quantised.bnb_4bit_quant_storage).removeprefix("torch.")
    return [quantised.bnb_4bit_quant_type, quantised.bnb_4bit_use_double_quant, storage]


answer(read)
