"""torchtitan on random tokens: a job that measures reads no data set and no tokenizer.

Written against, and tried on, torchtitan 0.3.0, which has no mock data: its own test data are in its repository only.
"""

from __future__ import annotations

from dataclasses import replace

from planner.launchers.target import LaunchJob

MODULE = "plan_on_random_tokens"
"""Beside the plan's module, whose configuration it changes; the configuration is called the same."""


def measured(job: LaunchJob, plan_module: str) -> LaunchJob:
    """The job with the module that this file holds in place of the plan's own, which it imports.

    Args:
        job: As torchtitan's exporter makes it.
        plan_module: The module with the model's shape.
    """
    file = f"{MODULE}.py"
    command, argv = (
        tuple(MODULE if word == plan_module else word for word in words) for words in (job.command, job.argv)
    )
    files = {**job.files, file: _TEXT.replace("@PLAN@", plan_module)}
    return replace(job, command=command, argv=argv, files=files, needed=(*job.needed, file))


_TEXT = '''"""The plan's configuration on random tokens: nothing is read."""

from dataclasses import dataclass, replace

import torch
from @PLAN@ import VOCAB
from @PLAN@ import plan as on_text
from torchtitan.components.dataloader import BaseDataLoader
from torchtitan.components.tokenizer import BaseTokenizer


class NoTokenizer(BaseTokenizer):
    @dataclass(kw_only=True, slots=True)
    class Config(BaseTokenizer.Config):
        pass

    def __init__(self, config, *, tokenizer_path):
        super().__init__()

    def encode(self, text):
        raise NotImplementedError("no text is read")

    decode = encode

    def get_vocab_size(self):
        return VOCAB


class RandomTokens(BaseDataLoader):
    """Batches without end; a sequence is one text. Every data-parallel rank has its own."""

    @dataclass(kw_only=True, slots=True)
    class Config(BaseDataLoader.Config):
        pass

    def __init__(self, config, *, dp_rank, seq_len, local_batch_size, **kwargs):
        self.generator = torch.Generator().manual_seed(dp_rank)
        self.size = (local_batch_size, seq_len)

    def __iter__(self):
        positions = torch.arange(self.size[1]).repeat(self.size[0], 1)
        while True:
            tokens, labels = (torch.randint(VOCAB, self.size, generator=self.generator) for _ in range(2))
            yield {"input": tokens, "positions": positions}, labels

    def state_dict(self):
        return {}

    def load_state_dict(self, state_dict):
        pass


def plan():
    return replace(on_text(), hf_assets_path=".", tokenizer=NoTokenizer.Config(), dataloader=RandomTokens.Config())
'''
