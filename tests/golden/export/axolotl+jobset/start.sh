#!/usr/bin/env bash
# Llama 3 8B on dgx-h100:2: axolotl+jobset, plan 1
# TP 1, PP 1, VPP 1, CP 1, EP 1, DP 16, ZeRO-3, bf16, 20.6 s a step predicted
cd "$(dirname "$0")" || exit
set -euo pipefail
: "${NODE_RANK:?this node, from 0 to 1}"
: "${MASTER_ADDR:?address of node 0}"
python3 release_check.py

exec torchrun \
  --nnodes 2 \
  --nproc-per-node 8 \
  --node-rank "$NODE_RANK" \
  --master-addr "$MASTER_ADDR" \
  --master-port 29500 \
  plan_check.py axolotl.cli.train axolotl.yaml
