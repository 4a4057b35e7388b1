"""ResNet-50 in plain torch.nn: He et al., "Deep Residual Learning for Image Recognition", table 1, 25.6 million
parameters; the stride of a stage is in its 3x3 convolution, as in most implementations since."""

from __future__ import annotations

import torch
from torch import nn

STAGES = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))
"""Channels inside a block, blocks, stride of the first block."""
EXPANSION = 4


def convolution(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Sequential:
    """A convolution that keeps the picture's size (except for its stride), and its batch normalization."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False), nn.BatchNorm2d(outputs)
    )


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions with a shortcut connection."""

    def __init__(self, inputs: int, channels: int, stride: int) -> None:
        super().__init__()
        outputs = channels * EXPANSION
        self.body = nn.Sequential(
            convolution(inputs, channels, 1),
            nn.ReLU(inplace=True),
            convolution(channels, channels, 3, stride),
            nn.ReLU(inplace=True),
            convolution(channels, outputs, 1),
        )
        alike = stride == 1 and inputs == outputs
        self.short_cut = nn.Identity() if alike else convolution(inputs, outputs, 1, stride)

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        """float32[n, inputs, h, w] -> float32[n, 4 * channels, h / stride, w / stride]."""
        return torch.relu(self.body(pictures) + self.short_cut(pictures))


def resnet50(classes: int) -> nn.Sequential:
    """float32[n, 3, h, w] -> float32[n, classes]; h and w are 32 at least."""
    layers: list[nn.Module] = [
        *convolution(3, 64, 7, stride=2),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, stride=2, padding=1),
    ]
    inputs = 64
    for channels, blocks, stride in STAGES:
        for block in range(blocks):
            layers.append(Bottleneck(inputs, channels, stride if block == 0 else 1))
            inputs = channels * EXPANSION
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))
