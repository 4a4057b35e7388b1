"""Labs that stay after the command that built them, and the remains of crashed labs."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from netfold import namespace_rights
from netfold_lab.errors import LabError, UsageError
from netfold_lab.lab import names, netns, state, userns
from netfold_lab.lab.cluster import remove
from netfold_lab.lab.netns import enter

START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 10.0
POLL_S = 0.05


def owner_runs(known: state.LabState) -> bool:
    """Whether the process that owns a lab still runs."""
    return state.is_alive(known.owner_pid, known.owner_start_ticks)


def is_left_over(lab_id: str) -> bool:
    """Whether a lab is abandoned: its command died, or the process that held its namespace died."""
    known = state.load(lab_id)
    if known is None:
        return True
    if known.keep and not known.held:
        return False  # root built it to stay
    return not owner_runs(known)


def sweep() -> list[str]:
    """Remove the remains of crashed commands; returns their IDs. A command calls this before it builds a lab."""
    left = [lab_id for lab_id in state.known_labs() if is_left_over(lab_id)]
    for lab_id in left:
        remove(lab_id)
    return left


def take_down(lab_id: str) -> None:
    """Remove one lab, running or not: end the command that owns it, then remove everything with its name."""
    known = state.load(lab_id)
    if known and (known.held or not known.keep) and owner_runs(known):
        os.kill(known.owner_pid, signal.SIGTERM)
        deadline = time.monotonic() + STOP_TIMEOUT_S
        while owner_runs(known) and time.monotonic() < deadline:
            time.sleep(POLL_S)
        if owner_runs(known):
            with contextlib.suppress(ProcessLookupError):
                os.kill(known.owner_pid, signal.SIGKILL)
    remove(lab_id)


def choose(lab_id: str) -> str:
    """The lab that the user means: the named one, or the only kept one."""
    if lab_id:
        if not names.LAB_ID.match(lab_id):
            raise UsageError(f"{lab_id!r} is not a lab's ID; an ID looks like nf12ab34")
        return lab_id
    kept = [known for known in state.known_labs() if (found := state.load(known)) and found.keep]
    if len(kept) != 1:
        what = f"there are {len(kept)}: {', '.join(kept)}; name one" if kept else "there is no lab; run netfold lab up"
        raise UsageError(f"which lab? {what}")
    return kept[0]


def everything() -> list[str]:
    """Every lab that this user can see, by file or by name."""
    by_name = {lab_id for name in netns.existing() if (lab_id := names.lab_of(name))}
    return sorted(by_name | set(state.known_labs()))


def start_held(lab_id: str, arguments: list[str]) -> None:
    """Start a process that builds a lab in a user namespace and holds it; returns when the lab is ready."""
    log_path = state.runtime_directory() / f"{lab_id}.log"
    with log_path.open("wb") as log:
        holder = subprocess.Popen(
            userns.command(["up", "--hold", "--lab", lab_id, *arguments]),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=userns.environment(),
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not ((known := state.load(lab_id)) and known.ready):
            if holder.poll() is not None or time.monotonic() > deadline:
                holder.kill()
                last = log_path.read_text(errors="replace").strip().removeprefix("netfold: ")
                raise LabError(last or f"the lab did not start within {START_TIMEOUT_S:g} s")
            time.sleep(POLL_S)
    finally:
        log_path.unlink(missing_ok=True)


def node_command(lab_id: str, node: str) -> list[str]:
    """The words before a command that runs on a node of a kept lab: w0, w1, ... or switch."""
    known = state.load(lab_id)
    namespace = f"{lab_id}-{node}"
    if known is None or namespace not in known.namespaces:
        raise UsageError(f"lab {lab_id} has no node {node!r}; its nodes are switch, w0, w1, ...")
    if not known.held:
        return enter(namespace)
    children = Path(f"/proc/{known.owner_pid}/task/{known.owner_pid}/children").read_text().split()
    if not children:
        raise LabError(f"lab {lab_id} has ended; run netfold lab down {lab_id}")
    spaces = ["--user", "--mount", "--net", "--pid", "--preserve-credentials"]
    return ["nsenter", f"--target={children[0]}", *spaces, "--", *enter(namespace)]


def prepare() -> None:
    """Prepare a command that builds a lab: if this process lacks the rights, become one that has them; remove the
    remains of crashed labs."""
    if namespace_rights.lacking():
        sweep()
        userns.enter(sys.argv[1:], program="netfold.cli")
    if not state.is_inside():
        sweep()
