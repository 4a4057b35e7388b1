"""The state of each lab on disk, so that a later command can use or remove it."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path

from netfold_lab.errors import LabError
from netfold_lab.lab.names import LAB_ID


@dataclass
class LabState:
    """A lab on this machine. `keep`: it stays after the command that built it (`lab up`)."""

    lab_id: str
    workers: int
    keep: bool
    owner_pid: int
    owner_start_ticks: int
    namespaces: list[str]
    held: bool = False  # the lab ends with its owner (always without root)
    ready: bool = False
    parameters: dict = field(default_factory=dict)
    addresses: dict[str, str] = field(default_factory=dict)  # by node: w0, w1, ...


def runtime_directory() -> Path:
    """The folder of labs' files: $NETFOLD_RUNTIME_DIR, or a private folder below the temporary directory."""
    chosen = os.environ.get("NETFOLD_RUNTIME_DIR")
    path = Path(chosen) if chosen else Path(tempfile.gettempdir()) / f"netfold-labs-{os.getuid()}"
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.stat().st_uid != os.getuid():
        raise LabError(f"{path} belongs to another user; set NETFOLD_RUNTIME_DIR to a folder of your own")
    return path


def directory(lab_id: str) -> Path:
    """The folder of one lab: its state, its sockets, its tensors."""
    return runtime_directory() / lab_id


def start_ticks(pid: int) -> int:
    """The start of a process, in clock ticks since boot. Together with the ID it is never used twice. 0: there is no
    such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    return int(stat.rpartition(")")[2].split()[19])


def owner() -> tuple[int, int]:
    """The process that owns labs built here, by its ID outside of namespaces. In a user namespace it is the creator of
    that namespace."""
    outside = os.environ.get("NETFOLD_OWNER_PID")
    if outside:
        return int(outside), int(os.environ["NETFOLD_OWNER_START_TICKS"])
    return os.getpid(), start_ticks(os.getpid())


def is_inside() -> bool:
    """Whether this process is root in a user namespace of its own; process IDs of other processes are not valid
    there."""
    return "NETFOLD_OWNER_PID" in os.environ


def is_alive(pid: int, ticks: int) -> bool:
    """Whether exactly that process still runs."""
    return pid > 0 and ticks > 0 and start_ticks(pid) == ticks


def save(state: LabState) -> None:
    """Write the whole state or nothing."""
    folder = directory(state.lab_id)
    folder.mkdir(mode=0o700, exist_ok=True)
    temporary = folder / "state.json.new"
    temporary.write_text(json.dumps(asdict(state), indent=1))
    temporary.replace(folder / "state.json")


def load(lab_id: str) -> LabState | None:
    """The state of a lab; None if it is missing or cannot be read."""
    try:
        return LabState(**json.loads((directory(lab_id) / "state.json").read_text()))
    except (OSError, ValueError, TypeError):
        return None


def known(lab_id: str) -> LabState:
    """Like load, but raises LabError if the state is missing."""
    found = load(lab_id)
    if found is None:
        raise LabError(f"there is no lab {lab_id}, or its state cannot be read")
    return found


def forget(lab_id: str) -> None:
    """Remove a lab's folder."""
    shutil.rmtree(directory(lab_id), ignore_errors=True)


def known_labs() -> list[str]:
    """The ids of all labs that have a folder."""
    return sorted(path.name for path in runtime_directory().iterdir() if LAB_ID.match(path.name))
