"""The ranks find their own addresses and their switch, and the longest wait for other ranks."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist

from netfold import _core
from netfold.errors import NetfoldError
from netfold.interfaces import in_address
from netfold.torch import own_address
from netfold.torch.options import load
from netfold.torch.switch_discovery import agree

SETTINGS = load(None, {})


@pytest.fixture
def resolve(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Make the store's host a name with these addresses. This machine has the addresses 192.0.2.1 and 2001:db8::1."""

    def source_address(destination: str) -> str:
        if destination == "::1" or destination.startswith("127."):
            return ""
        return "2001:db8::1" if ":" in destination else "192.0.2.1"

    def set_up(*addresses: str) -> None:
        def getaddrinfo(host: str, port: Any, **_: Any) -> list[Any]:
            assert host == "master"
            if not addresses:
                raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
            families = [socket.AF_INET6 if ":" in address else socket.AF_INET for address in addresses]
            return [
                (family, socket.SOCK_DGRAM, 17, "", (at, 0)) for family, at in zip(families, addresses, strict=True)
            ]

        monkeypatch.setattr(own_address.socket, "getaddrinfo", getaddrinfo)
        monkeypatch.setattr(own_address, "_source_address", source_address)
        monkeypatch.setenv("MASTER_ADDR", "master")

    return set_up


def address_of_rank_0(*others: str, bind: str = "") -> str:
    """The address of rank 0, when the other ranks published theirs."""
    store = dist.HashStore()
    for rank, address in enumerate(others, 1):
        store.set(f"{own_address.KEY}{rank}", address)
    return own_address.own_address(store, 0, 1 + len(others), bind, 0.2)


@pytest.mark.parametrize(
    ("master", "others", "address"),
    [
        (["192.0.2.9"], ["192.0.2.2"], "192.0.2.1"),
        (["2001:db8::9", "192.0.2.9"], ["192.0.2.2"], "192.0.2.1"),  # IPv4 counts, also where IPv6 comes first
        (["127.0.1.1"], ["", ""], "127.0.0.1"),  # all ranks run here
        (["127.0.1.1"], ["", "192.0.2.2"], "192.0.2.1"),
        (["127.0.1.1", "2001:db8::1"], ["192.0.2.2"], "192.0.2.1"),
        ([], [""], "127.0.0.1"),
        (["2001:db8::9"], ["2001:db8::2"], "2001:db8::1"),
        (["2001:db8::1"], ["2001:db8::1"], "127.0.0.1"),
        (["2001:db8::9"], ["2001:db8::2", "192.0.2.2"], "2001:db8::1"),  # one rank has no IPv4
        (["2001:db8::9", "192.0.2.9"], ["192.0.2.2,2001:db8::2", "2001:db8::3"], "2001:db8::1"),
        (["192.0.2.9"], [], "127.0.0.1"),  # a group of one rank
    ],
)
def test_the_own_address(resolve: Callable[..., None], master: list[str], others: list[str], address: str) -> None:
    resolve(*master)
    assert address_of_rank_0(*others) == address


@pytest.mark.parametrize(
    ("bind", "address"),
    [("127.0.0.1:0", "127.0.0.1"), ("0.0.0.0:7171", "192.0.2.1"), ("203.0.113.9:0", "192.0.2.1")],
    ids=["of this machine", "every interface", "of another machine"],
)
def test_a_setting_names_the_address(resolve: Callable[..., None], bind: str, address: str) -> None:
    resolve("192.0.2.9")
    assert address_of_rank_0("192.0.2.2", bind=bind) == address


def test_a_rank_without_an_address_names_the_ranks_that_are_missing(resolve: Callable[..., None]) -> None:
    resolve("127.0.1.1")
    with pytest.raises(RuntimeError, match=r"ranks 1, 2 did not join the process group within 0\.2 s"):
        own_address.own_address(dist.HashStore(), 0, 3, "", 0.2)


def test_an_ipv6_address_stands_in_brackets_before_a_port() -> None:
    assert [in_address(host) for host in ("2001:db8::1", "[::1]", "10.0.0.1", "name")] == [
        "[2001:db8::1]", "[::1]", "10.0.0.1", "name"
    ]  # fmt: skip


@pytest.mark.parametrize("kind", ["hash", "file", "tcp"])
def test_a_silent_rank_0_is_named(kind: str, tmp_path: Path) -> None:
    stores = {
        "hash": dist.HashStore,
        "file": lambda: dist.FileStore(str(tmp_path / "store"), 2),
        "tcp": lambda: dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False),
    }
    with pytest.raises(RuntimeError, match=r"rank 0 of the group did not publish within 0\.2 s which switch to use"):
        agree(stores[kind](), 1, SETTINGS, "group", "127.0.0.1", 0.2)


def test_a_stranger_cannot_use_an_embedded_switch() -> None:
    settings = load(None, {"NETFOLD_ALGORITHM": "in-network"})
    agreement, embedded = agree(dist.HashStore(), 0, settings, "group", "127.0.0.1", 5.0)
    again, shared = agree(dist.HashStore(), 0, settings, "other", "127.0.0.1", 5.0)
    assert embedded is not None and shared is embedded, "groups of one rank 0 share a switch"
    try:
        with pytest.raises(NetfoldError, match="secret"):
            _core.SwitchGroup(embedded.address, "stranger", 1, 0, timeout_s=5.0)
        for own in (agreement, again):
            _core.SwitchGroup(embedded.address, own.job, 1, 0, secret=own.secret, timeout_s=5.0).close()
    finally:
        embedded.release(linger=False)
        embedded.release(linger=False)
