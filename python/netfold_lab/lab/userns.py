"""A lab without root: runs the same command again, as root of a user namespace of its own.

`enter` replaces this process by a small one (`python -m netfold_lab.lab.userns PROGRAM ...`). It creates the namespaces
(user, network, mount, process), starts the command as their first process, forwards signals and waits. The lab's own
process namespace makes clean-up certain: when its first process ends for any reason, the kernel ends all others and
removes the links.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from pathlib import Path

from netfold import namespace_rights
from netfold_lab.errors import LabError
from netfold_lab.lab import state

CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x00020000, 0x10000000, 0x20000000, 0x40000000
MS_NOSUID, MS_REC, MS_PRIVATE = 2, 16384, 1 << 18
PR_SET_PDEATHSIG = 1
FAILED, WRONG_USAGE = 1, 2
LAB_PROGRAM = "netfold_lab.cli.lab"


def command(arguments: list[str], program: str = LAB_PROGRAM) -> list[str]:
    """The command that runs `python -m PROGRAM ARGUMENTS`, usually `netfold lab ARGUMENTS`, in namespaces of its
    own."""
    return [sys.executable, "-m", "netfold_lab.lab.userns", program, *arguments]


def environment() -> dict[str, str]:
    """The environment of that command: the folder of labs' files, and the path of this package."""
    package = str(Path(__file__).parents[2])
    path = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH", ""))))
    return {**os.environ, "NETFOLD_RUNTIME_DIR": str(state.runtime_directory()), "PYTHONPATH": path}


def enter(arguments: list[str], program: str = LAB_PROGRAM) -> None:
    """Become that command. Does not return."""
    sys.stdout.flush()
    os.execve(sys.executable, command(arguments, program), environment())


def _call(name: str, result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise LabError(f"a lab without root needs {name}: {os.strerror(number)}; {namespace_rights.ADVICE}")


def _make_namespaces(libc: ctypes.CDLL) -> None:
    uid, gid = os.getuid(), os.getgid()
    _call("a user namespace", libc.unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET))
    try:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
        Path("/proc/self/gid_map").write_text(f"0 {gid} 1")
    except OSError as error:
        raise LabError(
            f"a lab without root needs to be root of its namespace: {error.strerror}; {namespace_rights.ADVICE}"
        ) from error


def _become_first_process(libc: ctypes.CDLL, parent: int, arguments: list[str]) -> None:
    """In the new process: mount a /proc with only its own processes and a /run for names of namespaces, then run the
    command."""
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    os.setpgid(0, 0)  # Ctrl-C reaches only the parent, which forwards it once
    _call("mounts of its own", libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None))
    _call("a /proc of its own", libc.mount(b"proc", b"/proc", b"proc", MS_NOSUID, None))
    _call("a /run of its own", libc.mount(b"tmpfs", b"/run", b"tmpfs", MS_NOSUID, b"mode=0755"))
    Path("/run/netns").mkdir()
    os.environ["NETFOLD_OWNER_PID"] = str(parent)
    os.environ["NETFOLD_OWNER_START_TICKS"] = os.environ.pop("NETFOLD_PARENT_TICKS", "0")
    os.execv(sys.executable, [sys.executable, "-m", *arguments])


def main(arguments: list[str]) -> int:
    """Create the namespaces, run the command in them, forward signals. Returns the command's exit status, 1 if it was
    killed.

    arguments: the module to run, and its arguments."""
    libc = ctypes.CDLL(None, use_errno=True)
    os.environ["NETFOLD_PARENT_TICKS"] = str(state.start_ticks(os.getpid()))
    parent = os.getpid()
    try:
        _make_namespaces(libc)
        child = os.fork()
        if child == 0:
            try:
                _become_first_process(libc, parent, arguments)
            except BaseException as error:
                print(f"netfold: {error}", file=sys.stderr, flush=True)
            os._exit(FAILED)
    except LabError as error:
        print(f"netfold: {error}", file=sys.stderr)
        return FAILED
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda received, frame: os.kill(child, received))
    while True:
        try:
            _, status = os.waitpid(child, 0)
        except InterruptedError:
            continue
        code = os.waitstatus_to_exitcode(status)
        return code if code in (0, WRONG_USAGE) else FAILED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
