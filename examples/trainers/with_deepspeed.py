"""DeepSpeed: make its process group with Netfold before deepspeed.initialize.

torchrun --nproc-per-node 2 examples/trainers/with_deepspeed.py
"""

from __future__ import annotations

import deepspeed
import torch.distributed as dist
from digits import make_data, make_model
from torch import nn


def main() -> None:
    """Train for an epoch, with the optimizer's state divided among the workers (ZeRO 1)."""
    deepspeed.init_distributed(dist_backend="netfold")  # this line
    model = make_model()
    engine, _, loader, _ = deepspeed.initialize(
        model=model,
        model_parameters=model.parameters(),
        training_data=make_data(),
        config={
            "train_micro_batch_size_per_gpu": 32,
            "optimizer": {"type": "SGD", "params": {"lr": 0.1}},
            "zero_optimization": {"stage": 1},
            "zero_allow_untested_optimizer": True,
        },
    )
    for pictures, labels in loader:
        logits = engine(pictures.to(engine.device))
        engine.backward(nn.functional.cross_entropy(logits, labels.to(engine.device)))
        engine.step()
    if dist.get_rank() == 0:
        print(f"trained by {dist.get_backend()} on {dist.get_world_size()} workers", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
