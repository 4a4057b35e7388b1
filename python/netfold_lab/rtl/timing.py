"""The expected time of an all-reduce: the analytical model of ai-smart-nic IV-C, in cycles of this device.

T_AR is the longest of three times. R elements go round the ring in 2(N - 1) steps of R / N. The share alpha of the
link's bytes is payload, and compression sends beta numbers in the space of one. The adders process 2(N - 1) R / N at
one beat per cycle. Host memory is read once and written once, each at one beat per cycle. The fill latency is added:
the last frame is gathered, sent, checked and written after all others. If the link is faster than the adders, the
adders are also one chunk behind, because the first chunk is sent before any chunk arrives.
"""

from __future__ import annotations

from dataclasses import dataclass

from netfold_lab.rtl.simulation import Shape

UNIT = 16  # elements: segments are multiples of it, or of larger blocks
ELEMENT_BYTES = 4
PAYLOAD_BYTES = 1408  # of a frame
ACK_EVERY = 8  # frames
CHUNK_BYTES = 16384  # of FP32
ETHERNET_BYTES, ETHERNET_BYTES_MIN = 24, 84  # overhead of a frame, and the shortest frame with it
# Cycles in addition to those of frames and chunks: the plan 40, the host 80, a hop's queues and adders 30.
FIXED_CYCLES = 150


@dataclass(frozen=True)
class Prediction:
    """Cycles: `model` is T_AR; `fill` is added to it."""

    ring: float
    add: float
    memory: float
    fill: float

    @property
    def model(self) -> float:
        """T_AR."""
        return max(self.ring, self.add, self.memory)

    @property
    def total(self) -> float:
        """The expected cycles of a run."""
        return self.model + self.fill


def compression(shape: Shape, bfp: bool) -> float:
    """beta: FP32 bytes per byte on the wire."""
    block_bytes = 1 + shape.block * (shape.mantissa + 1) / 8
    return ELEMENT_BYTES * shape.block / block_bytes if bfp else 1.0


def payload_share(shape: Shape, bytes_per_cycle: float) -> float:
    """alpha: the share of a port's bytes that carries numbers. A frame has a beat of header; every eighth frame is
    acknowledged."""
    beat = ELEMENT_BYTES * shape.lanes
    if bytes_per_cycle <= 0:  # beats follow each other; an acknowledgement is one beat
        beats = PAYLOAD_BYTES / beat
        return beats / (beats + 1 + 1 / ACK_EVERY)
    frame = PAYLOAD_BYTES + beat + ETHERNET_BYTES
    return PAYLOAD_BYTES / (frame + max(beat + ETHERNET_BYTES, ETHERNET_BYTES_MIN) / ACK_EVERY)


def predict(
    shape: Shape, world: int, count: int, bfp: bool, bytes_per_cycle: float, latency_cycles: int = 20
) -> Prediction:
    """T_AR and the fill latency of `count` elements on `world` devices; `bytes_per_cycle` is the rate of a port, 0 for
    a beat."""
    unit = max(UNIT, shape.block) if bfp else UNIT
    beat = ELEMENT_BYTES * shape.lanes
    rate = bytes_per_cycle if bytes_per_cycle > 0 else beat
    units = -(-count // unit)
    segment = -(-units // world) * unit  # elements; R / N
    steps = 2 * (world - 1)
    alpha, beta = payload_share(shape, bytes_per_cycle), compression(shape, bfp)
    pieces = -(-segment // (CHUNK_BYTES // ELEMENT_BYTES))
    chunk = segment / pieces
    frame_elements = min(PAYLOAD_BYTES * beta / ELEMENT_BYTES, chunk)
    frame = frame_elements / shape.lanes + frame_elements * ELEMENT_BYTES / (beta * rate)
    ring = steps * segment * ELEMENT_BYTES / (alpha * rate * beta)
    add, memory = steps * segment / shape.lanes, world * segment / shape.lanes
    hop = frame + latency_cycles + FIXED_CYCLES / 5
    waits = max(0.0, hop - chunk * max(ring, add) / (steps * segment)) * steps  # chunks that are shorter than a hop
    behind = chunk / shape.lanes if ring < max(add, memory) else 0.0
    return Prediction(ring, add, memory, FIXED_CYCLES + frame + latency_cycles + behind + waits)
