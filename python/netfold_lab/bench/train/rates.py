"""The link's rate that gives communication and computation the paper's proportion on any machine.

The text of "AI Smart NICs" has no times, but enough percentages. With E the exposed all-reduce and B the backward pass
of its baseline, both as fractions of the baseline's step (section V-B, batch 448):

    0.37 E + 0.10 B = 0.18          without bfp: exposed down 37%, backward down 10%, the step down 18%
    0.95 E + 0.10 B = 0.40          with bfp: exposed down 95%, the step down 40%

so E = 0.379 and B = 0.397. On the smart NIC backward is 0.9 B, forward half of that (section IV-C: 2 and 4 operations
per weight and sample), and the update is the rest. A step bound by its ring takes F + B/L + T_ring + U/L, which is
0.82. So T_ring is 1.07 times the computation F + B + U. A ring of 6 sends 2 * 5/6 of the gradients, so sending them
once takes 0.64 of the computation. That is the proportion used here: the speed of the network relative to the
computation, for any number of workers. (Check: once 336 MB at 40 Gbit/s is 67 ms, so computation is 105 ms, 2.3 TFLOPS
on 28 cores.) A larger batch computes longer on the same gradients, and the network stays as it is.
"""

from __future__ import annotations

from netfold_lab.bench import bounds

PAPER_BATCH = 448
PAPER_LAYERS = 20
PAPER_WORKERS = 6
EXPOSED_DOWN, EXPOSED_DOWN_BFP = 0.37, 0.95
STEP_DOWN, STEP_DOWN_BFP = 0.18, 0.40
BACKWARD_DOWN = 0.10


def ring_share(workers: int) -> float:
    """The number of times that a ring sends the gradients: 2(n-1)/n."""
    return 2 * (workers - 1) / workers


def paper_exposed() -> float:
    """The fraction of the baseline's step that is exposed all-reduce, at batch 448."""
    return (STEP_DOWN_BFP - STEP_DOWN) / (EXPOSED_DOWN_BFP - EXPOSED_DOWN)


def paper_proportion() -> float:
    """Time to send a worker's gradients once, divided by the time of computation, at batch 448."""
    exposed = paper_exposed()
    backward_of_baseline = (STEP_DOWN - EXPOSED_DOWN * exposed) / BACKWARD_DOWN
    backward = (1 - BACKWARD_DOWN) * backward_of_baseline
    forward = backward / 2
    update = 1 - exposed - backward_of_baseline - forward
    ring = 1 - STEP_DOWN - forward - (backward + update) / PAPER_LAYERS
    return ring / ring_share(PAPER_WORKERS) / (forward + backward + update)


def proportion_for(model: str, batch: int) -> float:
    """The same network with another batch of the perceptron; other models use the paper's proportion unchanged."""
    return paper_proportion() * (PAPER_BATCH / batch if model == "mlp" else 1.0)


def ring_s(gradient_bytes: int, workers: int, rate_mbit_s: float, mtu: int) -> float:
    """A ring's own bound."""
    return bounds.seconds(bounds.ring_wire_bytes(gradient_bytes, mtu, workers), rate_mbit_s)


def rate_mbit_s(gradient_bytes: int, workers: int, compute_s: float, proportion: float, mtu: int) -> float:
    """The rate at which a ring's own bound is 2(n-1)/n times `proportion` of the computation."""
    return max(1.0, round(ring_s(gradient_bytes, workers, 1, mtu) / (proportion * ring_share(workers) * compute_s)))
