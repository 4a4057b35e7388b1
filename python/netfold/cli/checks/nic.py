"""Takes a smart NIC as a training would, and says what it is."""

from __future__ import annotations

from netfold.cli.checks import MISSING, OK, SLOW, Check


def look(place: str) -> list[Check]:
    """`place` is a NETFOLD_NIC, but not "simulated"."""
    from netfold import _core
    from netfold.errors import NetfoldError

    try:
        lanes, block, mantissa, has_bfp, address, has_interrupt = _core.describe_nic(place)
    except NetfoldError as error:
        return [Check("NIC", MISSING, str(error), "see the message; ranks that train use the NIC meanwhile", True)]
    bfp = f"bfp {block},{mantissa}" if has_bfp else "no bfp"
    found = [Check("NIC", OK, f"{lanes} lanes, {bfp}; it shares 32 MiB of this process's memory")]
    if address:
        octets = address.to_bytes(6, "little")
        found.append(Check("Ethernet address", OK, ":".join(f"{octet:02x}" for octet in octets)))
    else:
        found.append(Check("Ethernet address", OK, "it has no address yet: each training draws one"))
    if has_interrupt:
        found.append(Check("interrupt", OK, "MSI or MSI-X"))
    else:
        advice = "give the shell an MSI-X vector and connect interrupt_o to it"
        found.append(Check("interrupt", SLOW, "none: its registers are read every 50 us", advice))
    return found
