#!/usr/bin/env bash
# Llama 3 8B on dgx-h100:8: torchtitan, plan 1
# TP 1, PP 1, VPP 1, CP 1, EP 1, DP 64, ZeRO-3, bf16, 7.82 s a step predicted
# Fill in:
#   <hf-assets-path>: folder with the tokenizer
#   <save>: folder for checkpoints
#   <dataset>: data set, by torchtitan's name: c4, or one that its DATASETS holds
cd "$(dirname "$0")" || exit
set -euo pipefail
: "${NODE_RANK:?this node, from 0 to 7}"
: "${MASTER_ADDR:?address of node 0}"
export PYTHONPATH=.
python3 release_check.py

exec torchrun \
  --nnodes 8 \
  --nproc-per-node 8 \
  --node-rank "$NODE_RANK" \
  --master-addr "$MASTER_ADDR" \
  --master-port 29500 \
  plan_check.py torchtitan.train \
  --module plan_config \
  --config plan \
  --parallelism.data_parallel_replicate_degree 1 \
  --parallelism.data_parallel_shard_degree 64 \
  --parallelism.tensor_parallel_degree 1 \
  --parallelism.context_parallel_degree 1 \
  --parallelism.expert_parallel_degree 1 \
  --parallelism.fsdp_reshard_after_forward always \
  --parallelism.pipeline_parallel_degree 1 \
  --training.local_batch_size 1 \
  --training.global_batch_size 512 \
  --training.seq_len 8192 \
  --training.steps 238419 \
  --training.mixed_precision_param bfloat16 \
  --compile.enable \
  --hf_assets_path '<hf-assets-path>' \
  --dataloader.dataset '<dataset>' \
  --checkpoint.enable \
  --checkpoint.folder '<save>' \
  --checkpoint.interval 686 \
  --checkpoint.async_mode async
