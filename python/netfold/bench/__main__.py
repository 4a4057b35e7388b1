"""`torchrun ... -m netfold.bench`: all-reduces on one's own machines, Netfold beside Gloo and NCCL."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist

import netfold.torch
from netfold.bench import report, systems
from netfold.bench.rounds import Entry, Rounds
from netfold.json_output import envelope, print_json
from netfold.sizes import size_of

SIZES = "4KiB,64KiB,1MiB,16MiB"
PARTS = """examples:
  torchrun --nproc-per-node 4 -m netfold.bench
  NETFOLD_SWITCH=10.0.0.5:7171 torchrun --nnodes 2 --node-rank 0 --master-addr 10.0.0.1 -m netfold.bench
"""


def sizes_of(text: str) -> list[int]:
    """`4KiB,1MiB` in bytes. Raises argparse's error for something else."""
    sizes = []
    for part in text.split(","):
        size_bytes = size_of(part)
        if size_bytes is None or size_bytes <= 0:
            raise argparse.ArgumentTypeError(f"takes sizes such as 4KiB or 16MiB, with commas, not {part!r}")
        sizes.append(size_bytes)
    return sizes


def positive(text: str) -> float:
    """A number above 0."""
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a positive number, not {text}")
    return value


def parser() -> argparse.ArgumentParser:
    """The options."""
    made = argparse.ArgumentParser(
        "torchrun ... -m netfold.bench",
        description="Measure all-reduces on your own machines: Netfold in several ways, Gloo, and NCCL on GPUs. All "
        "take turns, and the sums are checked.",
        epilog=PARTS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument(
        "--size-bytes", type=sizes_of, default=SIZES, help=f"sizes of the float32 tensor (default: {SIZES})"
    )
    made.add_argument(
        "--systems", default="", help="some of the systems, with commas, as the table names them (default: all)"
    )
    made.add_argument("--rounds", type=int, default=5, help="rounds of each size, after a warm-up (default: 5)")
    made.add_argument(
        "--device",
        choices=["cpu", "accelerator"],
        help="where the tensors are (default: on the accelerator, if there is one)",
    )
    made.add_argument(
        "--timeout-s", type=positive, default=60.0, help="longest wait for a system, in seconds (default: 60)"
    )
    made.add_argument("--json", action="store_true", help="one JSON object on standard output")
    return made


def device_of(wanted: str | None) -> torch.device:
    """This rank's device. Raises SystemExit if there is no accelerator."""
    has_one = torch.accelerator.is_available()
    if wanted == "accelerator" and not has_one:
        sys.exit("netfold.bench: this machine has no accelerator: leave out --device")
    if wanted == "cpu" or not has_one:
        return torch.device("cpu")
    torch.accelerator.set_device_index(int(os.environ.get("LOCAL_RANK", "0")))
    found = torch.accelerator.current_accelerator()
    return torch.device(found.type if found is not None else "cpu")


def measure(options: argparse.Namespace, switch: str, device: torch.device, tell: Callable[[str], None]) -> list[Entry]:
    """Open every system, and measure those that open. A system that does not has an entry with its error."""
    rounds = Rounds(device)
    systems.help_gloo(dist.distributed_c10d._get_default_store(), options.timeout_s)
    wanted = systems.known(switch, device)
    named = [name.strip() for name in options.systems.split(",") if name.strip()]
    if unknown := [name for name in named if name not in wanted]:
        sys.exit(f"netfold.bench: --systems knows {', '.join(wanted)}; not {', '.join(unknown)}")
    groups, entries = {}, []
    for name in named or wanted:
        tell(f"starting {name}")
        opened: list[dist.ProcessGroup] = []
        error = rounds.first_error(lambda: opened.append(wanted[name].open(options.timeout_s)))  # noqa: B023
        if error:
            entries.append(Entry(0, name, error=error))
        else:
            groups[name] = opened[0]
    for size_bytes in options.size_bytes:
        entries += rounds.measure(size_bytes, groups, options.rounds, tell)
    return entries


def main() -> None:
    """Measure, and let rank 0 print."""
    options = parser().parse_args()
    if "RANK" not in os.environ:
        sys.exit("netfold.bench runs on several ranks: torchrun --nproc-per-node 4 -m netfold.bench")
    if options.rounds < 1:
        sys.exit(f"netfold.bench: --rounds must be at least 1, not {options.rounds}")
    device = device_of(options.device)
    switch = os.environ.pop("NETFOLD_SWITCH", "")
    among_ranks = netfold.torch.Options(algorithm="ring")  # it works also if the switch does not
    dist.init_process_group("netfold", timeout=timedelta(seconds=options.timeout_s), pg_options=among_ranks)
    if dist.get_world_size() < 2:
        sys.exit("netfold.bench needs at least two ranks: torchrun --nproc-per-node 4 -m netfold.bench")
    is_first = dist.get_rank() == 0
    shown = report.Progress() if is_first and sys.stderr.isatty() else None
    entries = measure(options, switch, device, shown.tell if shown else lambda _: None)
    if shown:
        shown.clear()
    if is_first and options.json:
        parameters = {"world": dist.get_world_size(), "device": device.type, "rounds": options.rounds}
        print_json(envelope("netfold.bench", parameters, report.results(entries, dist.get_world_size())))
    elif is_first:
        print(report.table(entries, dist.get_world_size(), device), flush=True)
    dist.destroy_process_group()
    if all(entry.error for entry in entries):
        sys.exit("netfold.bench: no system could be measured")


if __name__ == "__main__":
    main()
