"""Hugging Face Trainer: make the process group before the TrainingArguments, which then use it.

torchrun --nproc-per-node 2 examples/trainers/with_transformers.py
"""

from __future__ import annotations

import tempfile

import torch
import torch.distributed as dist
from digits import make_data, make_model
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainingArguments


class Classifier(nn.Module):
    """The digits, with the loss as Trainer wants it."""

    def __init__(self) -> None:
        super().__init__()
        self.model = make_model()

    def forward(self, pictures: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        """Loss and logits."""
        logits = self.model(pictures)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


class Digits(Dataset):
    """The digits by name."""

    def __init__(self) -> None:
        self.data = make_data()

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        pictures, labels = self.data[index]
        return {"pictures": pictures, "labels": labels}


def main() -> None:
    """Train for an epoch."""
    dist.init_process_group("netfold")  # this line
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            use_cpu=not torch.cuda.is_available(),
            per_device_train_batch_size=32,
            learning_rate=0.01,
            num_train_epochs=1,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            ddp_find_unused_parameters=False,
        )
        Trainer(Classifier(), arguments, train_dataset=Digits()).train()
    if dist.get_rank() == 0:
        print(f"trained by {dist.get_backend()} on {dist.get_world_size()} workers", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
