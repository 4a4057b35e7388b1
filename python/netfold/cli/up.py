"""`netfold up`: starts a job on several machines, with a switch where it helps, and ends it cleanly."""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import sys
from pathlib import Path

from netfold.cli import arguments as cli_arguments
from netfold.cli.checks import MISSING, OK
from netfold.cli.doctor import count, show
from netfold.cli.launch import commands
from netfold.cli.launch.job import Job
from netfold.cli.launch.machines import SRUN, SSH, Machine, MachineError, default_python, hosts_of_slurm

AUTO, NONE = "auto", "none"


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = cli_arguments.parser(
        "up",
        """Start a command on several machines from one of them. It checks the machines (versions, clocks, MTU,
        firewalls, the rates of their links), starts a switch where it makes the job faster, and runs the command on all
        machines. Their output is printed with their names. When the command ends or fails on one machine, or with
        Ctrl-C, all of it ends everywhere.

        The machines are reached by ssh without a password, and have Netfold in the same place. Within a job of Slurm
        they are its nodes, reached by srun. torchrun gets its rendezvous; any other program is one rank a machine, and
        gets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT.""",
        (
            "netfold up --hosts a,b -- torchrun --nproc-per-node 4 train.py",
            "netfold up --hosts a,b,c --spare d -- torchrun train.py",
            "netfold up --hosts a,b --check",
        ),
    )
    made.add_argument(
        "--hosts", metavar="A,B,...", help="machines of the workers (default: the nodes of the Slurm job)"
    )
    made.add_argument("--spare", metavar="HOSTS", default="", help="machines without workers, where a switch may run")
    made.add_argument(
        "--switch",
        metavar="HOST",
        default=AUTO,
        help="the machine of the switch; auto: where it helps; none: no switch (default: %(default)s)",
    )
    made.add_argument("--folder", help="folder of the command on all machines (default: this one)")
    made.add_argument("--python", help="Python with Netfold on the machines (default: this one)")
    made.add_argument("--ssh", default=shlex.join(SSH), metavar="COMMAND", help="the ssh to use, with its options")
    made.add_argument(
        "--port",
        type=cli_arguments.integer_in(0, 65535),
        default=0,
        help="port of the rendezvous on the first machine; 0 takes a free one (default: %(default)s)",
    )
    made.add_argument(
        "--env", action="append", default=[], metavar="NAME[=VALUE]", help="a variable for the command; may be repeated"
    )
    made.add_argument("--check", action="store_true", help="only check the machines")
    cli_arguments.add_command(made, "the command")
    return made


def run(arguments: list[str]) -> None:
    """Run the job. Exits with the status of the command, 1 if machines cannot be used, 2 for a wrong command line."""
    reader = parser()
    given = reader.parse_args(arguments)
    command = given.command[1:] if given.command[:1] == ["--"] else given.command
    if not command and not given.check:
        reader.error(f"write the command to run, as in {reader.prog} --hosts a,b -- torchrun train.py")
    if wrong := commands.refusal(command):
        reader.error(wrong)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    opened: list[Machine] = []
    status = 1
    try:
        status = _run(given, command, opened)
    except MachineError as error:
        print(f"{reader.prog}: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        print(f"{reader.prog}: interrupted: ending the job on all machines", file=sys.stderr)
        status = 130
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C must not leave anything running
        for machine in opened:
            machine.leave()
        lost = [machine.name for machine in opened if not machine.wait()]
        if lost:
            print(f"{reader.prog}: no answer from {', '.join(lost)}: look for processes there", file=sys.stderr)
    sys.exit(status)


def _run(given: argparse.Namespace, command: list[str], opened: list[Machine]) -> int:
    in_slurm = [] if given.hosts else hosts_of_slurm()
    hosts = _names(given.hosts) if given.hosts else in_slurm
    if not hosts:
        raise MachineError("name the machines with --hosts a,b, or call this within a job of Slurm")
    spare = [name for name in _names(given.spare) if name not in hosts]
    if given.switch not in (AUTO, NONE, *hosts, *spare):
        spare.append(given.switch)
    reach = SRUN if in_slurm else shlex.split(given.ssh)

    def open_machine(name: str) -> Machine:
        opened.append(Machine(name, reach, given.python or default_python()))
        return opened[-1]

    job = Job([open_machine(name) for name in hosts], [open_machine(name) for name in spare], _say)
    job.survey()
    checks = job.check(needs_torch=commands.is_torchrun(command))
    if shown := [check for check in checks if given.check or check.status != OK]:
        show(shown)
    count(checks)
    if any(check.required and check.status == MISSING for check in checks):
        raise MachineError("the machines cannot run a job together: see the lines above")
    place = _place(job, given.switch)
    if given.check:
        return 0
    environment = {name: value for name, value in os.environ.items() if name.startswith("NETFOLD_")} | _variables(
        given.env
    )
    if place is not None:
        keeper = open_machine(place.name)  # of its own: it ends after the command
        keeper.address = place.address
        environment |= job.start_switch(keeper)
    _say(f"on {', '.join(hosts)}: {shlex.join(command)}")
    return job.run(command, environment, given.folder or str(Path.cwd()), given.port)


def _place(job: Job, wanted: str) -> Machine | None:
    if wanted == AUTO:
        return None if os.environ.get("NETFOLD_SWITCH") else job.place_for_switch()
    return next((machine for machine in job.machines if machine.name == wanted), None)


def _names(text: str) -> list[str]:
    return list(dict.fromkeys(name for name in text.split(",") if name))


def _variables(given: list[str]) -> dict[str, str]:
    pairs = [each.partition("=") for each in given]
    return {name: value if sign else os.environ.get(name, "") for name, sign, value in pairs}


def _say(sentence: str) -> None:
    print(f"netfold up: {sentence}", file=sys.stderr, flush=True)
