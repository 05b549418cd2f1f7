#!/usr/bin/env bash
# Llama 3 8B on dgx-h100:2: llama-factory, plan 1
# TP 1, PP 1, VPP 1, CP 1, EP 1, DP 16, ZeRO-3, bf16, 20.6 s a step predicted
cd "$(dirname "$0")" || exit
set -euo pipefail
: "${NODE_RANK:?this node, from 0 to 1}"
: "${MASTER_ADDR:?address of node 0}"
python3 release_check.py

exec accelerate launch \
  --config_file accelerate.yaml \
  --machine_rank "$NODE_RANK" \
  --main_process_ip "$MASTER_ADDR" \
  --main_process_port 29500 \
  plan_check.py llamafactory.launcher llama_factory.yaml
