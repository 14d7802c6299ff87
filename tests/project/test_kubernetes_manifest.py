"""The manifest for the Spark operator, against the models that the operator's project publishes of
its resources (kubeflow-spark-api). They ignore fields that they do not know: those are what is left
out when a manifest is read and written again."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from kubeflow_spark_api import models

ROOT = Path(__file__).parents[2]
MANIFEST = ROOT / "docker" / "kubernetes" / "flight-delays.yaml"
RESTARTS = {"Always", "OnFailure", "Never"}  # the operator's schema has these; the model, any text


def documents() -> list[dict]:
    return list(yaml.safe_load_all(MANIFEST.read_text()))


def check(application: dict) -> None:
    """Raise if the operator would not take it, or not all of it."""
    read = models.SparkV1beta2SparkApplication.from_dict(application)
    assert read is not None
    assert read.to_dict() == application
    assert application["apiVersion"] == "sparkoperator.k8s.io/v1beta2"
    assert application["kind"] == "SparkApplication"
    assert application["spec"]["restartPolicy"]["type"] in RESTARTS


def test_the_operator_takes_all_of_the_manifest():
    config_map, application = documents()
    check(application)
    assert models.IoK8sApiCoreV1ConfigMap.from_dict(config_map).to_dict() == config_map


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("spec", "restartPolicy", "onFailureRetryIntervall"), 10),
        (("spec", "restartPolicy", "onFailureRetryInterval"), "10s"),
        (("spec", "restartPolicy", "type"), "Sometimes"),
        (("spec", "driver", "memmory"), "1g"),
        (("apiVersion",), "sparkoperator.k8s.io/v1beta1"),
    ],
)
def test_what_it_would_not_take_is_found(path, value):
    _, application = documents()
    inner = application
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = value
    with pytest.raises((AssertionError, ValueError)):
        check(application)


def test_the_driver_takes_its_settings_from_the_config_map():
    config_map, application = documents()
    named = {
        variable["name"]: variable["valueFrom"]["configMapKeyRef"]
        for variable in application["spec"]["driver"]["env"]
    }
    for reference in named.values():
        assert reference["name"] == config_map["metadata"]["name"]
        assert reference["key"] in config_map["data"]
    used = [word for word in application["spec"]["arguments"] if "$(" in word]
    assert used
    assert all(word.partition("$(")[2].rstrip(")") in named for word in used)


def test_the_arguments_are_those_of_the_demos_job():
    """As argparse of job.py takes them."""
    source = (ROOT / "examples" / "flights" / "job.py").read_text()
    _, application = documents()
    for word in application["spec"]["arguments"]:
        assert f'"{word.partition("=")[0]}"' in source
