"""How fast gradients leave an accelerator: copies through pinned memory, and the codec beside copies on the device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from netfold.torch.devices import accelerator, module_of
from netfold.torch.stream_memory import stream_memory

COUNT = 64 << 20  # float32 elements: no cache holds them, and a kernel takes longer than its launch
REPEAT = 10
DRIVERS = ("nvidia", "amdgpu", "xe", "i915")  # kernel modules


@dataclass(frozen=True)
class DeviceRates:
    """A device and its rates in bytes/s. Of copies on the device and of the codec: bytes read and written. The codec's
    are 0 without Triton. `waits_by_itself`: its streams can wait for the host (stream_memory.py)."""

    name: str
    driver: str
    waits_by_itself: bool
    down_bytes_s: float
    up_bytes_s: float
    copy_bytes_s: float
    encode_bytes_s: float
    decode_bytes_s: float


def measure(index: int = 0) -> DeviceRates:
    """Measure an accelerator of this machine; takes about a second. Raises RuntimeError if the device fails."""
    device = torch.device(accelerator(), index)
    streams: Any = module_of(device)

    def bytes_s(run: Callable[[], object], size_bytes: int) -> float:
        run()  # compiles, and fills caches
        begun, ended = streams.Event(enable_timing=True), streams.Event(enable_timing=True)
        begun.record()
        for _ in range(REPEAT):
            run()
        ended.record()
        ended.synchronize()
        return REPEAT * size_bytes / (float(begun.elapsed_time(ended)) / 1e3)

    with streams.device(device):
        values = torch.randn(COUNT, device=device)
        copied = torch.empty_like(values)
        host = torch.empty(COUNT, pin_memory=True)
        down = bytes_s(lambda: host.copy_(values, non_blocking=True), values.nbytes)
        up = bytes_s(lambda: copied.copy_(host, non_blocking=True), values.nbytes)
        copy = bytes_s(lambda: copied.copy_(values), 2 * values.nbytes)
        encode = decode = 0.0
        try:
            from netfold.torch import device_codec
        except ImportError:
            pass
        else:
            encoded = device_codec.encode(values)
            moved = values.nbytes + encoded.nbytes
            encode = bytes_s(lambda: device_codec.encode(values, out=encoded), moved)
            decode = bytes_s(lambda: device_codec.decode(encoded, COUNT, out=copied), moved)
        name = streams.get_device_name(device)
    waits_by_itself = stream_memory(device) is not None
    return DeviceRates(name, _driver(), waits_by_itself, down, up, copy, encode, decode)


def _driver() -> str:
    """The kernel's driver and its version; "" if the driver is not in DRIVERS, or has no version of its own."""
    versions = {name: Path("/sys/module", name, "version") for name in DRIVERS}
    return next((f"{name} {path.read_text().strip()}" for name, path in versions.items() if path.exists()), "")
