"""The variables with which ``accelerate launch`` starts a script, and what its engines make of them."""

import os

from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from accelerate.parallelism_config import ParallelismConfig
from accelerate.utils import FullyShardedDataParallelPlugin
from accelerate.utils.launch import prepare_deepspeed_cmd_env, prepare_multi_gpu_env

OWN = dict(os.environ)


def environment(config):
    """The variables with which ``accelerate launch`` starts a script."""
    words = ["--config_file", config, "--machine_rank", "0", "--main_process_ip", "127.0.0.1", "train.py"]
    known, defaults, twice = _validate_launch_command(launch_command_parser().parse_args(words))
    if known.use_deepspeed:
        written = [*defaults.deepspeed_config, *(["mixed_precision"] if twice else [])]
        known.deepspeed_fields_from_accelerate_config = ",".join(written)  # as launch_command does
        return prepare_deepspeed_cmd_env(known)[1]
    return prepare_multi_gpu_env(known)


def enter(job):
    """Goes into a job's folder with its variables; one process stands for all."""
    os.chdir(job["folder"])
    os.environ.clear()
    os.environ.update({**OWN, **environment("accelerate.yaml"), **job["environment"]})


def engine(found):
    """How the Trainer's arguments, in these variables, shard: FSDP's switches and degrees, or DeepSpeed's stage."""
    sharded = os.environ.get("ACCELERATE_USE_FSDP") == "true"
    fsdp = FullyShardedDataParallelPlugin() if sharded else None
    degrees = ParallelismConfig() if sharded else None
    if found.deepspeed_plugin and found.hf_deepspeed_config.mismatches:
        raise ValueError(found.hf_deepspeed_config.mismatches)  # as trainer_config_finalize does
    config = found.deepspeed_plugin.hf_ds_config.config if found.deepspeed_plugin else None
    return {
        "micro": found.per_device_train_batch_size,
        "accumulation": found.gradient_accumulation_steps,
        "precision": found.mixed_precision,
        "optimizer": str(found.optim.value),
        "rate": found.learning_rate,
        "steps": [found.max_steps, found.save_steps],
        "fsdp": [fsdp.fsdp_version, fsdp.reshard_after_forward, fsdp.cpu_ram_efficient_loading] if fsdp else None,
        "mesh": [degrees.dp_replicate_size, degrees.dp_shard_size, degrees.total_size] if degrees else None,
        "zero": config["zero_optimization"]["stage"] if config else None,
        "global": config["train_batch_size"] if config else None,
        "recompute": fsdp.activation_checkpointing if fsdp else bool(found.gradient_checkpointing),
    }
