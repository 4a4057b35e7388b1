"""Batches of pictures, prepared as in a training job: unpacked, cropped, resized, flipped, normalized.

The pictures are synthetic: smooth, with some noise. Memory holds them compressed by zlib, in place of files.
"""

from __future__ import annotations

import threading
import zlib
from concurrent.futures import Future, ThreadPoolExecutor

import torch
from torch.nn import functional

STORED = 64  # pictures of a worker
LARGER = 1.5  # side of a stored picture, relative to the model's input
SMOOTH = 8  # side in pixels of the picture that is enlarged to a stored one
NOISE = 6.0
Batch = tuple[torch.Tensor, torch.Tensor]


class Loader:
    """One worker's pictures and labels; `prepare` makes the next batch, `prefetch` makes it in a thread of its own."""

    def __init__(self, image: int, batch: int, classes: int, seed: int) -> None:
        self._generator = torch.Generator().manual_seed(seed)
        self._image = image
        self._batch = batch
        self._side = int(image * LARGER)
        self._labels = torch.randint(classes, (STORED,), generator=self._generator)
        self._packed = [self._pack() for _ in range(STORED)]
        self._thread = ThreadPoolExecutor(1, "loader")
        self.thread_id: int = self._thread.submit(threading.get_native_id).result()

    def _pack(self) -> bytes:
        coarse = 255 * torch.rand(1, 3, SMOOTH, SMOOTH, generator=self._generator)
        picture = functional.interpolate(coarse, self._side, mode="bicubic")
        picture += NOISE * torch.randn(picture.shape, generator=self._generator)
        return zlib.compress(picture.clamp_(0, 255).to(torch.uint8).numpy().tobytes())

    def _picture(self, number: int) -> torch.Tensor:
        """float32[3, image, image]: a random part of the stored picture, perhaps mirrored."""
        raw = torch.frombuffer(bytearray(zlib.decompress(self._packed[number])), dtype=torch.uint8)
        picture = raw.view(3, self._side, self._side).float()
        side, top, left, mirrored = self._crop()
        part = picture[:, top : top + side, left : left + side]
        resized = functional.interpolate(part[None], self._image, mode="bilinear", antialias=True)[0]
        return resized.flip(2) if mirrored else resized

    def _crop(self) -> tuple[int, int, int, bool]:
        side = int(torch.randint(self._image, self._side + 1, (), generator=self._generator))
        top, left = (int(torch.randint(self._side - side + 1, (), generator=self._generator)) for _ in range(2))
        return side, top, left, bool(torch.randint(2, (), generator=self._generator))

    def prepare(self) -> Batch:
        """Pictures float32[batch, 3, image, image] with mean 0 and deviation 1; labels int64[batch]."""
        chosen = torch.randint(STORED, (self._batch,), generator=self._generator)
        pictures = torch.stack([self._picture(int(number)) for number in chosen])
        return (pictures - pictures.mean()) / pictures.std(), self._labels[chosen]

    def prefetch(self) -> Future[Batch]:
        """The next batch, prepared in the loader's thread. Wait for it before asking for another."""
        return self._thread.submit(self.prepare)

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown()
