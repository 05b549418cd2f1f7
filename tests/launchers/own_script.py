"""A training script of one's own under Accelerate: the model of config.json on random words, 50 steps.

``own_script.py write`` writes a tokenizer, untrained weights and texts instead, for a program that wants them.
"""

import json
import sys
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM

STEPS, LENGTH = 50, 256


def model():
    """Untrained, in 32 bit, the same on every rank."""
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(AutoConfig.from_pretrained("."), dtype=torch.float32)


def write():
    """A folder ``model`` whose tokenizer knows a word a number, and 600 texts of 200 words in ``texts``."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    made = model()
    words = [f"w{number}" for number in range(made.config.vocab_size - 1)]
    split = Tokenizer(models.WordLevel(dict(zip(["end", *words], range(len(words) + 1), strict=True)), unk_token="end"))
    split.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=split, eos_token="end", pad_token="end").save_pretrained("model")
    made.save_pretrained("model")
    Path("texts").mkdir()
    chosen = torch.randint(len(words), (600, 200)).tolist()
    lines = [json.dumps({"text": " ".join(words[at] for at in row)}) + "\n" for row in chosen]
    Path("texts", "texts.jsonl").write_text("".join(lines), encoding="utf-8")


def train():
    """Steps as Accelerate's own examples have them."""
    from accelerate import Accelerator

    accelerator, own = Accelerator(), model()
    words = torch.randint(own.config.vocab_size, (STEPS, 1, LENGTH))
    prepared, optimizer = accelerator.prepare(own, torch.optim.AdamW(own.parameters(), lr=1e-4))
    for step, batch in enumerate(words, 1):
        loss = prepared(input_ids=batch, labels=batch).loss
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        accelerator.print(f"step: {step} loss: {float(loss):.4f}", flush=True)


if __name__ == "__main__":
    write() if sys.argv[1:] == ["write"] else train()
