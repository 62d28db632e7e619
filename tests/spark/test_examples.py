"""Every example runs as it is."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark
EXAMPLES = Path(__file__).parents[2] / "examples"
NEEDS_MORE = {"kafka_fares.py"}  # a broker: tests/kafka runs it


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.py") if path.name not in NEEDS_MORE))
def test_an_example_runs_and_prints_something(spark, name, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(type(spark), "stop", lambda self: None)
    monkeypatch.setattr("sys.argv", [name])
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    assert len(capsys.readouterr().out) > 100
