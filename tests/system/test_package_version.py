"""A source folder that stands on Python's path and was not installed has no metadata: all that keeps versions works."""

import importlib.metadata
import json
import tomllib
from pathlib import Path

import commands
import pytest
import tinyrun

from tunescope import __version__
from tunescope.lab.worlds.base_table import base
from tunescope.lab.worlds.manifest import write_manifest
from tunescope.lab.worlds.models import Shape
from tunescope.lab.worlds.recall import Recall
from tunescope.lab.worlds.text_models import TextModel
from tunescope.lab.worlds.world_cache import Pretraining
from tunescope.system import machine
from tunescope.system.package_version import package_version
from tunescope.trial.train.settings import Settings

PROJECT = Path(__file__).parents[2] / "pyproject.toml"


@pytest.fixture
def not_installed(monkeypatch):
    plain = importlib.metadata.Distribution.from_name.__func__

    def from_name(cls, name):
        if name == "tunescope":
            raise importlib.metadata.PackageNotFoundError(name)
        return plain(cls, name)

    monkeypatch.setattr(importlib.metadata.Distribution, "from_name", classmethod(from_name))


def test_the_version_is_that_of_the_project(not_installed):
    assert package_version("tunescope") == __version__ == tomllib.loads(PROJECT.read_text())["project"]["version"]
    assert package_version("torch") == importlib.metadata.version("torch") != "unknown"
    assert package_version("no-such-package") == "unknown"
    assert machine.versions()["tunescope"] == __version__


@pytest.mark.usefixtures("not_installed")
def test_a_model_folder_and_a_comparison_are_made_without_metadata(monkeypatch, capsys, tmp_path):
    write_manifest(tmp_path, {})
    assert json.loads((tmp_path / "MANIFEST.json").read_text())["versions"]["tunescope"] == __version__
    model, data = tinyrun.write(tmp_path)
    words = [model, data["train"], "--arms", "zero-shot", "lora", "--steps", "2", "--seeds", "1", "--trials", "1"]
    code, _, err = commands.call(monkeypatch, capsys, "compare", *words, "--workers", "1", "--out", tmp_path / "run")
    assert code == 0, err
    assert json.loads((tmp_path / "run" / "results.json").read_text())["versions"]["tunescope"] == __version__


@pytest.mark.usefixtures("not_installed")
def test_pretrained_worlds_have_names_without_metadata():
    training = Settings(steps=2)
    world = Pretraining(Recall(), Shape(1, 1, 16), training, 1e-2, seed=0)
    made = (world, TextModel("decoder", "digest", training), base(0))
    assert {len(one.identity) for one in made} == {16}
