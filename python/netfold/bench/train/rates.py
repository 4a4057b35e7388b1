"""The link's rate that puts communication and computation in the paper's proportion, whatever machine this is.

"AI Smart NICs" gives no times in its text, but enough percentages. With E the exposed all-reduce and B the backward
pass of its baseline, both as parts of the baseline's step (section V-B, batch 448):

    0.37 E + 0.10 B = 0.18          without bfp: exposed down 37%, backward down 10%, the step down 18%
    0.95 E + 0.10 B = 0.40          with bfp: exposed down 95%, the step down 40%

so E = 0.379 and B = 0.397. On the smart NIC backward is 0.9 B, forward half of that (section IV-C: 2 and 4 operations
a weight and sample), the update what is left; a step bound by its ring takes F + B/L + T_ring + U/L, which is 0.82. So
T_ring is 1.07 times the computation F + B + U, and as a ring of 6 sends 2 * 5/6 of the gradients, sending them once
takes 0.64 of it. That is the proportion used here: it says how fast the network is beside the computation, whatever
the number of workers. (Check: once 336 MB at 40 Gbit/s is 67 ms, so computation is 105 ms, 2.3 TFLOPS on 28 cores.)
A larger batch computes longer on the same gradients, and the network stays as it is.
"""

from __future__ import annotations

from netfold.bench import bounds

PAPER_BATCH = 448
PAPER_LAYERS = 20
PAPER_WORKERS = 6
EXPOSED_DOWN, EXPOSED_DOWN_BFP = 0.37, 0.95
STEP_DOWN, STEP_DOWN_BFP = 0.18, 0.40
BACKWARD_DOWN = 0.10


def ring_share(workers: int) -> float:
    """How often a ring sends the gradients: 2(n-1)/n times."""
    return 2 * (workers - 1) / workers


def paper_exposed() -> float:
    """The part of the baseline's step that is exposed all-reduce, at batch 448."""
    return (STEP_DOWN_BFP - STEP_DOWN) / (EXPOSED_DOWN_BFP - EXPOSED_DOWN)


def paper_proportion() -> float:
    """Time to send a worker's gradients once, over the time of computation alone, at batch 448."""
    exposed = paper_exposed()
    backward_of_baseline = (STEP_DOWN - EXPOSED_DOWN * exposed) / BACKWARD_DOWN
    backward = (1 - BACKWARD_DOWN) * backward_of_baseline
    forward = backward / 2
    update = 1 - exposed - backward_of_baseline - forward
    ring = 1 - STEP_DOWN - forward - (backward + update) / PAPER_LAYERS
    return ring / ring_share(PAPER_WORKERS) / (forward + backward + update)


def proportion_for(model: str, batch: int) -> float:
    """The same network under another batch of the perceptron; other models take the paper's proportion as it is."""
    return paper_proportion() * (PAPER_BATCH / batch if model == "mlp" else 1.0)


def ring_s(gradient_bytes: int, workers: int, rate_mbit_s: float, mtu: int) -> float:
    """A ring's own bound."""
    return bounds.seconds(bounds.ring_wire_bytes(gradient_bytes, mtu, workers), rate_mbit_s)


def rate_mbit_s(gradient_bytes: int, workers: int, compute_s: float, proportion: float, mtu: int) -> float:
    """The rate at which a ring's own bound is 2(n-1)/n times `proportion` of the computation."""
    return max(1.0, round(ring_s(gradient_bytes, workers, 1, mtu) / (proportion * ring_share(workers) * compute_s)))
