#!/usr/bin/env bash
# Llama 3 70B on dgx-h100:4 + dgx-a100-80gb:4: torchrun+slurm, plan 1
# TP 4, PP 6, VPP 1, CP 2, EP 1, DP 2, ZeRO-1, bf16, 2.72 min a step predicted
# Fill in:
#   <script>: training script, started on every accelerator
cd "$(dirname "$0")" || exit
set -euo pipefail
: "${NODE_RANK:?this node, from 0 to 7}"
: "${MASTER_ADDR:?address of node 0}"
export CLUSTERWRIGHT_PLAN=plan.json

exec torchrun \
  --nnodes 8 \
  --nproc-per-node 8 \
  --node-rank "$NODE_RANK" \
  --master-addr "$MASTER_ADDR" \
  --master-port 29500 \
  '<script>'
