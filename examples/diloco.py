"""A small language model trained over slow links with DiLoCo; a worker may leave and another join on the way.

    python examples/diloco.py --workers 4 --compare             # all on this machine, then the same samples with DDP
    python examples/diloco.py --workers 4 --leave 3:200 --join 300

On several machines, one command each; worker 0's machine keeps the store, so it stays to the end:

    python examples/diloco.py --workers 4 --name 0 --store 10.0.0.5:29600
    python examples/diloco.py --workers 4 --name 1 --store 10.0.0.5:29600                # ... 2 and 3
    python examples/diloco.py --workers 4 --name 4 --store 10.0.0.5:29600 --joins        # later

The text is the reference of the Python language that every Python has. docs/how-to/train-over-slow-links.md says more.
"""

from __future__ import annotations

import argparse
import json
import signal
import socket
import subprocess
import sys
import time
import zlib
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from pydoc_data.topics import topics

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from netfold.torch.diloco import DiLoCo

CONTEXT, WIDTH, LAYERS, BATCH = 32, 64, 2, 16
TIMEOUT = timedelta(seconds=120)


class Text:
    """The text as numbers, one a character, in three parts. Topics of the reference repeat paragraphs of others. Each
    paragraph is taken once, so that no paragraph is in two parts."""

    def __init__(self) -> None:
        paragraphs = dict.fromkeys(paragraph for name in sorted(topics) for paragraph in topics[name].split("\n\n"))
        characters = sorted(set("".join(paragraphs)) | {"\n"})
        number = {character: place for place, character in enumerate(characters)}

        def numbers(turns: range) -> torch.Tensor:
            text = "\n\n".join(each for place, each in enumerate(paragraphs) if place % 10 in turns)
            return torch.tensor([number[character] for character in text])

        self.characters = len(characters)
        self.parts = {"training": numbers(range(8)), "validation": numbers(range(8, 9)), "test": numbers(range(9, 10))}

    def samples(self, seed: int, count: int = BATCH) -> tuple[torch.Tensor, torch.Tensor]:
        """A batch: contexts, and the characters that come next."""
        return self._batch(self.parts["training"], seed, count)

    def loss(self, model: nn.Module, part: str) -> float:
        """Mean loss on text that was not trained on: on "validation" to choose settings, on "test" to report."""
        with torch.no_grad():
            contexts, following = self._batch(self.parts[part], 0, 2048)
            return cross_entropy(model(contexts).flatten(0, 1), following.flatten()).item()

    @staticmethod
    def _batch(data: torch.Tensor, seed: int, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        drawn = torch.Generator().manual_seed(seed)
        starts = torch.randint(len(data) - CONTEXT - 1, (count, 1), generator=drawn)
        places = starts + torch.arange(CONTEXT + 1)
        return data[places[:, :-1]], data[places[:, 1:]]


class Model(nn.Module):
    """A transformer on characters."""

    def __init__(self, characters: int) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(characters, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.out = nn.Linear(WIDTH, characters)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(CONTEXT))

    def forward(self, contexts: torch.Tensor) -> torch.Tensor:
        """Logits of the next character, after every character of the contexts."""
        seen = self.token(contexts) + self.place.weight
        return self.out(self.layers(seen, mask=self.mask, is_causal=True))


class Members:
    """The workers that train. They look once in every outer step; the first of them decides, through the store."""

    def __init__(self, store: dist.Store, name: int, backend: str) -> None:
        self.names: list[int] = []
        self._store, self._name, self._backend = store, name, backend
        self._asking: Future[list[int]] | None = None
        self._thread = ThreadPoolExecutor(1)  # the store is as far away as the others

    def meet(self, names: list[int], step: int) -> None:
        """Make the process group of those who train from this inner step on."""
        if dist.is_initialized():
            dist.destroy_process_group()
        self.names = names
        store = dist.PrefixStore(f"members-{step}", self._store)
        rank = names.index(self._name)
        dist.init_process_group(self._backend, store=store, rank=rank, world_size=len(names), timeout=TIMEOUT)

    def join(self, earliest: int) -> None:
        """Wait until the others take this worker in, at inner step `earliest` or later, and meet them."""
        self._store.set(f"wants/{self._store.add('wanting', 1)}", json.dumps([self._name, earliest]))
        self.meet(*json.loads(self._store.get(f"admitted/{self._name}")))

    def leave(self) -> None:
        """Say that this worker leaves when the others look next."""
        self._store.set(f"leaves/{self._name}", "")

    def ask(self, step: int) -> None:
        """Begin to find out who trains from inner step `step` on."""
        self._asking = self._thread.submit(self._decide if self.names[0] == self._name else self._decided, step)

    def answer(self) -> list[int]:
        """The workers that train from now on."""
        names = self._asking.result() if self._asking is not None else self.names
        self._asking = None
        return names

    def end(self) -> None:
        """Worker 0 keeps the store, so it waits until the others are done with it."""
        self._store.set(f"done/{self._name}", "")
        if self._name == 0:
            self._store.wait([f"done/{name}" for name in self.names], TIMEOUT)

    def _decide(self, step: int) -> list[int]:
        wanting = int(self._store.add("wanting", 0))
        came = [json.loads(self._store.get(f"wants/{ticket}")) for ticket in range(1, wanting + 1)]
        new = [name for name, earliest in came if earliest <= step and not self._store.check([f"admitted/{name}"])]
        names = [name for name in self.names if not self._store.check([f"leaves/{name}"])] + new
        self._store.set(f"trains/{step}", json.dumps(names))
        for name in new:
            self._store.set(f"admitted/{name}", json.dumps([names, step]))
        return names

    def _decided(self, step: int) -> list[int]:
        return json.loads(self._store.get(f"trains/{step}"))


def train_ddp(given: argparse.Namespace, text: Text) -> float:
    """The same samples with DDP: gradients averaged in every step, in fp32. Returns the loss."""
    model = fresh(given, text)
    managed = DistributedDataParallel(model)
    optimizer = inner(given, model)
    began = time.monotonic()
    for step in range(given.steps):
        set_rate(given, optimizer, step)
        contexts, following = text.samples(draw(given, step))
        optimizer.zero_grad()
        batch_loss = cross_entropy(managed(contexts).flatten(0, 1), following.flatten())
        batch_loss.backward()
        optimizer.step()
        tell(given, "DDP", step, batch_loss)
    loss = text.loss(model, given.measure)
    if given.name == 0:
        count = sum(parameter.numel() for parameter in model.parameters())
        sent = given.steps * 8 * count * (given.workers - 1) // given.workers
        print(f"DDP: loss {loss:.4f}, {sent} bytes sent, {time.monotonic() - began:.1f} s", flush=True)
    return loss


def tell(given: argparse.Namespace, method: str, step: int, batch_loss: torch.Tensor) -> None:
    """Print how far the training is, ten times: minutes pass."""
    if given.name == 0 and step % max(given.steps // 10, 1) == 0:
        print(f"{method}: step {step} of {given.steps}, loss of the batch {batch_loss.item():.3f}", flush=True)


def draw(given: argparse.Namespace, step: int) -> int:
    """The seed of this worker's samples in a step."""
    return given.seed * 10**9 + step * 1000 + given.name


def fresh(given: argparse.Namespace, text: Text) -> Model:
    """The model before training: the same parameters in every process."""
    torch.manual_seed(given.seed)
    return Model(text.characters)


def inner(given: argparse.Namespace, model: nn.Module) -> torch.optim.Optimizer:
    """Every worker's own optimizer."""
    return torch.optim.AdamW(model.parameters(), lr=given.rate)


def set_rate(given: argparse.Namespace, optimizer: torch.optim.Optimizer, step: int) -> None:
    """Warm up, and fall in a straight line to zero."""
    share = min((step + 1) / 50, 1.0) * (1.0 - step / given.steps)
    for group in optimizer.param_groups:
        group["lr"] = given.rate * share


def outer(given: argparse.Namespace, parameters: list[torch.Tensor]) -> torch.optim.Optimizer:
    """The optimizer of the global parameters."""
    return torch.optim.SGD(parameters, lr=given.outer_rate, momentum=given.outer_momentum, nesterov=True)


def train(given: argparse.Namespace, text: Text, members: Members) -> float:
    """Train with DiLoCo until the last step, or until this worker leaves. Returns the loss."""
    model = fresh(given, text)
    optimizer = inner(given, model)
    diloco = DiLoCo(
        model,
        lambda parameters: outer(given, list(parameters)),
        steps=given.every,
        fragments=given.fragments,
        overlap=given.overlap,
        bits=given.bits,
        rounding=given.rounding,
    )
    computed_s, began, first_step = 0.0, time.monotonic(), diloco.inner_steps
    while (step := diloco.inner_steps) < given.steps:
        if step == given.leave_at:
            members.leave()
        if given.elastic and step % given.every == given.every // 2:
            members.ask(step - given.every // 2 + given.every)
        if step % given.every == 0 and (names := members.answer()) != members.names:
            diloco.drain()
            if given.name not in names:
                print(f"worker {given.name} leaves at step {step}", flush=True)
                break
            members.meet(names, step)
            diloco.use(None)
            if given.name == names[0]:
                print(f"step {step}: workers {', '.join(map(str, names))} train", flush=True)
        started = time.monotonic()
        set_rate(given, optimizer, step)
        contexts, following = text.samples(draw(given, step))
        optimizer.zero_grad()
        batch_loss = cross_entropy(model(contexts).flatten(0, 1), following.flatten())
        batch_loss.backward()
        optimizer.step()
        computed_s += time.monotonic() - started
        diloco.step()
        tell(given, "DiLoCo", step, batch_loss)
    if diloco.inner_steps == given.steps:
        diloco.finish()
    whole_s = time.monotonic() - began
    loss = text.loss(model, given.measure)
    bits = zlib.crc32(b"".join(shared.numpy().tobytes() for shared in diloco.state_dict()["shared"]))
    print(
        f"DiLoCo, worker {given.name}: loss {loss:.4f}, parameters {bits:08x}, "
        f"{diloco.inner_steps - first_step} steps, {diloco.counters.sent_bytes} bytes sent, "
        f"{computed_s / whole_s:.1%} of {whole_s:.1f} s computing, "
        f"{diloco.counters.waited_s:.2f} s waiting for the network",
        flush=True,
    )
    return loss


def work(given: argparse.Namespace) -> None:
    """One worker."""
    torch.set_num_threads(1)
    host, _, port = given.store.rpartition(":")
    store = dist.TCPStore(host, int(port), is_master=given.name == 0, timeout=TIMEOUT, wait_for_workers=False)
    members, text = Members(store, given.name, given.backend), Text()
    if given.joins is None:
        members.meet(list(range(given.workers)), 0)
    else:
        members.join(given.joins)
    if given.compare and given.joins is None:
        reference = train_ddp(given, text)
    loss = train(given, text, members)
    if given.compare and given.name == 0:
        print(f"DiLoCo's loss is {loss / reference - 1:+.2%} of DDP's", flush=True)
    dist.destroy_process_group()
    members.end()


def start_all(given: argparse.Namespace) -> int:
    """Start all workers on this machine. Returns the exit status of the first that fails, or 0."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = [sys.executable, __file__, *sys.argv[1:], "--store", f"127.0.0.1:{port}"]
    if given.leave or given.join is not None:
        words.append("--elastic")
    leaver, _, step = given.leave.partition(":")
    runs = []
    for name in range(given.workers):
        runs.append([*words, "--name", str(name), *(["--leave-at", step] if str(name) == leaver else [])])
    if given.join is not None:
        runs.append([*words, "--name", str(given.workers), "--joins", str(given.join)])
    # Only noted: an exception while a worker is started would leave that worker behind.
    told_to_end: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: told_to_end.append(number))
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for run in runs:
            processes.append(subprocess.Popen(run))
        return wait_for_all(processes, told_to_end)
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()


def wait_for_all(processes: list[subprocess.Popen[bytes]], told_to_end: list[int]) -> int:
    """Wait until all workers have ended well (returns 0), one has failed (returns its exit status), or a signal has
    come (returns 128 and its number)."""
    while not told_to_end:
        statuses = [process.poll() for process in processes]
        for name, status in enumerate(statuses):
            if status:
                print(f"worker {name} ended with status {status}; the others are ended too", file=sys.stderr)
                return status
        if None not in statuses:
            return 0
        time.sleep(0.1)
    return 128 + told_to_end[0]


def main() -> int:
    """Start all workers, or be one of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=4, help="at the start")
    parser.add_argument("--backend", default="netfold")
    parser.add_argument("--steps", type=int, default=3200, help="inner steps")
    parser.add_argument("--every", type=int, default=50, help="inner steps from one outer step to the next")
    parser.add_argument("--fragments", type=int, default=4)
    parser.add_argument("--overlap", type=int, default=5, help="inner steps that a fragment may be on its way")
    parser.add_argument("--bits", type=int, default=4)
    parser.add_argument("--rounding", default="nearest")
    parser.add_argument("--rate", type=float, default=1e-2, help="largest learning rate of the workers, and of DDP")
    parser.add_argument("--outer-rate", type=float, default=0.9)
    parser.add_argument("--outer-momentum", type=float, default=0.5)
    parser.add_argument("--measure", choices=["validation", "test"], default="test", help="text that gives the loss")
    parser.add_argument("--seed", type=int, default=0, help="of the first parameters and of the samples")
    parser.add_argument("--compare", action="store_true", help="train with DDP on the same samples first")
    parser.add_argument("--leave", default="", help="WORKER:STEP, a worker that leaves; not worker 0")
    parser.add_argument("--join", type=int, help="the step from which on one more worker joins")
    parser.add_argument("--elastic", action="store_true", help="look for workers that leave or join")
    parser.add_argument("--name", type=int, help="be this worker")
    parser.add_argument("--store", help="host:port of worker 0's store")
    parser.add_argument("--leave-at", type=int, default=-1, help="leave at this step")
    parser.add_argument("--joins", type=int, nargs="?", const=0, help="join a training that runs, from this step on")
    given = parser.parse_args()
    if given.name is None:
        return start_all(given)
    work(given)
    return 0


if __name__ == "__main__":
    sys.exit(main())
