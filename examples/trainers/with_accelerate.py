"""Hugging Face Accelerate: make the process group before the Accelerator, which then uses it.

torchrun --nproc-per-node 2 examples/trainers/with_accelerate.py
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from accelerate import Accelerator
from digits import make_data, make_model
from torch import nn
from torch.utils.data import DataLoader


def main() -> None:
    """Train for an epoch."""
    dist.init_process_group("netfold")  # this line
    accelerator = Accelerator(cpu=not torch.cuda.is_available())
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(make_data(), batch_size=32))
    for pictures, labels in loader:
        optimizer.zero_grad()
        accelerator.backward(nn.functional.cross_entropy(model(pictures), labels))
        optimizer.step()
    if accelerator.is_main_process:
        print(f"trained by {dist.get_backend()} on {accelerator.num_processes} workers", flush=True)
    accelerator.end_training()


if __name__ == "__main__":
    main()
