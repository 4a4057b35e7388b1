"""Ray Train: name the backend in the configuration of torch.

python examples/trainers/with_ray.py              # two processes of this machine; on a cluster of Ray, of its machines
"""

from __future__ import annotations

import tempfile

import ray
import torch
import torch.distributed as dist
from digits import make_data, make_model
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer, prepare_data_loader, prepare_model
from torch import nn
from torch.utils.data import DataLoader


def train() -> None:
    """Train for an epoch: each worker runs this."""
    model = prepare_model(make_model())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for pictures, labels in prepare_data_loader(DataLoader(make_data(), batch_size=32)):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(pictures), labels).backward()
        optimizer.step()
    if dist.get_rank() == 0:
        print(f"trained by {dist.get_backend()} on {dist.get_world_size()} workers", flush=True)


def main() -> None:
    """Start two workers."""
    ray.init(include_dashboard=False)
    with tempfile.TemporaryDirectory() as folder:
        TorchTrainer(
            train,
            torch_config=TorchConfig(backend="netfold"),  # this line
            scaling_config=ScalingConfig(num_workers=2, use_gpu=torch.cuda.is_available()),
            run_config=RunConfig(storage_path=folder),
        ).fit()
    ray.shutdown()


if __name__ == "__main__":
    main()
