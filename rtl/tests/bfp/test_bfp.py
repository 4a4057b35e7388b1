"""Compares encoder and decoder with netfold.encode and netfold.decode, for blocks of several beats and several blocks
per beat."""

from __future__ import annotations

import os
from typing import Any

import cocotb
import numpy as np
import pytest
from cocotb.triggers import RisingEdge

import netfold
from benches import PAUSES, chance, give, number, simulate, start, take

CHUNKS = 12
# Device, lanes, block, mantissa: blocks of several beats, of a part of a beat, and of a beat.
SHAPES = [
    ("encode", 8, 32, 3),
    ("encode", 16, 8, 4),
    ("encode", 16, 16, 7),
    ("decode", 8, 16, 7),
    ("decode", 16, 8, 4),
    ("decode", 16, 16, 7),
]


def shape() -> tuple[int, int, int]:
    """Lanes, block and mantissa of this simulation."""
    lanes, block, mantissa = os.environ["SHAPE"].split(",")
    return int(lanes), int(block), int(mantissa)


def chunks_of(rng: Any, lanes: int, block: int) -> list[np.ndarray]:
    """Chunks of random lengths, and one whose bytes on the wire end with a beat."""
    counts = [max(block, 16) * rng.randrange(1, 12) for _ in range(CHUNKS - 1)] + [block * 4 * lanes]
    rng.shuffle(counts)
    return [numbers(rng, block, count) for count in counts]


def numbers(rng: Any, block: int, count: int) -> np.ndarray:
    """Whole blocks: numbers of similar and of random size, some zeros, infinities and NaN."""
    draw = np.random.default_rng(rng.getrandbits(32))
    scale = np.exp2(np.repeat(draw.integers(-140, 120, count // block), block) + draw.integers(-9, 1, count))
    values = (draw.standard_normal(count) * scale).astype(np.float32)
    values[draw.random(count) < 0.05] = 0
    values[draw.random(count) < 0.003] = np.inf
    return values


def beats_of(data: bytes, lanes: int) -> list[dict[str, int]]:
    """Whole beats, padded with zeros; the last one is marked."""
    size = 4 * lanes
    parts = [data[at : at + size].ljust(size, b"\0") for at in range(0, len(data), size)]
    return [
        {"s_tdata_i": int.from_bytes(part, "little"), "s_tlast_i": int(i == len(parts) - 1)}
        for i, part in enumerate(parts)
    ]


def reader(dut: Any, lanes: int) -> Any:
    """The content of an accepted beat."""
    return lambda: (number(dut.m_tdata_o).to_bytes(4 * lanes, "little"), int(dut.m_tlast_o.value))


def expected_beats(data: bytes, lanes: int) -> list[tuple[bytes, int]]:
    """The numbers in the form of `reader`."""
    return [(beat["s_tdata_i"].to_bytes(4 * lanes, "little"), beat["s_tlast_i"]) for beat in beats_of(data, lanes)]


@cocotb.test(skip=os.environ.get("DEVICE") != "encode")
@cocotb.parametrize((("idle", "stall"), PAUSES))
async def encodes(dut: Any, idle: float, stall: float) -> None:
    """The bytes on the wire, with padding."""
    rng = chance()
    lanes, block, mantissa = shape()
    await start(dut, s_tvalid_i=0, m_tready_i=0)
    chunks = chunks_of(rng, lanes, block)
    wires = [bytes(netfold.encode(chunk, block, mantissa)) for chunk in chunks]
    given = [beat for chunk in chunks for beat in beats_of(chunk.tobytes(), lanes)]
    cocotb.start_soon(give(dut, rng, idle, given, "s_tvalid_i", "s_tready_o"))
    wanted = [beat for wire in wires for beat in expected_beats(wire, lanes)]
    taken = await take(dut, rng, stall, len(wanted), "m_tvalid_o", "m_tready_i", reader(dut, lanes))
    assert taken == wanted


@cocotb.test(skip=os.environ.get("DEVICE") != "decode")
@cocotb.parametrize((("idle", "stall"), PAUSES))
async def decodes(dut: Any, idle: float, stall: float) -> None:
    """Numbers, bit for bit; a chunk that ends too soon is reported."""
    rng = chance()
    lanes, block, mantissa = shape()
    await start(dut, s_tvalid_i=0, m_tready_i=0, command_valid_i=0)
    chunks = chunks_of(rng, lanes, block)
    wires = [netfold.encode(chunk, block, mantissa) for chunk in chunks]
    given = [beat for wire in wires for beat in beats_of(bytes(wire), lanes)]
    commands = [{"command_beats_i": chunk.size // lanes} for chunk in chunks]
    cocotb.start_soon(give(dut, rng, idle, commands, "command_valid_i", "command_ready_o"))
    cocotb.start_soon(give(dut, rng, idle, given, "s_tvalid_i", "s_tready_o"))
    sums = [netfold.decode(wire, chunk.size, block, mantissa) for wire, chunk in zip(wires, chunks, strict=True)]
    wanted = np.concatenate(sums)
    taken = await take(dut, rng, stall, wanted.size // lanes, "m_tvalid_o", "m_tready_i", reader(dut, lanes))
    found = np.frombuffer(b"".join(data for data, _ in taken), dtype=np.float32)
    same = (found.view(np.uint32) == wanted.view(np.uint32)) | (np.isnan(found) & np.isnan(wanted))
    assert same.all()
    assert sum(last for _, last in taken) == CHUNKS
    assert not dut.mismatch_o.value


@cocotb.test(skip=os.environ.get("DEVICE") != "decode")
@cocotb.parametrize((("idle", "stall"), PAUSES))
async def reports_malformed_exponents(dut: Any, idle: float, stall: float) -> None:
    """Exponents about the mantissa's width: a beat with a malformed one counts once, and its block is NaN. A block with
    exponent 0 is zeros, whatever its mantissas are."""
    rng = chance()
    lanes, block, mantissa = shape()
    await start(dut, s_tvalid_i=0, m_tready_i=0, command_valid_i=0)
    size = 1 + block * (mantissa + 1) // 8
    count = 64 * block
    wire = bytearray(bytes(netfold.encode(np.ones(count, np.float32), block, mantissa)))
    exponents = [rng.choice([0, 1, mantissa - 1, mantissa, mantissa + 1, 254]) for _ in range(64)]
    for index, exponent in enumerate(exponents):
        wire[index * size] = exponent
    reports = 0

    async def watch() -> None:
        nonlocal reports
        while True:
            await RisingEdge(dut.clk_i)
            reports += int(dut.malformed_o.value)

    cocotb.start_soon(watch())
    beats = count // lanes
    cocotb.start_soon(give(dut, rng, idle, [{"command_beats_i": beats}], "command_valid_i", "command_ready_o"))
    cocotb.start_soon(give(dut, rng, idle, beats_of(bytes(wire), lanes), "s_tvalid_i", "s_tready_o"))
    taken = await take(dut, rng, stall, beats, "m_tvalid_o", "m_tready_i", reader(dut, lanes))
    numbers_of = np.frombuffer(b"".join(data for data, _ in taken), dtype=np.float32).reshape(-1, block)
    is_malformed = [0 < exponent < mantissa for exponent in exponents]
    assert np.isnan(numbers_of).all(axis=1).tolist() == is_malformed
    for index in np.flatnonzero(is_malformed):
        wire[index * size] = 0  # the software refuses them
    right = netfold.decode(np.frombuffer(wire, np.uint8), count, block, mantissa).reshape(-1, block)
    good = np.logical_not(is_malformed)
    assert np.array_equal(numbers_of[good], right[good])
    per_beat = np.array(is_malformed).repeat(max(1, block // lanes)).reshape(beats, -1)
    assert reports == per_beat.any(axis=1).sum() > 0


@pytest.mark.parametrize("device, lanes, block, mantissa", SHAPES)
def test_bfp(device: str, lanes: int, block: int, mantissa: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each shape with every pair of PAUSES."""
    monkeypatch.setenv("DEVICE", device)
    monkeypatch.setenv("SHAPE", f"{lanes},{block},{mantissa}")
    simulate(f"bfp_{device}", __file__, Lanes=lanes, Block=block, Mantissa=mantissa)
