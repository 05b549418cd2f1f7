#!/usr/bin/env bash
# Mixtral 8x7B on dgx-h100:32: megatron+pytorchjob, plan 1
# TP 2, PP 1, VPP 1, CP 1, EP 8, DP 128, ZeRO-1, bf16, 2.70 s a step predicted
# Fill in:
#   <megatron-lm>: folder of a Megatron-LM checkout
#   <data-path>: indexed dataset (prefix of .bin and .idx)
#   <tokenizer-model>: tokenizer file or Hugging Face id
#   <save>: folder for checkpoints
cd "$(dirname "$0")" || exit
set -euo pipefail
: "${NODE_RANK:?this node, from 0 to 31}"
: "${MASTER_ADDR:?address of node 0}"
export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
export TORCH_NCCL_AVOID_RECORD_STREAMS=1
export NVTE_FWD_LAYERNORM_SM_MARGIN=16
export NVTE_BWD_LAYERNORM_SM_MARGIN=16
export CUDA_DEVICE_MAX_CONNECTIONS=1
python3 release_check.py

exec torchrun \
  --nnodes 32 \
  --nproc-per-node 8 \
  --node-rank "$NODE_RANK" \
  --master-addr "$MASTER_ADDR" \
  --master-port 29500 \
  plan_check.py '<megatron-lm>/pretrain_gpt.py' \
  --tensor-model-parallel-size 2 \
  --pipeline-model-parallel-size 1 \
  --context-parallel-size 1 \
  --expert-model-parallel-size 8 \
  --expert-tensor-parallel-size 2 \
  --sequence-parallel \
  --tp-comm-overlap \
  --use-distributed-optimizer \
  --overlap-grad-reduce \
  --overlap-param-gather \
  --num-layers 32 \
  --hidden-size 4096 \
  --ffn-hidden-size 14336 \
  --num-attention-heads 32 \
  --kv-channels 128 \
  --group-query-attention \
  --num-query-groups 8 \
  --seq-length 4096 \
  --max-position-embeddings 4096 \
  --position-embedding-type rope \
  --normalization RMSNorm \
  --swiglu \
  --disable-bias-linear \
  --untie-embeddings-and-output-weights \
  --vocab-size 32000 \
  --make-vocab-size-divisible-by 128 \
  --attention-dropout 0.0 \
  --hidden-dropout 0.0 \
  --num-experts 8 \
  --moe-router-topk 2 \
  --moe-ffn-hidden-size 14336 \
  --moe-router-dtype fp32 \
  --moe-grouped-gemm \
  --moe-permute-fusion \
  --moe-router-fusion \
  --rotary-base 500000 \
  --moe-token-dispatcher-type alltoall \
  --micro-batch-size 2 \
  --global-batch-size 1024 \
  --bf16 \
  --cross-entropy-loss-fusion \
  --optimizer adam \
  --manual-gc \
  --manual-gc-interval 100 \
  --lr 1.0e-4 \
  --train-iters 238419 \
  --eval-iters 0 \
  --eval-interval 238419 \
  --load '<save>' \
  --save '<save>' \
  --save-interval 995 \
  --async-save \
  --use-persistent-ckpt-worker \
  --data-path '<data-path>' \
  --tokenizer-type HuggingFaceTokenizer \
  --tokenizer-model '<tokenizer-model>'
