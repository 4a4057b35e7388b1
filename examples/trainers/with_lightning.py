"""PyTorch Lightning: name the backend in the strategy.

python examples/trainers/with_lightning.py              # two processes of this machine
"""

from __future__ import annotations

import lightning
import torch
import torch.distributed as dist
from digits import make_data, make_model
from lightning.pytorch.strategies import DDPStrategy
from torch import nn
from torch.utils.data import DataLoader


class Classifier(lightning.LightningModule):
    """The digits."""

    def __init__(self) -> None:
        super().__init__()
        self.model = make_model()

    def training_step(self, batch: list[torch.Tensor], number: int) -> torch.Tensor:
        """The loss of a batch."""
        return nn.functional.cross_entropy(self.model(batch[0]), batch[1])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Plain SGD."""
        return torch.optim.SGD(self.parameters(), lr=0.1)

    def on_train_end(self) -> None:
        """Say who summed."""
        if dist.get_rank() == 0:
            print(f"trained by {dist.get_backend()} on {dist.get_world_size()} workers", flush=True)


def main() -> None:
    """Train for an epoch."""
    trainer = lightning.Trainer(
        accelerator="auto",
        devices=2,
        strategy=DDPStrategy(process_group_backend="netfold"),  # this line
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
    )
    trainer.fit(Classifier(), DataLoader(make_data(), batch_size=32))


if __name__ == "__main__":
    main()
