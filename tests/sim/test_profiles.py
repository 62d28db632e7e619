"""Profiles: every constant has a source, files keep them, and this machine can be measured."""

from __future__ import annotations

import json

import pytest

from steelyard.bench.simulator.calibration import calibrate
from steelyard.cli import main
from steelyard.core import OptionError
from steelyard.sim import (
    PROFILES,
    BatchCosts,
    Exactly,
    Figure,
    Operator,
    Profile,
    Scenario,
    Source,
    profile,
    read_profile,
    simulate,
)


@pytest.mark.parametrize("name", PROFILES)
def test_a_built_in_profile_makes_a_cluster_that_runs(name):
    found = profile(name)
    scenario = Scenario.chain(
        Source("log", 100), Operator("map", Exactly(0.001)), machines=found.machines(2), network=found.network()
    )
    assert simulate(scenario, 2.0).total("map").processed > 190
    assert len(found.machines()) == found.figures["machines"].value if "machines" in found.figures else 1


def test_a_profile_is_the_same_after_it_was_written_and_read(tmp_path):
    path = tmp_path / "deep" / "profile.json"
    profile("storm-blades").write(path)
    assert read_profile(path) == profile("storm-blades")


def test_a_constant_without_a_source_is_refused():
    with pytest.raises(OptionError, match="needs a value of 0 or more and a source"):
        Profile("mine", "", {"cores": Figure(4, " ")})
    with pytest.raises(OptionError, match="did you mean 'cores'"):
        Profile("mine", "", {"core": Figure(4, "a guess")})


@pytest.mark.parametrize(
    "text", ["", "[]", '{"name": "x", "about": ""}', '{"name": "x", "about": "", "figures": {"cores": 4}}']
)
def test_a_file_that_is_no_profile_is_told_with_the_remedy(text, tmp_path):
    path = tmp_path / "profile.json"
    path.write_text(text)
    with pytest.raises(OptionError, match="steelyard sim calibrate"):
        read_profile(path)


def test_this_machine_can_be_measured():
    found = calibrate(repetitions=1)
    assert found.batch_costs() != BatchCosts()
    assert 0 < found.figures["latency"].value < 0.1
    assert found.figures["bytes_per_second"].value > 1e6
    assert found.machines()[0].cores >= 1
    assert "driver" not in found.figures


def test_the_command_lists_profiles_and_writes_one(tmp_path, capsys, monkeypatch):
    assert main(["sim", "profiles"]) == 0
    assert "storm-blades" in capsys.readouterr().out
    monkeypatch.setattr("steelyard.bench.simulator.calibration.REPETITIONS", 1)
    path = tmp_path / "profile.json"
    assert main(["sim", "calibrate", "--no-spark", "--out", str(path)]) == 0
    assert json.loads(path.read_text())["name"] == "this-machine"
    assert main(["sim", "calibrat"]) == 2


@pytest.mark.spark
def test_spark_is_measured_with_a_session(spark, monkeypatch):
    from steelyard.bench.simulator import calibration

    monkeypatch.setattr(calibration, "JOBS", 2)
    found = calibration._scheduling(spark)
    assert set(found) == {"driver", "driver_task"}
    assert 0 <= found["driver_task"].value < 1
    assert found["driver"].value > 0
