"""An ordinary training script. The one line that concerns Netfold is init_process_group("netfold").

torchrun --nproc-per-node 4 examples/train_digits.py                       # in shared memory
NETFOLD_FORMAT=bfp torchrun --nproc-per-node 4 examples/train_digits.py    # a quarter of the bytes

docs/how-to/train-with-pytorch.md shows the commands for several machines.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def main() -> None:
    """Train, and let rank 0 say how well it went."""
    dist.init_process_group("netfold")
    torch.manual_seed(0)
    digits = load_digits()
    pictures = torch.as_tensor((digits.data - digits.data.mean()) / digits.data.std()).float()
    data = TensorDataset(pictures, torch.as_tensor(digits.target).long())
    train, test = torch.utils.data.random_split(data, [0.8, 0.2], torch.Generator().manual_seed(0))

    sampler = DistributedSampler(train)
    loader = DataLoader(train, batch_size=32, sampler=sampler)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for epoch in range(10):
        sampler.set_epoch(epoch)
        for inputs, labels in loader:
            loss = nn.functional.cross_entropy(model(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    if dist.get_rank() == 0:
        inputs, labels = test[:]
        with torch.no_grad():
            right = (model.module(inputs).argmax(dim=1) == labels).float().mean().item()
        print(f"test accuracy {right:.1%} on {dist.get_world_size()} workers")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
