#!/usr/bin/env bash
# Llama 3 70B on dgx-h100:16: megatron-bridge+slurm, plan 1
# TP 4, PP 4, VPP 4, CP 2, EP 1, DP 4, ZeRO-1, bf16, 57.6 s a step predicted
cd "$(dirname "$0")" || exit
set -euo pipefail
: "${NODE_RANK:?this node, from 0 to 15}"
: "${MASTER_ADDR:?address of node 0}"
export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
export TORCH_NCCL_AVOID_RECORD_STREAMS=1
export NVTE_FWD_LAYERNORM_SM_MARGIN=16
export NVTE_BWD_LAYERNORM_SM_MARGIN=16
export CUDA_DEVICE_MAX_CONNECTIONS=1
python3 release_check.py

exec torchrun \
  --nnodes 16 \
  --nproc-per-node 8 \
  --node-rank "$NODE_RANK" \
  --master-addr "$MASTER_ADDR" \
  --master-port 29500 \
  train.py
