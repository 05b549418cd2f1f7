"""Run by torchtitan's environment: the first batch of a benchmark. ``read_torchtitan_data.py JOBS ANSWERS``.

``JOBS`` is a JSON list of ``{folder, argv}``: the module in the folder is imported, its loader is built as the trainer
does.
"""

import sys

from answering import answer
from torchtitan.config import ConfigManager


def read(job):
    """Shapes of the batch's tensors, and whether every token is one of the vocabulary."""
    sys.path.insert(0, job["folder"])
    config = ConfigManager().parse_args(job["argv"])
    tokenizer = config.tokenizer.build(tokenizer_path=config.hf_assets_path)
    t, p = config.training, config.parallelism
    loader = config.dataloader.build(
        dp_world_size=2,
        dp_rank=1,
        tokenizer=tokenizer,
        seq_len=t.seq_len,
        local_batch_size=p.pipeline_parallel_microbatch_size,
        snapshot_every_n_steps=None,
    )
    inputs, labels = next(iter(loader))
    vocab = tokenizer.get_vocab_size()
    return {
        "tokens": list(inputs["input"].shape),
        "labels": list(labels.shape),
        "positions": int(inputs["positions"].max()),
        "inside": bool(((0 <= labels) & (labels < vocab)).all()),
        "vocab": vocab,
    }


answer(read)
