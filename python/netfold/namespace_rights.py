"""Whether this process may create network namespaces, which emulated clusters consist of."""

from __future__ import annotations

from pathlib import Path

CAP_NET_ADMIN, CAP_SYS_ADMIN = 12, 21
ADVICE = (
    "run it as root, or allow user namespaces: sysctl -w kernel.unprivileged_userns_clone=1 (Debian), "
    "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0 (Ubuntu), sysctl -w user.max_user_namespaces=10000; "
    "a container needs --privileged"
)


def lacking() -> bool:
    """Whether this process lacks the rights to create network namespaces."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            effective = int(line.split()[1], 16)
            return not (effective >> CAP_NET_ADMIN & 1 and effective >> CAP_SYS_ADMIN & 1)
    return True
