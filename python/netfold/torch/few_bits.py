"""The mean of a tensor over the ranks of any process group, with few bits a value on the wire.

A reduce-scatter and an all-gather of encoded parts. Every rank cuts its tensor into one part a rank, and encodes them
as block floating point. The owner of a part decodes what comes, adds it up in fp32 in rank order, and encodes the mean
again. So a value is rounded twice, whatever the number of ranks, and every rank decodes the same bytes.

Both halves are all-to-alls. A ring's all-gather has the same bytes, but n - 1 delays of the links one behind the other
and one connection a rank at work; here it is one delay, and n - 1 connections.
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass

import torch
import torch.distributed as dist

from netfold import _core

NEAREST, STOCHASTIC = ROUNDINGS = ("nearest", "stochastic")
BITS_MIN, BITS_MAX = 3, 8  # of a value: a sign and a mantissa


@dataclass(frozen=True)
class Coding:
    """How values travel: `bits` a value, 8 more for each `block` of them, rounded to the nearest value or by chance.

    Raises ValueError for what the format does not have."""

    bits: int = 4
    block: int = 64
    rounding: str = NEAREST
    seed: int = 0

    def __post_init__(self) -> None:
        if not BITS_MIN <= self.bits <= BITS_MAX:
            raise ValueError(f"bits is {self.bits}: block floating point has {BITS_MIN} to {BITS_MAX} bits a value")
        if self.block not in (8, 16, 32, 64, 128):
            raise ValueError(f"block is {self.block}: take 8, 16, 32, 64 or 128 values that share an exponent")
        if self.rounding not in ROUNDINGS:
            raise ValueError(f"rounding is {self.rounding!r}: write {NEAREST} or {STOCHASTIC}")

    def encoded_bytes(self, count: int) -> int:
        """Bytes of `count` values, which are whole blocks."""
        return count // self.block * (1 + self.block * self.bits // 8)

    def part(self, count: int, ranks: int) -> int:
        """Values of each rank's part of `count`: whole blocks, so the last part may be padded."""
        return -(-count // (ranks * self.block)) * self.block

    def encode(self, values: torch.Tensor, draw: tuple[int, ...]) -> torch.Tensor:
        """The bytes of a flat fp32 tensor of whole blocks. Rounding by chance is the same in every run: it draws from
        the seed and `draw`."""
        seed = None
        if self.rounding == STOCHASTIC:
            named = repr((self.seed, *draw)).encode()
            seed = int.from_bytes(hashlib.blake2b(named, digest_size=8).digest(), "little")
        return torch.from_numpy(_core.encode(values.numpy(), self.block, self.bits - 1, seed=seed))

    def decode(self, encoded: torch.Tensor, count: int) -> torch.Tensor:
        """The opposite of `encode`: a flat fp32 tensor of `count` values."""
        return torch.from_numpy(_core.decode(encoded.numpy(), count, self.block, self.bits - 1))


class FewBitsMean:
    """One mean on its way, in three steps: the constructor sends the parts, `turn` the means of them, `result` ends.

    All ranks take these steps in the same order, also between several means. Between them the network works by itself.
    """

    def __init__(
        self,
        values: torch.Tensor,
        owner_error: torch.Tensor | None,
        coding: Coding,
        group: dist.ProcessGroup | None,
        draw: tuple[int, ...],
    ) -> None:
        """values: a flat fp32 tensor on the CPU. owner_error: what this rank's last encoding of its part's mean lost,
        to be added to the next one (None: nothing). draw: numbers that tell this mean from all others."""
        self._coding, self._group, self._draw = coding, group, draw
        self._ranks, self._rank = dist.get_world_size(group), dist.get_rank(group)
        self._count, self._part = values.numel(), coding.part(values.numel(), self._ranks)
        self._owner_error = owner_error
        self.waited_s = 0.0  # for the network
        padded = torch.zeros(self._part * self._ranks)
        padded[: self._count] = values
        sent = coding.encode(padded, (*draw, self._rank))
        self.error = _finite(values - coding.decode(sent, padded.numel())[: self._count])
        """What this rank's encoding lost: add it to the next values of this tensor."""
        self.owner_error = torch.zeros(0)
        """What the encoding of this rank's part of the mean lost; known after `turn`."""
        part_bytes = coding.encoded_bytes(self._part)
        self.sent_bytes = 2 * (self._ranks - 1) * part_bytes
        """Bytes that this rank sends to others for the whole mean, without headers."""
        self._received = torch.empty(self._ranks * part_bytes, dtype=torch.uint8)
        self._sent = sent  # it must live until it is sent
        self._exchange()

    def turn(self) -> None:
        """Wait for the other ranks' values of this rank's part; begin to send their mean. Raises the group's error."""
        self._wait()
        mean = torch.zeros(self._part)
        for one in self._received.chunk(self._ranks):
            mean += self._coding.decode(one, self._part)
        mean /= self._ranks
        if self._owner_error is not None and self._owner_error.numel() == self._part:
            mean += self._owner_error
        encoded = self._coding.encode(mean, (*self._draw, self._rank, self._ranks))
        self.owner_error = _finite(mean - self._coding.decode(encoded, self._part))
        self._sent = encoded.repeat(self._ranks)
        self._exchange()

    def result(self) -> torch.Tensor:
        """Wait for the mean: a flat fp32 tensor with the same bits on every rank. Raises the group's error."""
        self._wait()
        return self._coding.decode(self._received, self._part * self._ranks)[: self._count]

    def _exchange(self) -> None:
        self._work = dist.all_to_all_single(self._received, self._sent, group=self._group, async_op=True)

    def _wait(self) -> None:
        began = time.monotonic()
        assert self._work is not None, "an asynchronous call returns a work"
        self._work.wait()
        self.waited_s += time.monotonic() - began


def _finite(error: torch.Tensor) -> torch.Tensor:
    return error.nan_to_num_(0.0, 0.0, 0.0)  # an overflow is reported once; later values must not see it again
