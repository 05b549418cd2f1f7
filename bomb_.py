from megatron.bridge.training.config import ConfigContainer
from megatron.bridge.training.pretrain import pretrain
a=list(range(100000))
for i in range(1999):
  a=list(enumerate(a))
