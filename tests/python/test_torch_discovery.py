"""How the ranks find their switch: the address that rank 0 names, and how long the others wait for it."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist

from netfold.torch import switch_discovery
from netfold.torch.settings import load
from netfold.torch.switch_discovery import agree, reachable_host

SETTINGS = load(None, {})


@pytest.fixture
def resolve(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Make the store's host a name that resolves so: an IPv4 address, or none."""

    def set_up(ipv4: str, machines: int) -> None:
        def getaddrinfo(host: str, port: Any, family: int = 0, **_: Any) -> list[Any]:
            assert host == "master"
            six = [(socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("fe80::1", 0, 0, 2))]
            four = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ipv4, 0))] if ipv4 else []
            found = four if family == socket.AF_INET else six + four
            if not found:
                raise socket.gaierror(socket.EAI_ADDRFAMILY, "Address family for hostname not supported")
            return found

        monkeypatch.setattr(switch_discovery.socket, "getaddrinfo", getaddrinfo)
        monkeypatch.setattr(switch_discovery, "_source_address", lambda destination: f"towards {destination}")
        monkeypatch.setenv("MASTER_ADDR", "master")
        monkeypatch.setenv("WORLD_SIZE", "4")
        monkeypatch.setenv("LOCAL_WORLD_SIZE", str(4 // machines))

    return set_up


def test_the_ipv4_address_counts_where_ipv6_comes_first(resolve: Any) -> None:
    resolve("192.0.2.9", machines=2)
    assert reachable_host(dist.HashStore()) == "towards 192.0.2.9"


def test_a_name_of_this_machine_alone(resolve: Any) -> None:
    resolve("127.0.1.1", machines=1)
    assert reachable_host(dist.HashStore()) == "127.0.0.1"
    resolve("", machines=1)
    assert reachable_host(dist.HashStore()) == "127.0.0.1"
    resolve("127.0.1.1", machines=2)
    assert reachable_host(dist.HashStore()).startswith("towards ")


def test_without_ipv4_several_machines_need_a_setting(resolve: Any) -> None:
    resolve("", machines=2)
    with pytest.raises(RuntimeError, match=r"master has no IPv4 address.*NETFOLD_BIND.*NETFOLD_SWITCH"):
        reachable_host(dist.HashStore())


@pytest.mark.parametrize("kind", ["hash", "file", "tcp"])
def test_a_silent_rank_0_is_named(kind: str, tmp_path: Path) -> None:
    stores = {
        "hash": dist.HashStore,
        "file": lambda: dist.FileStore(str(tmp_path / "store"), 2),
        "tcp": lambda: dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False),
    }
    with pytest.raises(RuntimeError, match=r"rank 0 of the group did not say within 0\.2 s which switch to use"):
        agree(stores[kind](), 1, SETTINGS, "group", 0.2)
