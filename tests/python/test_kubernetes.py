"""The manifests in packaging/kubernetes fit the schemas of Kubernetes and of Kubeflow Trainer, and say what the switch
and the workers understand."""

from __future__ import annotations

import copy
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from kubeflow_trainer_api import models
from kubernetes_validate import ValidationError

from netfold import native
from repository import ROOT

MANIFESTS = sorted((ROOT / "packaging" / "kubernetes").glob("*.yaml"))
OLDEST, NEWEST = "1.31", "1.37"  # of Kubernetes
SETTINGS = (ROOT / "docs" / "reference" / "settings.md").read_text()
OF_TRAINER = {
    "TrainingRuntime": models.TrainerV1alpha1TrainingRuntime,
    "TrainJob": models.TrainerV1alpha1TrainJob,
}
RESOURCES = [
    pytest.param(resource, id=f"{path.stem}-{resource['kind']}")
    for path in MANIFESTS
    for resource in yaml.safe_load_all(path.read_text())
]


def check(resource: dict[str, Any]) -> None:
    """Raises ValueError or ValidationError where the resource does not fit its schema, or has a key that it lacks."""
    if resource["apiVersion"].startswith("trainer.kubeflow.org/"):
        parsed = OF_TRAINER[resource["kind"]].from_dict(copy.deepcopy(resource)).to_dict()
        if parsed != resource:
            raise ValueError(f"the schema leaves {parsed}")
    else:
        for version in (OLDEST, NEWEST):
            kubernetes_validate.validate(resource, version, strict=True)


def containers(resource: object) -> list[dict[str, Any]]:
    """All containers within a resource."""
    if isinstance(resource, list):
        return [found for one in resource for found in containers(one)]
    if not isinstance(resource, dict):
        return []
    within = [found for one in resource.values() for found in containers(one)]
    return [*resource.get("containers", []), *within]


@pytest.mark.parametrize("resource", RESOURCES)
def test_it_fits_its_schema(resource: dict[str, Any]) -> None:
    check(resource)
    wrong = copy.deepcopy(resource)
    for one in [wrong, *containers(wrong)]:
        one["imagge"] = "x"
    with pytest.raises((ValueError, ValidationError)):
        check(wrong)


def test_each_kind_is_there() -> None:
    kinds = {resource.values[0]["kind"] for resource in RESOURCES}
    assert kinds == {"ConfigMap", "Service", "Deployment", "Job", "TrainingRuntime", "TrainJob"}


@pytest.mark.parametrize("resource", RESOURCES)
def test_workers_have_settings_that_exist(resource: dict[str, Any]) -> None:
    for container in containers(resource):
        for variable in container.get("env", []):
            assert f"`{variable['name']}`" in SETTINGS


def test_the_switch_understands_its_configuration(tmp_path: Path) -> None:
    [config] = [resource.values[0] for resource in RESOURCES if resource.values[0]["kind"] == "ConfigMap"]
    secret = tmp_path / "secret"
    secret.write_text("sesame\n")
    secret.chmod(0o600)
    text = config["data"]["switch.toml"].replace("/etc/netfold-secret/secret", str(secret))
    (tmp_path / "switch.toml").write_text(text)
    program = native.find(native.SWITCH)
    assert program is not None, "run `make build`"
    # The last option is wrong, so that the program ends once it has read all others.
    words = [program, "--config", tmp_path / "switch.toml", "--threads", "3"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 2 and done.stderr.startswith("netfold switch: --threads 3"), done.stderr
