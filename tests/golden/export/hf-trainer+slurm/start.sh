#!/usr/bin/env bash
# Llama 3 8B on dgx-a100-80gb:4: hf-trainer+slurm, plan 1
# TP 1, PP 1, VPP 1, CP 1, EP 1, DP 32, ZeRO-2, bf16, 35.2 s a step predicted
# Fill in:
#   <model>: Hugging Face id or folder of the model: config.json, tokenizer, weights to tune
#   <train-file>: JSON lines with a field "text"
#   <save>: folder for checkpoints
cd "$(dirname "$0")" || exit
set -euo pipefail
: "${NODE_RANK:?this node, from 0 to 3}"
: "${MASTER_ADDR:?address of node 0}"
python3 release_check.py

exec accelerate launch \
  --config_file accelerate.yaml \
  --machine_rank "$NODE_RANK" \
  --main_process_ip "$MASTER_ADDR" \
  --main_process_port 29500 \
  plan_check.py train.py \
  --model_name_or_path '<model>' \
  --train_file '<train-file>' \
  --block_size 8192 \
  --model_layers 32 \
  --model_hidden 4096 \
  --model_vocab 128256 \
  --model_untrained true \
  --per_device_train_batch_size 1 \
  --gradient_accumulation_steps 16 \
  --bf16 true \
  --deepspeed ds_config.json \
  --optim adamw_torch \
  --learning_rate 0.0001 \
  --max_steps 238419 \
  --logging_steps 10 \
  --output_dir '<save>' \
  --save_steps 218
