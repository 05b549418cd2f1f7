"""A tiny GPT-2 trained for real by Hugging Face's Trainer under DistributedDataParallel on CPU."""

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
from transformers.utils import logging

STEPS, LENGTH = 14, 64


class Words(torch.utils.data.Dataset):
    """Random words, the same in every run."""

    def __len__(self):
        return 1024

    def __getitem__(self, index):
        torch.manual_seed(index)
        words = torch.randint(0, 128, (LENGTH,))
        return {"input_ids": words, "labels": words}


logging.set_verbosity_info()
model = GPT2LMHeadModel(GPT2Config(n_layer=2, n_head=2, n_embd=64, vocab_size=128, n_positions=LENGTH))
arguments = TrainingArguments(
    "out", max_steps=STEPS, per_device_train_batch_size=4, gradient_accumulation_steps=2, logging_steps=1,
    save_strategy="no", report_to=[], use_cpu=True, ddp_backend="gloo",
)  # fmt: skip
Trainer(model=model, args=arguments, train_dataset=Words()).train()
