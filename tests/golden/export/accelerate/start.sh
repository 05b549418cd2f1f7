#!/usr/bin/env bash
# Llama 3 8B on dgx-h100:8: accelerate, plan 1
# TP 1, PP 1, VPP 1, CP 1, EP 1, DP 64, ZeRO-3, bf16, 7.82 s a step predicted
# Fill in:
#   <script>: training script, started on every accelerator
cd "$(dirname "$0")" || exit
set -euo pipefail
: "${NODE_RANK:?this node, from 0 to 7}"
: "${MASTER_ADDR:?address of node 0}"
export ACCELERATE_GRADIENT_ACCUMULATION_STEPS=8
python3 release_check.py

exec accelerate launch \
  --config_file accelerate.yaml \
  --machine_rank "$NODE_RANK" \
  --main_process_ip "$MASTER_ADDR" \
  --main_process_port 29500 \
  plan_check.py '<script>'
