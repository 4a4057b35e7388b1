"""Forbids only the calling thread every system call that sends to or receives from a socket (Linux, x86-64).

Such a call then fails with PermissionError: what still works afterwards did without the network. There is no way back.
"""

from __future__ import annotations

import ctypes
import errno
import platform
import struct

SOCKET_CALLS = {
    "connect": 42,
    "accept": 43,
    "sendto": 44,
    "recvfrom": 45,
    "sendmsg": 46,
    "recvmsg": 47,
    "recvmmsg": 299,
    "sendmmsg": 307,
}
POLL_CALLS = {"poll": 7, "select": 23, "epoll_wait": 232, "pselect6": 270, "ppoll": 271, "epoll_pwait": 281}
PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, SECCOMP_MODE_FILTER = 22, 38, 2
LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, FAIL = 0x7FFF0000, 0x00050000


class Program(ctypes.Structure):
    """struct sock_fprog"""

    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def can_forbid() -> bool:
    """Whether these numbers are this machine's."""
    return platform.system() == "Linux" and platform.machine() == "x86_64"


def forbid_network() -> None:
    """Install the filter for this thread. Raises OSError if the kernel has no seccomp filters."""
    numbers = [*SOCKET_CALLS.values(), *POLL_CALLS.values()]
    instruction = struct.Struct("HBBI")
    filters = [instruction.pack(LOAD, 0, 0, 0)]  # the call's number
    filters += [instruction.pack(JUMP_IF_EQUAL, len(numbers) - i, 0, number) for i, number in enumerate(numbers)]
    filters += [instruction.pack(RETURN, 0, 0, ALLOW), instruction.pack(RETURN, 0, 0, FAIL | errno.EPERM)]
    libc = ctypes.CDLL(None, use_errno=True)
    program = Program(len(filters), b"".join(filters))
    for arguments in (
        (PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
        (PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0),
    ):
        if libc.prctl(*arguments) != 0:
            raise OSError(ctypes.get_errno(), "this kernel refuses seccomp filters")
