#!/usr/bin/env bash
# GPT-3 175B on dgx-a100-80gb:8 + dgx-a100-40gb:8: torchrun+slurm, plan 1
# TP 8, PP 16, VPP 1, CP 1, EP 1, DP 1, ZeRO-0, bf16, 2.37 min a step predicted
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
