#!/usr/bin/env bash
# Llama 3 70B on dgx-h100:16: megatron+slurm, plan 1
# TP 4, PP 4, VPP 4, CP 2, EP 1, DP 4, ZeRO-1, bf16, 57.6 s a step predicted
# Fill in:
#   <megatron-lm>: folder of a Megatron-LM checkout
#   <data-path>: indexed dataset (prefix of .bin and .idx)
#   <tokenizer-model>: tokenizer file or Hugging Face id
#   <save>: folder for checkpoints
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
  plan_check.py '<megatron-lm>/pretrain_gpt.py' \
  --tensor-model-parallel-size 4 \
  --pipeline-model-parallel-size 4 \
  --num-virtual-stages-per-pipeline-rank 4 \
  --context-parallel-size 2 \
  --cp-comm-type p2p \
  --sequence-parallel \
  --tp-comm-overlap \
  --use-distributed-optimizer \
  --overlap-grad-reduce \
  --overlap-param-gather \
  --num-layers 80 \
  --hidden-size 8192 \
  --ffn-hidden-size 28672 \
  --num-attention-heads 64 \
  --kv-channels 128 \
  --group-query-attention \
  --num-query-groups 8 \
  --seq-length 8192 \
  --max-position-embeddings 8192 \
  --position-embedding-type rope \
  --normalization RMSNorm \
  --swiglu \
  --disable-bias-linear \
  --untie-embeddings-and-output-weights \
  --vocab-size 128256 \
  --make-vocab-size-divisible-by 64 \
  --attention-dropout 0.0 \
  --hidden-dropout 0.0 \
  --rotary-base 500000 \
  --micro-batch-size 1 \
  --global-batch-size 1024 \
  --bf16 \
  --cross-entropy-loss-fusion \
  --optimizer adam \
  --manual-gc \
  --manual-gc-interval 100 \
  --lr 1.0e-4 \
  --train-iters 119210 \
  --eval-iters 0 \
  --eval-interval 119210 \
  --load '<save>' \
  --save '<save>' \
  --save-interval 67 \
  --async-save \
  --use-persistent-ckpt-worker \
  --exit-duration-in-mins 10062 \
  --exit-signal-handler \
  --exit-signal SIGUSR1 \
  --data-path '<data-path>' \
  --tokenizer-type HuggingFaceTokenizer \
  --tokenizer-model '<tokenizer-model>'
