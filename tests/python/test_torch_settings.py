"""One table of settings: options override the environment, and errors about wrong values name the allowed ones."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from netfold.torch.options import Options, load
from netfold.torch.settings import TABLE


def test_defaults() -> None:
    settings = load(None, {})
    assert (settings.switch, settings.format, settings.bfp, settings.timeout_s) == ("", "fp32", (16, 7), None)


def test_options_win_over_the_environment() -> None:
    environment = {"NETFOLD_FORMAT": "fp16", "NETFOLD_BFP": "32,5", "NETFOLD_SWITCH": "10.0.0.5:7171"}
    assert load(None, environment).format == "fp16"
    settings = load(Options(format="bfp", timeout_s=timedelta(seconds=7)), environment)
    assert (settings.format, settings.bfp, settings.switch, settings.timeout_s) == (
        "bfp",
        (32, 5),
        "10.0.0.5:7171",
        7.0,
    )


@pytest.mark.parametrize(
    ("variable", "value", "says"),
    [
        ("NETFOLD_SWITCH", "10.0.0.5", "host:port"),
        ("NETFOLD_SWITCH", "10.0.0.5:99999", "host:port"),
        ("NETFOLD_BIND", "10.0.0.5:x", "host:port"),
        ("NETFOLD_JOB", "morning run", "spaces"),
        ("NETFOLD_FORMAT", "fp8", "fp32, fp16, bf16, bfp"),
        ("NETFOLD_BFP", "16", "16,7"),
        ("NETFOLD_BFP", "12,7", "power of two"),
        ("NETFOLD_BFP", "16,9", "2 to 7"),
        ("NETFOLD_TIMEOUT_S", "0", "positive"),
        ("NETFOLD_TIMEOUT_S", "soon", "positive"),
        ("NETFOLD_TIMEOUT_S", "nan", "positive"),
        ("NETFOLD_CONNECT_TIMEOUT_S", "inf", "positive"),
        ("NETFOLD_CORES", "0,x", "2,3"),
        ("NETFOLD_CORES", "4096", "cores"),
        ("NETFOLD_WINDOW", "-1", "packets"),
        ("NETFOLD_WINDOW", "16385", "up to 16384"),
        ("NETFOLD_WINDOW", "many", "number of packets"),
        ("NETFOLD_ALGORITHM", "tree", "in-network, split, ring, direct"),
        ("NETFOLD_BIGRAPH", "4,8", "4x8"),
        ("NETFOLD_BIGRAPH", "0x8", "4x8"),
        ("NETFOLD_GROUP", "0", "at least 1"),
        ("NETFOLD_ENGINE", "gpu", "caller, thread, agent"),
        ("NETFOLD_AGENT", "@mine", "NETFOLD_ENGINE"),
    ],
)
def test_a_wrong_value_is_named(variable: str, value: str, says: str) -> None:
    with pytest.raises(ValueError, match="netfold") as refusal:
        load(None, {variable: value})
    assert variable in str(refusal.value)
    assert says in str(refusal.value)


def test_algorithms() -> None:
    assert load(None, {}).algorithm_to_take() == "auto"
    switch = {"NETFOLD_SWITCH": "10.0.0.5:7171"}
    assert load(None, switch).algorithm_to_take() == "split"
    assert load(None, {**switch, "NETFOLD_ALGORITHM": "auto"}).order_to_take() == "rank"
    tagged = {"NETFOLD_REQUIRE_AUTH": "yes"}
    assert load(None, {**switch, **tagged}).algorithm_to_take() == "split"
    assert load(None, tagged).algorithm_to_take() == "auto"
    assert load(None, {**tagged, "NETFOLD_ALGORITHM": "ring"}).require_auth
    assert load(None, {**switch, "NETFOLD_ENGINE": "agent"}).algorithm_to_take() == "in-network"
    assert load(None, {"NETFOLD_SWITCH": "h:1", "NETFOLD_ALGORITHM": "ring"}).algorithm_to_take() == "ring"
    settings = load(Options(bigraph=(4, 8)), {"NETFOLD_ALGORITHM": "hdrm", "NETFOLD_GROUP": "4"})
    assert (settings.algorithm, settings.bigraph, settings.group) == ("hdrm", (4, 8), 4)


@pytest.mark.parametrize(
    ("variable", "value"),
    [("NETFOLD_FAULTS", "loss=0.1"), ("NETFOLD_PCAP", "f")],
)
def test_what_only_a_switch_does_is_refused_with_a_host_algorithm(variable: str, value: str) -> None:
    assert load(None, {variable: value}).algorithm_to_take() == "in-network"
    with pytest.raises(ValueError, match=rf"{variable}.*in-network or split, not ring"):
        load(None, {variable: value, "NETFOLD_ALGORITHM": "ring"})


@pytest.mark.parametrize("said", [{"NETFOLD_SWITCH": "10.0.0.5:7171"}, {"NETFOLD_ALGORITHM": "in-network"}])
def test_the_caller_cannot_be_the_engine_of_a_switchs_job(said: dict[str, str]) -> None:
    assert load(None, {"NETFOLD_ENGINE": "caller"}).engine == "caller"
    with pytest.raises(ValueError, match=r"NETFOLD_ENGINE=caller.*NETFOLD_ALGORITHM=ring"):
        load(None, {"NETFOLD_ENGINE": "caller", **said})


def test_engines_without_tags_do_not_take_the_setting() -> None:
    for engine in ("thread", "caller", "agent"):
        assert load(None, {"NETFOLD_ENGINE": engine, "NETFOLD_REQUIRE_AUTH": "yes"}).require_auth
    with pytest.raises(ValueError, match=r"no tags.*NETFOLD_REQUIRE_AUTH or NETFOLD_NIC"):
        load(None, {"NETFOLD_NIC": "simulated", "NETFOLD_REQUIRE_AUTH": "yes"})


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(TypeError, match="fromat"):
        Options(fromat="bfp")


def test_other_backends_options_are_refused() -> None:
    with pytest.raises(TypeError, match="Options"):
        load(object(), {})


def test_every_setting_has_its_variable() -> None:
    assert [setting.variable for setting in TABLE if not setting.variable.startswith("NETFOLD_")] == []
    assert len({setting.variable for setting in TABLE}) == len(TABLE)


def test_a_secret_comes_from_a_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "secret"
    environment = {"NETFOLD_SECRET_FILE": str(file)}
    with pytest.raises(ValueError, match=r"NETFOLD_SECRET_FILE.*cannot be read"):
        load(None, environment)
    file.write_text("sesame\n")
    file.chmod(0o600)
    assert load(None, environment).secret == "sesame"
    assert caplog.text == ""
    file.chmod(0o644)
    assert load(None, environment).secret == "sesame"
    assert f"chmod 600 {file}" in caplog.text
    with pytest.raises(ValueError, match="NETFOLD_SECRET and NETFOLD_SECRET_FILE both give a secret"):
        load(None, environment | {"NETFOLD_SECRET": "other"})
    file.write_text("\n")
    with pytest.raises(ValueError, match="is empty"):
        load(None, environment)
