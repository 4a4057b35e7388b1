"""A state that all ranks of a group must have with the same bits: find the newest, and give it to those who lack it."""

from __future__ import annotations

import io
import zlib
from typing import Any

import torch
import torch.distributed as dist


def hand_over(state: dict[str, Any], age: tuple[int, ...], group: dist.ProcessGroup | None) -> dict[str, Any] | None:
    """Every rank of the group calls it. The state with the largest `age` wins, among equals that of the lowest rank.
    Returns it on a rank whose own state has other bits, and None on those that have it already.

    state: nested dictionaries, lists, numbers and tensors on the CPU. Raises the group's error.
    """
    rank, ranks = dist.get_rank(group), dist.get_world_size(group)
    mine = torch.tensor([*age, _digest(state)])
    all_of_them = torch.empty(ranks * mine.numel(), dtype=mine.dtype)
    dist.all_gather_into_tensor(all_of_them, mine, group=group)
    said = [tuple(one.tolist()) for one in all_of_them.chunk(ranks)]
    source = max(range(ranks), key=lambda each: (said[each][:-1], -each))
    lacking = [each for each in range(ranks) if said[each][-1] != said[source][-1]]
    if rank == source and lacking:
        file = io.BytesIO()
        torch.save(state, file)
        packed = torch.frombuffer(bytearray(file.getvalue()), dtype=torch.uint8)
        for each in lacking:
            dist.send(torch.tensor([packed.numel()]), group=group, group_dst=each)
            dist.send(packed, group=group, group_dst=each)
    if rank not in lacking:
        return None
    size = torch.zeros(1, dtype=torch.int64)
    dist.recv(size, group=group, group_src=source)
    packed = torch.empty(int(size), dtype=torch.uint8)
    dist.recv(packed, group=group, group_src=source)
    newest: dict[str, Any] = torch.load(io.BytesIO(packed.numpy().tobytes()), weights_only=True)
    return newest


def _digest(value: Any, before: int = 0) -> int:
    """A checksum of everything in a state."""
    if isinstance(value, dict):
        for key, each in value.items():
            before = _digest(each, zlib.crc32(repr(key).encode(), before))
        return before
    if isinstance(value, list | tuple):
        for each in value:
            before = _digest(each, before)
        return before
    if isinstance(value, torch.Tensor):
        return zlib.crc32(value.detach().contiguous().reshape(-1).view(torch.uint8).numpy().data, before)
    return zlib.crc32(repr(value).encode(), before)
