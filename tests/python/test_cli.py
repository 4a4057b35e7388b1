"""The `netfold` program as a whole: the texts of `--help`, and every command line in the documents is valid."""

from __future__ import annotations

import io
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from netfold import cli, native
from netfold.cli import configure, doctor, mpi, nccl, top, up, why
from netfold_lab.bench.switch import tables_of
from netfold_lab.cli import program, rtl_engine
from netfold_lab.cli.help import EXAMPLES, commands
from netfold_lab.plan.report.sweep import show as show_sweep
from repository import files, name_of

PROGRAMS = {"switch": native.SWITCH, "agent": native.AGENT}  # they have their own --help
PARSERS = {
    "doctor": doctor.parser,
    "top": top.parser,
    "configure": configure.parser,
    "up": up.parser,
    "why": why.parser,
    "mpi": mpi.parser,
    "nccl": nccl.parser,
}
SCREEN_COLUMNS = 80
MARGIN_COLUMNS = 4
PAGES = files(".md")


@pytest.mark.parametrize(("status", "told"), [(0, 0), (None, None), (1, 1), (2, 2), (130, 1), (143, 1), ("why", 1)])
def test_exit_statuses_are_0_1_and_2(monkeypatch: pytest.MonkeyPatch, status: object, told: object) -> None:
    def end() -> None:
        raise SystemExit(status)

    monkeypatch.setattr(cli, "run", lambda words: end())
    with pytest.raises(SystemExit) as ended:
        cli.main([])
    assert ended.value.code == told


HEAVY = {"torch", "numpy", "matplotlib", "rich", "typer", "yaml"}
LOADED = "import sys; from netfold.cli import run; exec({!r}); print(len(sys.modules), *sys.modules)"
ANSWER = "try: run({!r})\nexcept SystemExit: pass"


def test_help_loads_few_modules() -> None:
    """Each takes a part of a millisecond from a disk that is warm, and much more from one that is not."""
    bare = subprocess.run(
        [sys.executable, "-c", "import sys; print(len(sys.modules))"], capture_output=True, check=True
    )
    code = LOADED.format(ANSWER.format(["--help"]))
    words = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    count, *names = words.splitlines()[-1].split()
    assert HEAVY & set(names) == set()
    assert int(count) < int(bare.stdout) + 80


@pytest.mark.parametrize("command", [name for name, command in cli.COMMANDS.items() if name not in PROGRAMS])
def test_no_command_loads_torch_or_plots_before_it_works(command: str) -> None:
    words = subprocess.run(
        [sys.executable, "-c", LOADED.format(ANSWER.format([command, "--help"]))],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert {"torch", "matplotlib", "sklearn", "dask"} & set(words.splitlines()[-1].split()) == set()


lab_program = cache(program)


@cache
def words_of_lab_commands() -> list[str]:
    return [words for words, _ in commands(lab_program())]


def test_every_command_of_the_lab_teaches_by_examples() -> None:
    assert set(EXAMPLES) == set(words_of_lab_commands())
    for words, examples in EXAMPLES.items():
        for example in examples:
            assert f"netfold {words.removesuffix(' step')}" in example or words in ("bench", "lab", "rtl"), example


@pytest.mark.parametrize("words", [*PROGRAMS, *PARSERS, *words_of_lab_commands()])
def test_help_fits_a_screen_cuts_no_word_and_has_right_examples(words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(SCREEN_COLUMNS))
    monkeypatch.setenv("NO_COLOR", "1")
    if words in PROGRAMS:
        shown = own_help(words)
    elif words in PARSERS:
        shown = PARSERS[words]().format_help()
    else:
        shown = CliRunner().invoke(lab_program(), [*words.split(), "--help"], catch_exceptions=False).output
    assert "\u2026" not in shown, "something is cut off"
    assert "<bool>" not in shown, "a flag takes no value"
    _, _, examples = shown.partition("Examples:")
    assert examples
    if words not in PROGRAMS:
        assert all(len(line) <= SCREEN_COLUMNS for line in shown.splitlines())
        for example in filter(None, map(str.strip, examples.splitlines())):
            assert len(example) <= SCREEN_COLUMNS - MARGIN_COLUMNS
            check(example)


def test_the_list_of_commands_fits_a_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(SCREEN_COLUMNS))
    shown = cli.help_text().splitlines()
    assert all(len(line) <= SCREEN_COLUMNS for line in shown)
    assert {*PROGRAMS, *PARSERS} == {name for name, command in cli.COMMANDS.items() if not command.extra}


@pytest.mark.parametrize(
    ("words", "says"), [("swich", "did you mean switch?"), ("--verbose", "no such option"), ("x", "netfold --help")]
)
def test_an_unknown_command_is_a_sentence(words: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main([words])
    assert ended.value.code == 2
    assert says in capsys.readouterr().err


SOON_OVER = ("bench codec", "schedule", "plan collective", "plan check-deadlock", "plan export")


@pytest.mark.parametrize("example", [each for words in SOON_OVER for each in EXAMPLES[words]])
def test_an_example_works_as_it_is_written(example: str, tmp_path: Path) -> None:
    """Those that end in seconds. They name files of the repository, and write where they run."""
    (tmp_path / "examples").symlink_to(Path(__file__).parents[2] / "examples")
    program, *words = shlex.split(example)
    path = Path(sys.executable).parent / program
    done = subprocess.run([path, *words], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "\u2026" not in done.stdout, "something is cut off"


def test_version() -> None:
    program = Path(sys.executable).parent / "netfold"
    done = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=60, check=True)
    assert re.fullmatch(r"netfold \d+\.\d+\.\d+\n", done.stdout)


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_every_command_line_in_a_document_is_one(path: Path) -> None:
    for line in command_lines(path.read_text()):
        check(line)


def command_lines(text: str) -> Iterator[str]:
    """Lines that call `netfold`: of blocks (a `\\` joins, three spaces or # begin a remark), and between backticks."""
    inside = re.findall(r"^ *```[^\n]*\n(.*?)^ *```", text, re.S | re.M)
    outside = re.sub(r"^ *```[^\n]*\n.*?^ *```", "", text, flags=re.S | re.M)
    lines = [re.split(r"   |\s#", line)[0] for block in inside for line in re.sub(r"\\\n\s*", "", block).splitlines()]
    lines += [" ".join(quoted.split()) for quoted in re.findall(r"`([^`]+)`", outside)]
    for line in lines:
        for part in re.split(r"; | && ", line):
            if re.match(r"(\w+=\S* )*netfold( |$)", part.strip()):
                yield part.strip()


def check(line: str) -> None:
    """Raises where `line` is not a call of `netfold`. No command is run; `...` and words in capitals are
    placeholders."""
    words = [word for word in shlex.split(line) if word not in ("...", "COMMAND")]
    arguments = ["8" if word == "N" else word for word in words[words.index("netfold") + 1 :]]
    if arguments and arguments[0] in PROGRAMS:
        shown = own_help(arguments[0], "--engine" in arguments)
        strange = [word for word in arguments if word.startswith("--") and word.split("=")[0] not in shown]
        assert strange == [], f"{line}: there is no {strange[0]}"
        return
    if arguments and arguments[0] in PARSERS:
        parser = PARSERS[arguments[0]]()
        if arguments[-1].startswith("--"):  # only the option's name is told
            assert arguments.pop() in parser.format_help(), line
        if len(arguments) > 1:  # a name without arguments names the command
            parser.parse_args(arguments[1:])
        return
    if not arguments or arguments[0] in ("--help", "--version"):
        return
    command = command_of("")
    context = None
    try:
        while arguments:  # a name without arguments names the command
            context = command.make_context(command.name, list(arguments), parent=context)
            left = [*getattr(context, "_protected_args", ()), *context.args]
            if not hasattr(command, "commands") or not left:
                return
            _, command, arguments = command.resolve_command(context, left)
    except typer.Exit:  # --help and --version
        return
    except Exception as error:
        if arguments[-1].startswith("--") and "requires an argument" in str(error):  # only the option's name is told
            return
        raise AssertionError(f"{line}: {error}") from error


@cache
def command_of(words: str) -> Any:
    """The command that these words name, as typer creates it."""
    command: Any = typer.main.get_command(lab_program())
    for word in words.split():
        command = command.commands[word]
    return command


def options_of(words: str) -> list[Any]:
    return [param for param in command_of(words).params if param.param_type_name == "option"]


def refusal(words: str, option: str, value: str) -> str:
    """The message of a command that must reject this value when it reads it."""
    needed = ["x" for param in command_of(words).params if param.param_type_name == "argument"]
    with pytest.raises(typer.BadParameter) as refused:
        command_of(words).make_context(words, [option, value, *needed])
    return refused.value.format_message()


NUMBERS = [
    (words, option.opts[0])
    for words in words_of_lab_commands()
    for option in options_of(words)
    if re.search(r"\b(int|float)\b", str(option.type_descriptor.annotation))
]
INPUTS = {("simulate", "--goal"), ("plan step", "--measured"), ("plan collective", "--measured")}
FILES = [
    (words, option.opts[0])
    for words in words_of_lab_commands()
    for option in options_of(words)
    if "Path" in str(option.type_descriptor.annotation) and (words, option.opts[0]) not in INPUTS
]


@pytest.mark.parametrize(("words", "option"), NUMBERS)
def test_numbers_that_are_none_are_refused(words: str, option: str) -> None:
    for value in ("many", "1e300", "9" * 30, "nan"):
        assert option in refusal(words, option, value)


@pytest.mark.parametrize(("words", "option"), FILES)
def test_a_file_that_cannot_be_written_is_refused_at_once(words: str, option: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    said = refusal(words, option, str(tmp_path / "file" / "within.png"))
    assert "cannot be written" in said and option in said


def test_every_command_tells_in_json() -> None:
    groups = {words for words in words_of_lab_commands() if hasattr(command_of(words), "commands")} - {"simulate"}
    programs = {"lab exec", "rtl nic"}  # which say what they say themselves
    leaves = set(words_of_lab_commands()) - programs - groups
    assert {
        words for words in leaves if "--json" not in [name for one in options_of(words) for name in one.opts]
    } == set()


@pytest.mark.parametrize("words", sorted(PARSERS.keys() - {"mpi", "nccl", "up"}))
def test_runtime_commands_tell_in_json_too(words: str) -> None:
    job = ["job"] if words == "why" else []
    assert PARSERS[words]().parse_args([*job, "--json"]).as_json


@cache
def own_help(words: str, of_hardware: bool = False) -> str:
    if of_hardware:
        options = [name for option in typer.main.get_command(rtl_engine.app).params for name in option.opts]
        return " ".join(options)
    program = native.find(PROGRAMS[words])
    assert program is not None, "`make build` builds it"
    return subprocess.run([program, "--help"], capture_output=True, text=True, timeout=60, check=True).stdout


def shown(print_to: Any) -> str:
    console = Console(width=SCREEN_COLUMNS, record=True, file=io.StringIO())
    print_to(console)
    return console.export_text()


def test_tables_fit_a_screen() -> None:
    core = {"cycles_per_frame": 196.3, "instructions_per_frame": 610.0, "wrong_sums": 0, "results_checked": 123_456_789}
    core |= {"latency_us": {"p50": 10.7, "p99": 113.7}}
    run = {"workers": 8, "format": "fp32", "size_bytes": 1522, "folded_gbit_s_per_core": 161.0, "cores": [core]}
    run |= {"frames_s_per_core": 1e7, "ns_per_frame": 75.6, "lossless_gbit_s": 100.0, "right": True}
    told = shown(lambda console: console.print(*tables_of([run] * 7)))
    assert "\u2026" not in told and told.count("161.0") == 7

    varied = {"fabric": {"kind": "leaf-spine", "leaves": 8, "spines": 4}, "rate_gbit_s": 200, "prices.switch": 22000}
    design = {"key": "a", "varied": varied, "price": 900_800.0, "currency": "USD", "algorithm": "double-binary-tree"}
    design |= {"format": "bfp", "time_s_median": 0.05807, "exposed_s": 0.00162, "samples_s": 8817.0}
    told = shown(lambda console: show_sweep(console, [design]))
    assert "\u2026" not in told and "leaf-spine 8x4" in told
