#!/usr/bin/env bash
# Llama 3 8B on dgx-a100-80gb:4: deepspeed, plan 1
# TP 1, PP 1, VPP 1, CP 1, EP 1, DP 32, ZeRO-2, bf16, 35.2 s a step predicted
# Fill in:
#   <script>: training script, started on every accelerator
cd "$(dirname "$0")" || exit
set -euo pipefail
: "${NODE_RANK:?this node, from 0 to 3}"
: "${MASTER_ADDR:?address of node 0}"
python3 release_check.py

exec torchrun \
  --nnodes 4 \
  --nproc-per-node 8 \
  --node-rank "$NODE_RANK" \
  --master-addr "$MASTER_ADDR" \
  --master-port 29500 \
  plan_check.py '<script>' \
  --deepspeed \
  --deepspeed_config ds_config.json
