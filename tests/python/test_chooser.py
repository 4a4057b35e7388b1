"""The chooser: its model, its table's file, and a group that uses one table although ranks have different ones."""

from __future__ import annotations

import itertools
import json
import logging
import math
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st

import netfold
from netfold import algorithms
from netfold.chooser import lookup
from netfold.chooser.accuracy import between_sizes, between_worlds
from netfold.chooser.choices import (
    CLASS_MAX,
    CLASS_MIN,
    Choice,
    Choices,
    Chooser,
    choice_at,
    choices_of,
    class_of,
    size_text,
    time_text,
)
from netfold.chooser.model import Costs, Model, fit
from netfold.chooser.table import WORLD_MAX, Conditions, Point, Table, TableError, conditions_here, path_of, read, write
from netfold.chooser.work import serves, work_of
from netfold.log import logger
from netfold.machine import Machine, this_machine
from torch_ranks import run_ranks, values

pytestmark = pytest.mark.timeout(120)
KIB, MIB = 1 << 10, 1 << 20
MEASURED = ("ring", "halving-doubling", "recursive-doubling", "binomial", "double-binary-tree")
SIZES = tuple(1 << shift for shift in range(10, 28, 2))
WORLDS = (2, 3, 4, 6, 8)
DATE = "2026-11-20"

costs = st.builds(
    Costs,
    *(
        st.floats(math.log(low), math.log(high)).map(math.exp)
        for low, high in ((1e-6, 1e-3), (1e-11, 1e-8), (1e-11, 1e-8))
    ),
)


def conditions(cores: int = 2, link: str = "shm", wire: str = "fp32") -> Conditions:
    return Conditions(Machine("A Processor", cores), netfold.__version__, link, wire)


def table_of(costs_by_name: dict[str, Costs], of: Conditions | None = None) -> Table:
    """The measurements if the model were exact."""
    of = of or conditions()
    cores = of.machine.cores
    points = [
        Point(name, world, size, (each.seconds(work_of(name, world, cores), size),))
        for name, each in costs_by_name.items()
        for world, size in itertools.product(WORLDS, SIZES)
    ]
    return Table(of, DATE).with_points(points, DATE)


def plain_table(of: Conditions | None = None, fast: str = "binomial") -> Table:
    """A table in which one algorithm is far faster than the others at every size."""
    return table_of(
        {name: Costs(1e-6, 1e-11, 1e-11) if name == fast else Costs(1e-3, 1e-9, 1e-9) for name in MEASURED}, of
    )


# What is counted.


def test_work_is_that_of_the_papers() -> None:
    """With one core per rank: 2(n-1) steps and 2(n-1)/n of the tensor sent by a ring, 2 log n steps by
    halving-doubling."""
    ring, halving = work_of("ring", 8, 8), work_of("halving-doubling", 8, 8)
    assert (ring.steps, halving.steps) == (14, 6)
    assert ring.sends == halving.sends == pytest.approx(2 * 7 / 8)
    assert ring.folds == halving.folds == pytest.approx(7 / 8)
    assert (work_of("recursive-doubling", 8, 8).steps, work_of("recursive-doubling", 8, 8).sends) == (3, 3)


def test_ranks_that_share_cores_take_turns() -> None:
    alone, shared = work_of("ring", 8, 8), work_of("ring", 8, 2)
    assert (shared.sends, shared.folds) == pytest.approx((4 * alone.sends, 4 * alone.folds))
    assert work_of("ring", 2, 64) == work_of("ring", 2, 2)


def test_what_needs_a_topology_serves_nobody_without() -> None:
    assert [name for name in algorithms.host_algorithms() if not serves(name, 4)] == ["hdrm", "hierarchical"]


# The model.


@settings(max_examples=30)
@given(costs, st.sampled_from(MEASURED), st.sampled_from([2, 8, 64]))
def test_the_model_finds_the_costs_that_made_the_times(true: Costs, name: str, cores: int) -> None:
    points = list(table_of({name: true}, conditions(cores)).points)
    found = fit(points, cores)
    for world, size in itertools.product((2, 5, 8, 12), (KIB, 3000, MIB, 512 * MIB)):
        work = work_of(name, world, cores)
        assert found.seconds(work, size) == pytest.approx(true.seconds(work, size), rel=0.3)
    for point in points:
        work = work_of(name, point.world, cores)
        assert found.seconds(work, point.size_bytes) == pytest.approx(point.time_s_median, rel=1e-3)


def test_alpha_beta_and_gamma_are_told_apart_where_the_schedules_differ() -> None:
    """Halving-doubling folds half of the bytes that it sends, and more if the world is not a power of two."""
    true = Costs(20e-6, 3e-10, 5e-10)
    found = fit(list(table_of({"halving-doubling": true}, conditions(64)).points), 64)
    assert (found.alpha, found.beta, found.gamma) == pytest.approx((true.alpha, true.beta, true.gamma), rel=0.01)


@settings(max_examples=30)
@given(st.lists(st.floats(1e-9, 1e6), min_size=1, max_size=12), st.sampled_from(MEASURED))
def test_any_times_have_a_model_and_measured_points_are_kept(times: list[float], name: str) -> None:
    cells = itertools.product(SIZES, WORLDS)
    points = [Point(name, world, size, (time_s,)) for time_s, (size, world) in zip(times, cells, strict=False)]
    model = Model(Table(conditions(), DATE).with_points(points, DATE))
    assert all(cost >= 0 for cost in vars(model.costs[name]).values())
    for point in points:
        assert model.seconds(*point.key) == pytest.approx(point.time_s_median, rel=1e-6)
    for world, size in itertools.product(range(2, 17), (1, 999, 1 << 34)):
        assert 0 < model.seconds(name, world, size) < math.inf


def test_what_was_off_at_the_neighbours_counts_in_between() -> None:
    """A cache that ends at 1 MiB: the model is one line, the times are two."""
    bent = [
        replace(point, time_s=(point.time_s_median * (3 if point.size_bytes > MIB else 1),))
        for point in table_of({"ring": Costs(1e-5, 1e-10, 1e-10)}).points
    ]
    model = Model(Table(conditions(), DATE).with_points(bent, DATE))
    exact = Costs(1e-5, 1e-10, 1e-10).seconds(work_of("ring", 5, 2), 8 * MIB)
    assert model.seconds("ring", 5, 8 * MIB) == pytest.approx(3 * exact, rel=0.02)


def test_the_error_is_that_of_points_left_out() -> None:
    exact = plain_table()
    for found in (between_sizes(exact), between_worlds(exact)):
        assert found is not None
        assert found.error_90 < 0.05
        assert found.loss_mean < 1e-6
    halved = [replace(p, time_s=(p.time_s_median * (1 + p.size_bytes.bit_length() % 4),)) for p in exact.points]
    found = between_sizes(exact.with_points(halved, DATE))
    assert found is not None
    assert found.error_median > 0.5
    assert between_sizes(Table(conditions(), DATE)) is None


# Choices.


@given(st.integers(1, 1 << 50))
def test_a_class_is_the_nearest_power_of_two(size: int) -> None:
    found = class_of(size)
    assert CLASS_MIN <= found <= CLASS_MAX
    if CLASS_MIN < found < CLASS_MAX:
        assert abs(math.log2(size) - found) <= 0.5 + 1e-9
    assert class_of(size) <= class_of(size + 1)


@settings(max_examples=30)
@given(st.dictionaries(st.sampled_from(MEASURED), costs, min_size=1), st.integers(2, 16), st.integers(1, 1 << 40))
def test_choices_are_total_the_fastest_and_survive_the_store(true: dict[str, Costs], ranks: int, size: int) -> None:
    model = Model(table_of(true))
    choices = choices_of(model, ranks)
    assert choices is not None
    assert choices == choices_of(Model(table_of(dict(reversed(true.items())))), ranks)
    assert Choices.from_json(choices.to_json()) == choices
    chosen = choices.of(size)
    nearest = 1 << class_of(size)
    assert chosen.time_s == min(model.seconds(name, ranks, nearest) for name in true)
    assert chosen.is_measured == (ranks in WORLDS and nearest in SIZES)
    assert Chooser(choices)(size, ranks) == chosen.algorithm


def test_a_table_says_nothing_of_worlds_far_beyond_it() -> None:
    model = Model(plain_table())
    assert choices_of(model, 16) is not None
    assert choices_of(model, 17) is None
    assert choice_at(Model(Table(conditions(), DATE)), 2, KIB) is None


def test_an_algorithm_that_was_not_measured_is_not_chosen() -> None:
    table = plain_table()
    gone = table.without([point for point in table.points if point.algorithm == "binomial" and point.world == 4])
    names = {each.algorithm for each in choices_of(Model(gone), 4).by_class}
    assert "binomial" not in names
    foreign = table.with_points([Point("butterfly", 4, KIB, (1e-9,))], DATE)
    assert {each.algorithm for each in choices_of(Model(foreign), 4).by_class} == {"binomial"}


def test_each_choice_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    choices = Choices(8, "table of 2026-11-20, this machine", (Choice("ring", 3.14e-3, True, "binomial", 4e-3),) * 33)
    chooser = Chooser(choices)
    with caplog.at_level(logging.INFO, "netfold"):
        for size in (4 * MIB, 4 * MIB, 5 * MIB, 6 * MIB):
            assert chooser(size, 8) == "ring"
        assert Chooser(None)(4, 3) == "recursive-doubling"
        assert chooser(4, 3) == "recursive-doubling", "the choices are for 8 ranks"
    assert [record.getMessage() for record in caplog.records][:2] == [
        "netfold: 4.0 MiB on 8 ranks: ring (measured 3.1 ms; binomial 4.0 ms; table of 2026-11-20, this machine)",
        "netfold: 6.0 MiB on 8 ranks: ring (measured 3.1 ms at 8.0 MiB; binomial 4.0 ms; table of 2026-11-20, this "
        "machine)",
    ]
    assert "built-in rule" in caplog.records[2].getMessage()
    assert len(caplog.records) == 4


def test_sizes_and_times_in_words() -> None:
    assert [size_text(size) for size in (4, KIB, 5 * MIB // 2, 1 << 30)] == ["4 B", "1.0 KiB", "2.5 MiB", "1.0 GiB"]
    assert [time_text(time_s) for time_s in (2e-7, 12e-6, 3.14e-3, 0.1494, 2)] == [
        *("0.2 us", "12.0 us", "3.1 ms", "149 ms", "2.0 s")
    ]


# The file.

names = st.text("abcdefghijklmnopqrstuvwxyz-", min_size=1, max_size=20)
points = st.builds(
    Point,
    names,
    st.integers(1, WORLD_MAX),
    st.integers(1, 1 << 40),
    st.lists(st.floats(1e-9, 1e9), min_size=1, max_size=9).map(tuple),
)


@settings(max_examples=20)
@given(st.lists(points, max_size=9))
def test_a_table_is_read_as_it_was_written(tmp_path_factory: pytest.TempPathFactory, some: list[Point]) -> None:
    path = tmp_path_factory.mktemp("table") / "deep" / "table.json"
    table = Table(conditions(), DATE).with_points(some, DATE)
    write(table, path)
    assert read(path) == table
    assert [each.name for each in path.parent.iterdir()] == ["table.json"]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("NETFOLD_TUNING", raising=False)
    return tmp_path


def spoil(text: str) -> Iterator[str]:
    """A table's text with every kind of damage."""
    yield ""
    yield text[: len(text) // 2]
    yield "[]"
    yield '{"netfold_tuning": 1}'
    yield "[" * 100_000
    said = json.loads(text)
    for change in (
        {"netfold_tuning": 2},
        {"netfold_tuning": True},
        {"date": "yesterday"},
        {"points": {}},
        {"points": [said["points"][0]] * 2},
        {"conditions": {**said["conditions"], "machine": {"cpu": "x", "cores": 0}}},
        {"conditions": {**said["conditions"], "link": None}},
        *(
            {"points": [{**said["points"][0], **wrong}]}
            for wrong in (
                {"time_s": []},
                {"time_s": [0]},
                {"time_s": [-1.0]},
                {"time_s": ["1"]},
                {"time_s": [1e999]},
                {"time_s": 1.0},
                {"workers": 1.5},
                {"workers": WORLD_MAX + 1},
                {"size_bytes": 0},
                {"algorithm": 7},
            )
        ),
    ):
        yield json.dumps({**said, **change})


def test_a_spoilt_table_is_a_warning_that_names_it_and_the_rule(cache: Path, caplog: pytest.LogCaptureFixture) -> None:
    here = conditions_here("shm", "fp32")
    path = path_of(here)
    assert lookup.choices_for(4, "shm", "fp32") is None
    assert caplog.records == [], "no table at all is nothing to warn of"
    write(plain_table(here), path)
    assert lookup.choices_for(4, "shm", "fp32") is not None
    for text in list(spoil(path.read_text())):
        path.write_text(text)
        with pytest.raises(TableError, match=path.name):
            read(path)
        caplog.clear()
        assert lookup.choices_for(4, "shm", "fp32") is None
        assert [str(path) in record.getMessage() for record in caplog.records] == [True]
        assert "--tune" in caplog.text
    path.write_bytes(b"\xff\xfe")
    assert lookup.choices_for(4, "shm", "fp32") is None
    path.unlink()
    path.mkdir()
    assert lookup.choices_for(4, "shm", "fp32") is None
    assert cache in path.parents


def test_a_table_of_elsewhere_or_of_before(cache: Path, caplog: pytest.LogCaptureFixture) -> None:
    here = conditions_here("shm", "fp32")
    write(plain_table(replace(here, machine=Machine("Another", 64))), path_of(here))
    assert lookup.choices_for(4, "shm", "fp32") is None
    assert "Another" in caplog.text
    named = lookup.choices_for(4, "shm", "fp32", str(path_of(here)))
    assert named is not None, "NETFOLD_TUNING overrides"
    assert named.source == "table of 2026-11-20, Another"
    caplog.clear()
    write(plain_table(replace(here, netfold="0.0.1")), path_of(here))
    assert lookup.choices_for(4, "shm", "fp32") is not None
    assert "0.0.1" in caplog.text
    assert lookup.choices_for(4, "shm", "bfp") is not None, "with none for bfp, that for fp32"
    assert lookup.choices_for(4, "tcp", "fp32") is None
    assert lookup.choices_for(4, "shm", "fp32", str(cache / "none.json")) is None
    assert this_machine() == here.machine


# A group.


LARGE = 100_000


def _goes_by_one_table_body(rank: int, folder: str, world: int) -> tuple[str, int]:
    """This rank's log, and the bytes that it sent for LARGE elements; every rank has a table of its own."""
    from netfold.torch.backend import backend_of

    records: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append(record.getMessage())

    logger.addHandler(Keep())
    logger.setLevel(logging.DEBUG)
    table = str(Path(folder, f"{rank}.json"))
    group = dist.new_group(pg_options=netfold.torch.Options(algorithm="auto", tuning=table))
    for count in (1, 1000, LARGE):
        tensor = torch.full((count,), float(rank))
        before = backend_of(group).stats()["shm_sent_bytes"]
        dist.all_reduce(tensor, group=group)
        assert torch.equal(tensor, torch.full((count,), world * (world - 1) / 2))
    return "\n".join(records), backend_of(group).stats()["shm_sent_bytes"] - before


def test_ranks_with_different_tables_run_rank_0s(tmp_path: Path) -> None:
    """Rank 0's table says binomial, 1's ring, 2's is damaged, 3 has no table. The bytes that each rank sends show
    binomial."""
    here = conditions_here("shm", "fp32")
    write(plain_table(here, "binomial"), tmp_path / "0.json")
    write(plain_table(here, "ring"), tmp_path / "1.json")
    (tmp_path / "2.json").write_text("spoilt")
    said = values(
        run_ranks(_goes_by_one_table_body, str(tmp_path), 4, world=4, environment={"NETFOLD_ALGORITHM": "ring"})
    )
    for text, _ in said:
        assert text.count(": binomial (") == 3, text
        assert "built-in" not in text
    for rank, (_, sent_bytes) in enumerate(said):
        steps = netfold.schedule("binomial", 4, rank, LARGE)
        elements = sum(count for step in steps for action, _, _, count in step if action == "send")
        assert sent_bytes == pytest.approx(4 * elements, rel=0.05)


def _spoilt_body(rank: int, meeting: str, folder: str, world: int) -> None:
    """The standard error of each rank goes to a file."""
    with Path(folder, f"{rank}.err").open("w") as file:
        os.dup2(file.fileno(), sys.stderr.fileno())
    dist.init_process_group("netfold", init_method=f"file://{meeting}", rank=rank, world_size=world)
    for _ in range(2):
        tensor = torch.full((1000,), float(rank))
        dist.all_reduce(tensor)
        assert torch.equal(tensor, torch.full((1000,), world * (world - 1) / 2))


def test_a_group_whose_table_is_spoilt_says_so_and_goes_by_the_rule(tmp_path: Path) -> None:
    table = tmp_path / "spoilt.json"
    table.write_text("{")
    environment = {"NETFOLD_ALGORITHM": "auto", "NETFOLD_TUNING": str(table), "NETFOLD_LOG": "info"}
    values(run_ranks(_spoilt_body, str(tmp_path), 3, world=3, environment=environment, joins=False))
    said = [(tmp_path / f"{rank}.err").read_text() for rank in range(3)]
    lines = [line for line in said[0].splitlines() if line.startswith("netfold: ")]
    assert [word in line for word, line in zip((str(table), "auto", "3.9 KiB on 3 ranks"), lines, strict=True)] == [
        True
    ] * 3
    assert "direct (built-in rule" in lines[2]
    assert "netfold:" not in said[1] + said[2]
