"""Survey the machines, start a switch where it helps, and run the command on all of them to its end."""

from __future__ import annotations

import queue
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from netfold.cli.checks import Check
from netfold.cli.launch import commands, placement, verdicts
from netfold.cli.launch.machines import Machine, MachineError, all_answers
from netfold.interfaces import in_address

SEND_S = 0.3
ALL_PAIRS = 16  # machines; with more of them, each tries the first one and the next one
TURN_S = 0.1
AFTER_FAILURE_S = 10.0  # for the other machines to say what they saw
SWITCH_S = 20.0

Say = Callable[[str], None]


@dataclass
class Job:
    """The machines of a job: `workers` run the command; `spare` may run the switch."""

    workers: list[Machine]
    spare: list[Machine]
    say: Say
    rates: dict[str, float] = field(default_factory=dict)

    @property
    def machines(self) -> list[Machine]:
        """All of them, workers first."""
        return [*self.workers, *self.spare]

    def survey(self) -> None:
        """Ask all machines for their facts and addresses. Raises MachineError."""
        asked_s = {}
        for machine in self.machines:
            asked_s[machine.name] = time.time()
            machine.ask("survey")
        for machine, answer in zip(self.machines, all_answers(self.machines), strict=True):
            machine.facts = answer["facts"]
            machine.facts["clock_s"] = machine.facts["time_s"] - (asked_s[machine.name] + time.time()) / 2
            machine.address = machine.facts["reached_at"]
        self._find_addresses()

    def _find_addresses(self) -> None:
        """A machine that ssh did not reach by an address of a network (Debian maps a machine's own name to 127.0.1.1)
        takes the one from which it reaches another machine."""
        known = [machine.address for machine in self.machines if machine.address]
        for machine in self.machines:
            listed = [each["address"] for each in machine.facts["interfaces"]]
            if not machine.address and known:
                machine.address = machine.asked("route", address=known[0])["address"]
            elif not machine.address:
                machine.address = listed[0] if len(self.machines) > 1 and listed else "127.0.0.1"

    def check(self, needs_torch: bool) -> list[Check]:
        """The checks of all machines together: facts, reach and rates."""
        checks = verdicts.of_facts(self.machines, needs_torch)
        if len(self.machines) == 1:
            return checks
        for machine in self.machines:
            machine.ask("listen")
        ports = [answer["port"] for answer in all_answers(self.machines)]
        count = len(self.machines)
        for number, machine in enumerate(self.machines):
            others = range(count) if count <= ALL_PAIRS else {0, (number + 1) % count}
            listed = [(self.machines[other].name, self.machines[other].address, ports[other]) for other in others]
            machine.ask("reach", others=[each for each in listed if each[0] != machine.name])
        reached = [answer["reached"] for answer in all_answers(self.machines)]
        found = verdicts.of_reach(self.machines, reached)
        if any(check.required for check in found):
            return [*checks, *found]
        for number, machine in enumerate(self.machines):  # each link carries one stream each way
            to = (number + 1) % count
            machine.ask("send", address=self.machines[to].address, port=ports[to], seconds=SEND_S)
        rates = [answer["bytes_s"] for answer in all_answers(self.machines)]
        self.rates = {machine.name: rate for machine, rate in zip(self.machines, rates, strict=True)}
        return [*checks, *found, *verdicts.of_rates(self.machines, rates)]

    def place_for_switch(self) -> Machine | None:
        """The machine where a switch helps most, or None; says why."""
        workers = {machine.name: self.rates[machine.name] for machine in self.workers if machine.name in self.rates}
        spare = {machine.name: self.rates[machine.name] for machine in self.spare if machine.name in self.rates}
        place = placement.best(workers, spare)
        if place is None:
            if len(self.workers) > 1:
                self.say(f"no switch: none of these machines makes it faster; {placement.advice(len(self.workers))}")
            return None
        self.say(
            f"the switch runs on {place.name}: large all-reduces are {place.times_as_fast:.2f} times as fast with it"
        )
        return next(machine for machine in self.machines if machine.name == place.name)

    def start_switch(self, keeper: Machine) -> dict[str, str]:
        """Start a switch through a keeper of its machine; returns the workers' variables. Raises MachineError."""
        secret = secrets.token_hex(16)
        command = ["netfold", "switch", "--port", "0", "--secret-file", "{secret-file}"]
        command += ["--metrics", f"{in_address(keeper.address)}:0"]
        keeper.ask("run", command=command, environment={}, folder="", secret=secret)
        deadline = time.monotonic() + SWITCH_S
        said: list[str] = []
        metrics = ""
        while time.monotonic() < deadline:
            try:
                answer = keeper.answer(TURN_S)
            except queue.Empty:
                continue
            if "exit" in answer:
                raise MachineError(f"{keeper.name}: the switch has not started: {' '.join(said)}")
            line = answer["line"]
            said = [*said[-3:], line]
            if found := re.match(r"metrics on http://(\S+)/metrics", line):
                metrics = found[1]
            if found := re.match(r"listening on \S+:(\d+)", line):
                address = f"{in_address(keeper.address)}:{found[1]}"
                self.say(f"the switch is at {address}; `netfold top --metrics {metrics}` shows it")
                return {"NETFOLD_SWITCH": address, "NETFOLD_SECRET": secret}
        raise MachineError(f"{keeper.name}: the switch has not started within {SWITCH_S:.0f} s: {' '.join(said)}")

    def run(self, command: list[str], environment: dict[str, str], folder: str, port: int) -> int:
        """Run the command on all workers, and print their output. Returns 0, or the status of the first that failed."""
        first = self.workers[0]
        port = port or first.asked("route", address=first.address)["port"]
        for number, machine in enumerate(self.workers):
            words, more = commands.placed(command, number, len(self.workers), first.address, port)
            machine.ask("run", command=words, environment=environment | more, folder=folder)
        running = list(self.workers)
        status, deadline = 0, float("inf")
        while running and time.monotonic() < deadline:
            heard = False
            for machine in list(running):
                ended = self._hear(machine)
                heard = heard or ended is not None
                if ended is None or ended < 0:
                    continue
                running.remove(machine)
                if ended and not status:
                    self.say(f"{machine.name}: the command ended with status {ended}")
                    status, deadline = ended, time.monotonic() + AFTER_FAILURE_S
            if not heard:
                time.sleep(TURN_S / 5)
        if running:
            self.say(f"ending the command on {', '.join(machine.name for machine in running)}")
        return status

    def _hear(self, machine: Machine) -> int | None:
        """Print a line of a machine's command: -1; its exit status if it ended; None if there is nothing new. Raises
        MachineError if the machine is lost."""
        try:
            answer = machine.answer(0.001)
        except queue.Empty:
            return None
        if "line" in answer:
            print(f"[{machine.name}] {answer['line']}" if len(self.workers) > 1 else answer["line"], flush=True)
            return -1
        status = int(answer["exit"])
        return status if status >= 0 else 128 - status
