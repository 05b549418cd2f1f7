#!/usr/bin/env bash
# Llama 3 70B on dgx-h100:16: torchrun, plan 1
# TP 4, PP 4, VPP 4, CP 2, EP 1, DP 4, ZeRO-1, bf16, 57.6 s a step predicted
# Fill in:
#   <script>: training script, started on every accelerator
cd "$(dirname "$0")" || exit
set -euo pipefail
: "${NODE_RANK:?this node, from 0 to 15}"
: "${MASTER_ADDR:?address of node 0}"
export CLUSTERWRIGHT_PLAN=plan.json

exec torchrun \
  --nnodes 16 \
  --nproc-per-node 8 \
  --node-rank "$NODE_RANK" \
  --master-addr "$MASTER_ADDR" \
  --master-port 29500 \
  '<script>'
