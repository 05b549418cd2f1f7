from megatron.bridge.training.config import ConfigContainer
from megatron.bridge.training.pretrain import pretrain
x=round(2**61,-10**9)
y=round(1.5, 10**9)
