"""The accelerator: whether PyTorch can use it, and how fast gradients leave it."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from netfold.cli.checks import MISSING, OK, SLOW, Check

# Files that drivers make for devices that compute. Without one of them PyTorch, which takes seconds, is not loaded.
DEVICE_FILES = ("/dev/nvidiactl", "/dev/kfd")
PINNED_SLOW_BYTES_S = 6e9  # less than half of a PCIe 3.0 x16 link
CODEC_SLOW = 0.25  # of the device's copy rate


def accelerator() -> list[Check]:
    """The first device of this machine: its name, its driver, its copies through pinned memory, and the codec on it."""
    if not any(Path(file).exists() for file in DEVICE_FILES):
        return [Check("GPU", OK, "none: tensors are in the host's memory")]
    if importlib.util.find_spec("torch") is None:
        return [Check("GPU", MISSING, "PyTorch is not installed", "pip install 'netfold[torch]'")]
    from netfold.torch.devices import has_accelerator

    if not has_accelerator():
        return [Check("GPU", MISSING, "this PyTorch finds no device", "install a PyTorch for this device's driver")]
    from netfold.torch.device_rates import measure

    try:
        rates = measure()
    except RuntimeError as error:
        said = f"the device fails: {error}".partition("\n")[0]
        return [Check("GPU", MISSING, said, "check the driver's log with dmesg")]
    named = f"{rates.name}, driver {rates.driver}" if rates.driver else rates.name
    return [
        Check("GPU", OK, named),
        pinned_copies(rates.down_bytes_s, rates.up_bytes_s),
        streams(rates.waits_by_itself),
        codec(rates.encode_bytes_s, rates.decode_bytes_s, rates.copy_bytes_s),
    ]


def pinned_copies(down_bytes_s: float, up_bytes_s: float) -> Check:
    """Copies between the device and the host's pinned memory."""
    found = f"{down_bytes_s / 1e9:.1f} GB/s to the host, {up_bytes_s / 1e9:.1f} GB/s to the device, pinned"
    is_slow = min(down_bytes_s, up_bytes_s) < PINNED_SLOW_BYTES_S
    fix = "put the device into a slot with 16 lanes, and run workers on the CPU that it is attached to"
    return Check("GPU copies", SLOW if is_slow else OK, found, fix if is_slow else "")


def streams(waits_by_itself: bool) -> Check:
    """Whether Python goes on while the device waits for the network."""
    if waits_by_itself:
        return Check("GPU streams", OK, "wait for the network by themselves")
    fix = "update the driver; NETFOLD_LOG=info says what its calls answer"
    return Check("GPU streams", SLOW, "cannot wait for the network, so Python waits for it", fix)


def codec(encode_bytes_s: float, decode_bytes_s: float, copy_bytes_s: float) -> Check:
    """Block floating point on the device, beside the device's own copies."""
    if encode_bytes_s == 0:
        return Check("GPU codec", MISSING, "Triton is not installed", "pip install triton")
    shares = [rate / copy_bytes_s for rate in (encode_bytes_s, decode_bytes_s)]
    found = (
        f"encodes at {encode_bytes_s / 1e9:.0f} GB/s, {shares[0]:.0%} of a copy's rate, and decodes at "
        f"{decode_bytes_s / 1e9:.0f} GB/s, {shares[1]:.0%}"
    )
    is_slow = min(shares) < CODEC_SLOW
    return Check("GPU codec", SLOW if is_slow else OK, found, "report this device" if is_slow else "")
