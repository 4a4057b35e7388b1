"""All settings of the PyTorch backend in one table. Process-group options override environment variables."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from netfold.algorithms import ANY, AUTO, IN_NETWORK, ORDERS, RANK, SPLIT, WITH_SWITCH, bigraph_of, choices
from netfold.errors import NetfoldError
from netfold.log import LEVELS, logger
from netfold.placement import AGENT, CALLER, ENGINES, NIC, ROCE, SIMULATED, THREAD

WIRE_FORMATS = ("fp32", "fp16", "bf16", "bfp")
WINDOW_PACKETS_MAX = 16384
ROCE_WINDOW_MAX = 512
TCP_STREAMS_MAX = 16


@dataclass(frozen=True)
class Settings:
    """The settings of a process group, after options, environment and defaults are merged."""

    switch: str
    bind: str
    job: str
    secret: str
    secret_file: str
    algorithm: str
    order: str
    bigraph: tuple[int, int]
    topology: str
    group: int
    format: str
    bfp: tuple[int, int]
    require_auth: bool
    timeout_s: float | None
    connect_timeout_s: float
    engine: str
    agent: str
    roce: str
    nic: str
    cores: tuple[int, ...]
    tcp_streams: int
    dscp: int
    interface: tuple[str, ...]
    window: int
    faults: str
    pcap: str
    tuning: str
    trace: str
    log: str

    def algorithm_to_take(self) -> str:
        """The algorithm that the user named; else `auto`. With a switch `auto` means: the switch and the ranks share
        the work. The switch does all of it where the engine cannot do both at once."""
        if self.algorithm not in ("", AUTO) or self.topology:
            return self.algorithm
        if self.switch:
            return SPLIT if self.engine == THREAD else IN_NETWORK
        starts_a_switch = not self.algorithm and any(getattr(self, name) for name in SWITCH_ONLY)
        return IN_NETWORK if starts_a_switch else AUTO

    def switches(self) -> list[str]:
        """The addresses of the switches that the user named."""
        return self.switch.split(",") if self.switch else []

    def order_to_take(self) -> str:
        """The order that the user named; else that of the switch if it folds, else any."""
        return self.order or (RANK if self.algorithm_to_take() in WITH_SWITCH else ANY)


@dataclass(frozen=True)
class Setting:
    """One row of the table: the name of a setting in options and environment, and the function that reads its text."""

    name: str
    variable: str
    default: Any
    read: Callable[[Any], Any]
    meaning: str


def _text(value: Any) -> str:
    return str(value).strip()


def _job(value: Any) -> str:
    name = _text(value)
    if not re.fullmatch(r"[!#-\[\]-~]{1,96}", name) or "'" in name:
        raise ValueError("write 1 to 96 printable ASCII characters without spaces, quotes or backslashes")
    return name


def _is_host(text: str) -> bool:
    """A name, an IPv4 address, or an IPv6 address in brackets."""
    return bool(text) and (":" not in text or (text.startswith("[") and text.endswith("]")))


def _bare_host(text: str) -> str:
    """The host if `text` has no port, an IPv6 address in brackets; else empty."""
    if text.count(":") > 1 and not text.startswith("["):
        return f"[{text}]"
    return text if text and _is_host(text) else ""


def _address(value: Any) -> str:
    host, colon, port = _text(value).rpartition(":")
    if not (colon and _is_host(host) and port.isdigit() and 0 < int(port) < 65536):
        raise ValueError("write host:port, for example 10.0.0.5:7171 or [fd00::5]:7171")
    return _text(value)


def _switches(value: Any) -> str:
    """One address or several, with commas and no spaces."""
    addresses = [_address(part) for part in ([value] if not isinstance(value, str) else value.split(","))]
    if len(set(addresses)) != len(addresses):
        raise ValueError("name each switch once")
    return ",".join(addresses)


def _bind(value: Any) -> str:
    """An address to bind: `host` or `host:port`; port 0, the default, is any free port."""
    if host := _bare_host(_text(value)):
        return f"{host}:0"
    host, colon, port = _text(value).rpartition(":")
    if not (colon and _is_host(host) and port.isdigit() and int(port) < 65536):
        raise ValueError("write host or host:port, for example 10.0.0.5, 10.0.0.5:7171 or [fd00::5]:7171")
    return _text(value)


def _one_of(known: Iterable[str], value: Any) -> str:
    if _text(value) not in known:
        raise ValueError(f"choose one of {', '.join(known)}")
    return _text(value)


def _algorithm(value: Any) -> str:
    return _one_of(choices(), value)


def _order(value: Any) -> str:
    return _one_of(ORDERS, value)


def _bigraph(value: Any) -> tuple[int, int]:
    return bigraph_of("x".join(map(str, value)) if isinstance(value, tuple | list) else _text(value))


def _ranks(value: Any) -> int:
    if not _text(value).isdigit() or int(_text(value)) < 1:
        raise ValueError("give a number of ranks, at least 1")
    return int(_text(value))


def _engine(value: Any) -> str:
    return _one_of(ENGINES, value)


def _roce(value: Any) -> str:
    from netfold import _core

    try:
        _core.parse_roce_place(_text(value))
    except NetfoldError as error:
        raise ValueError(str(error)) from None
    return _text(value)


def _nic(value: Any) -> str:
    from netfold import _core

    try:
        if _text(value) != SIMULATED:
            _core.check_nic_place(_text(value))
    except NetfoldError as error:
        raise ValueError(f"{error}; or write {SIMULATED}") from None
    return _text(value)


def _streams(value: Any) -> int:
    if _text(value) not in map(str, range(1, TCP_STREAMS_MAX + 1)):
        raise ValueError(f"give a number of connections, 1 to {TCP_STREAMS_MAX}")
    return int(_text(value))


def _format(value: Any) -> str:
    return _one_of(WIRE_FORMATS, value)


def _level(value: Any) -> str:
    return _one_of(LEVELS, _text(value).lower())


def _bfp_shape(value: Any) -> tuple[int, int]:
    parts = value if isinstance(value, tuple | list) else _text(value).split(",")
    try:
        block, mantissa = (int(part) for part in parts)
    except ValueError:
        raise ValueError("write block,mantissa, for example 16,7") from None
    if block not in (8, 16, 32, 64, 128) or not 2 <= mantissa <= 7:
        raise ValueError("the block is a power of two from 8 to 128, the mantissa 2 to 7 bits")
    return block, mantissa


def _seconds(value: Any) -> float:
    try:
        seconds = value.total_seconds() if isinstance(value, timedelta) else float(_text(value))
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e9:
        raise ValueError("give a positive number of seconds")
    return seconds


def _yes_or_no(value: Any) -> bool:
    answers = {"1": True, "yes": True, "true": True, "0": False, "no": False, "false": False}
    if _text(value).lower() not in answers:
        raise ValueError("write yes or no")
    return answers[_text(value).lower()]


def _cores(value: Any) -> tuple[int, ...]:
    parts = value if isinstance(value, tuple | list) else _text(value).split(",")
    try:
        cores = tuple(int(part) for part in parts)
    except ValueError:
        raise ValueError("write core numbers, for example 2,3") from None
    count = os.cpu_count() or 1
    if any(not 0 <= core < count for core in cores):
        raise ValueError(f"this machine has the cores 0 to {count - 1}")
    return cores


def _dscp(value: Any) -> int:
    if _text(value) not in map(str, range(64)):
        raise ValueError("give a number from 0 to 63, such as 46")
    return int(_text(value))


def _interfaces(value: Any) -> tuple[str, ...]:
    names = tuple(value) if isinstance(value, tuple | list) else tuple(_text(value).split(","))
    if not all(re.fullmatch(r"[^\s/]{1,15}", name) for name in names) or len(set(names)) != len(names):
        raise ValueError("name each interface once, with commas and no spaces, for example eth0,eth1")
    return names


def _packets(value: Any) -> int:
    digits = _text(value)
    if not (digits.isascii() and digits.isdecimal()) or int(digits) > WINDOW_PACKETS_MAX:
        raise ValueError(f"give a number of packets up to {WINDOW_PACKETS_MAX}, 0 to let Netfold choose")
    return int(digits)


TABLE = (
    Setting("switch", "NETFOLD_SWITCH", "", _switches, "the switch, host:port; several with commas"),
    Setting("bind", "NETFOLD_BIND", "", _bind, "host[:port] where an embedded switch or host algorithm listens"),
    Setting("job", "NETFOLD_JOB", "", _job, "the job's name at the switch; default: a random one"),
    Setting("secret", "NETFOLD_SECRET", "", _text, "the job's secret; default: a random one, shared in the store"),
    Setting("secret_file", "NETFOLD_SECRET_FILE", "", _text, "file that holds the job's secret, instead of the secret"),
    Setting(
        "algorithm",
        "NETFOLD_ALGORITHM",
        "",
        _algorithm,
        "in-network, split, a host algorithm, or auto (default): what is fastest, with the switch if one is named",
    ),
    Setting(
        "order",
        "NETFOLD_ORDER",
        "",
        _order,
        "order of sums: rank (the switch's bits) or any; default: rank with a switch",
    ),
    Setting("bigraph", "NETFOLD_BIGRAPH", (0, 0), _bigraph, "hdrm: sub-nodes x switches of the BiGraph, 4x8"),
    Setting("topology", "NETFOLD_TOPOLOGY", "", _text, "file that places the hosts on a BiGraph, for hdrm and auto"),
    Setting(
        "group", "NETFOLD_GROUP", 0, _ranks, "hierarchical: number of ranks per machine; default: from their addresses"
    ),
    Setting("format", "NETFOLD_FORMAT", "fp32", _format, "wire format of float32 tensors: fp32, fp16, bf16 or bfp"),
    Setting("bfp", "NETFOLD_BFP", (16, 7), _bfp_shape, "block,mantissa of format bfp"),
    Setting("require_auth", "NETFOLD_REQUIRE_AUTH", False, _yes_or_no, "take only data that carries a tag: yes or no"),
    Setting("timeout_s", "NETFOLD_TIMEOUT_S", None, _seconds, "longest wait; default: the group's timeout"),
    Setting("connect_timeout_s", "NETFOLD_CONNECT_TIMEOUT_S", 30.0, _seconds, "longest time to connect to the switch"),
    Setting(
        "engine",
        "NETFOLD_ENGINE",
        THREAD,
        _engine,
        "engine that folds: caller, thread, agent, nic (see NETFOLD_NIC), or roce (see NETFOLD_ROCE)",
    ),
    Setting("agent", "NETFOLD_AGENT", "", _text, "socket of a running `netfold agent`; default: an agent of its own"),
    Setting(
        "roce",
        "NETFOLD_ROCE",
        "",
        _roce,
        "RoCE endpoint, to a switch that folds RoCE: eth1, or mlx5_0,verbs; then perhaps version=1, job=9, packets=8, "
        "one-way",
    ),
    Setting(
        "nic",
        "NETFOLD_NIC",
        "",
        _nic,
        "smart NIC: its PCI address 0000:65:00.0 (then perhaps bar=2, offset=0x1000), its socket, or simulated",
    ),
    Setting("cores", "NETFOLD_CORES", (), _cores, "CPU cores to pin the local workers' engines to"),
    Setting("tcp_streams", "NETFOLD_TCP_STREAMS", 1, _streams, "TCP connections to each rank of another machine"),
    Setting("dscp", "NETFOLD_DSCP", 0, _dscp, "DSCP of this rank's packets, for networks that sort by it"),
    Setting("interface", "NETFOLD_INTERFACE", (), _interfaces, "this rank's NICs: eth0,eth1; default: the route's"),
    Setting("window", "NETFOLD_WINDOW", 0, _packets, "packets in flight; 0 lets Netfold choose"),
    Setting("faults", "NETFOLD_FAULTS", "", _text, "seeded faults on this worker's link: loss=0.01,seed=7"),
    Setting("pcap", "NETFOLD_PCAP", "", _text, "file for this worker's packets; {rank} is replaced"),
    Setting("tuning", "NETFOLD_TUNING", "", _text, "tuning table for auto; default: the one measured on this machine"),
    Setting("trace", "NETFOLD_TRACE", "", _text, "folder for a record of all collectives, for `netfold why`"),
    Setting("log", "NETFOLD_LOG", "", _level, "log level on standard error: warning, info (what was chosen), debug"),
)

SWITCH_ONLY = ("faults", "pcap")  # rejected with a host algorithm, not silently ignored


def read(given: Mapping[str, Any]) -> dict[str, Any]:
    """The values of settings given by their names; None means not given. Raises ValueError for a wrong value, TypeError
    for a setting that does not exist."""
    known = {setting.name for setting in TABLE}
    for name in given:
        if name not in known:
            raise TypeError(f"netfold has no setting {name!r}; it has {', '.join(sorted(known))}")
    return {
        setting.name: _read(setting, given[setting.name], f"option {setting.name}")
        for setting in TABLE
        if given.get(setting.name) is not None
    }


def _read(setting: Setting, value: Any, where: str) -> Any:
    try:
        return setting.read(value)
    except ValueError as error:
        raise ValueError(f"netfold: {where}={value!r} is not usable ({setting.meaning}): {error}") from None


def load(given: Mapping[str, Any], environ: Mapping[str, str] | None = None) -> Settings:
    """Merge values that `read` returned over environment over defaults. A ValueError names the setting, its value and
    the values allowed, or the settings that exclude each other."""
    environ = os.environ if environ is None else environ
    merged = {}
    for setting in TABLE:
        if setting.name in given:
            merged[setting.name] = given[setting.name]
        elif environ.get(setting.variable, "").strip():
            merged[setting.name] = _read(setting, environ[setting.variable], setting.variable)
        else:
            merged[setting.name] = setting.default
    _settle_topology(merged)
    _settle_nic(merged)
    _settle_roce(merged)
    _settle_secret(merged)
    for setting in TABLE:
        is_in_vain = setting.name in SWITCH_ONLY and merged[setting.name] != setting.default
        has_switch = merged["algorithm"] in ("", *WITH_SWITCH) or (merged["algorithm"] == AUTO and merged["switch"])
        if is_in_vain and not has_switch:
            raise ValueError(
                f"netfold: {setting.variable} ({setting.meaning}) needs NETFOLD_ALGORITHM={IN_NETWORK} or {SPLIT}, not "
                f"{merged['algorithm']}: unset one of them"
            )
    settings = Settings(**merged)
    if settings.engine != THREAD and settings.algorithm_to_take() == SPLIT:
        raise ValueError(
            f"netfold: NETFOLD_ALGORITHM={SPLIT} needs NETFOLD_ENGINE={THREAD}, not {settings.engine}: "
            "unset one of them"
        )
    if len(settings.switches()) > 1 and settings.algorithm_to_take() != SPLIT:
        raise ValueError(
            f"netfold: NETFOLD_SWITCH names {len(settings.switches())} switches, which only the algorithm {SPLIT} "
            f"uses, not {settings.algorithm_to_take()}: name one switch, or unset NETFOLD_ALGORITHM and NETFOLD_ENGINE"
        )
    if len(settings.interface) > 1 and settings.algorithm_to_take() == IN_NETWORK:
        raise ValueError(
            f"netfold: NETFOLD_INTERFACE names {len(settings.interface)} interfaces, and the algorithm {IN_NETWORK} "
            "uses one: name one interface, or unset NETFOLD_ALGORITHM and NETFOLD_ENGINE"
        )
    if settings.engine == CALLER and settings.algorithm_to_take() == IN_NETWORK:
        raise ValueError(
            "netfold: NETFOLD_ENGINE=caller needs a host algorithm, such as NETFOLD_ALGORITHM=ring: a switch must "
            "hear from a worker also while it computes"
        )
    if merged["agent"] and merged["engine"] != AGENT:
        raise ValueError(
            f"netfold: NETFOLD_AGENT names an agent, but NETFOLD_ENGINE is {merged['engine']}: unset NETFOLD_AGENT, or "
            "set NETFOLD_ENGINE=agent"
        )
    return settings


def _settle_secret(merged: dict[str, Any]) -> None:
    """Read the file that holds the secret; warn if others may read it, as the switch does."""
    path = Path(merged["secret_file"])
    if not merged["secret_file"]:
        return
    if merged["secret"]:
        raise ValueError("netfold: NETFOLD_SECRET and NETFOLD_SECRET_FILE both give a secret: unset one of them")
    try:
        merged["secret"] = path.read_text(encoding="utf-8").rstrip("\r\n")
        mode = path.stat().st_mode
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(
            f"netfold: NETFOLD_SECRET_FILE={str(path)!r} cannot be read: {error}; give a text file that this user may "
            "read"
        ) from None
    if not merged["secret"]:
        raise ValueError(f"netfold: NETFOLD_SECRET_FILE={str(path)!r} is empty: write the switch's secret into it")
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        logger.warning("other users of this machine may read the secret file '%s': `chmod 600 %s`", path, path)


def _settle_nic(merged: dict[str, Any]) -> None:
    """NETFOLD_NIC chooses the engine and the algorithm; reject settings that a ring of smart NICs cannot use."""
    if not merged["nic"]:
        if merged["engine"] == NIC:
            raise ValueError(
                f"netfold: NETFOLD_ENGINE={NIC} needs NETFOLD_NIC: its PCI address, such as 0000:65:00.0, or "
                f"{SIMULATED}"
            )
        return
    if merged["engine"] not in (THREAD, NIC) or merged["roce"]:
        raise ValueError(f"netfold: NETFOLD_NIC needs NETFOLD_ENGINE={NIC} and no NETFOLD_ROCE: unset one of them")
    if merged["algorithm"] not in ("", "ring") or merged["switch"]:
        raise ValueError(
            "netfold: NETFOLD_NIC folds in a ring of NICs: unset NETFOLD_ALGORITHM and NETFOLD_SWITCH, or unset "
            "NETFOLD_NIC"
        )
    if merged["require_auth"]:
        raise ValueError("netfold: smart NICs send no tags: unset NETFOLD_REQUIRE_AUTH or NETFOLD_NIC")
    merged["engine"], merged["algorithm"] = NIC, "ring"


def _settle_roce(merged: dict[str, Any]) -> None:
    """NETFOLD_ROCE chooses the engine and the algorithm; reject settings that RoCE cannot use."""
    if not merged["roce"]:
        if merged["engine"] == ROCE:
            raise ValueError("netfold: NETFOLD_ENGINE=roce needs NETFOLD_ROCE, the interface or device, such as eth1")
        return
    if merged["engine"] not in (THREAD, ROCE):
        raise ValueError(
            f"netfold: NETFOLD_ROCE needs NETFOLD_ENGINE={ROCE}, not {merged['engine']}: unset one of them"
        )
    if merged["algorithm"] not in ("", IN_NETWORK) or merged["switch"] or merged["topology"]:
        raise ValueError(
            "netfold: NETFOLD_ROCE folds in the switch at the interface: unset NETFOLD_ALGORITHM, NETFOLD_SWITCH and "
            "NETFOLD_TOPOLOGY, or unset NETFOLD_ROCE"
        )
    if merged["require_auth"]:
        raise ValueError("netfold: RoCE has no tags: unset NETFOLD_REQUIRE_AUTH or NETFOLD_ROCE")
    if merged["window"] > ROCE_WINDOW_MAX:
        raise ValueError(f"netfold: over RoCE NETFOLD_WINDOW is at most {ROCE_WINDOW_MAX} packets")
    merged["engine"], merged["algorithm"] = ROCE, IN_NETWORK


def _settle_topology(merged: dict[str, Any]) -> None:
    """Reject settings that contradict a topology file, which needs a host algorithm."""
    if not merged["topology"]:
        return
    merged["algorithm"] = merged["algorithm"] or AUTO
    if merged["algorithm"] == IN_NETWORK:
        raise ValueError(
            f"netfold: NETFOLD_TOPOLOGY={merged['topology']!r} is for ranks that fold among themselves, not for "
            f"NETFOLD_ALGORITHM={IN_NETWORK}: use hdrm or auto, or unset one of them"
        )
    if merged["bigraph"] != (0, 0):
        raise ValueError(
            "netfold: NETFOLD_TOPOLOGY and NETFOLD_BIGRAPH both describe the BiGraph: unset NETFOLD_BIGRAPH"
        )
