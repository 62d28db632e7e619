"""The cluster of the placement experiments: its frozen constants, and how placements are judged on it."""

from __future__ import annotations

import ast
import hashlib
import inspect
import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from steelyard.bench.placement import calibration, contest, contests, published
from steelyard.bench.placement.cluster import placement_fit, placement_parameters, placement_throughput
from steelyard.bench.placement.contest import Outcome, contestants, curve, outcome
from steelyard.bench.placement.published import AVERAGES, CHAPTER3, CHAPTER4, PUBLISHED, reduction
from steelyard.bench.registry import Run
from steelyard.sim.placed import deployed, setups
from steelyard.sim.placed.frozen import FILE, frozen

FROZEN = "20d0da25dc2620c49aca32696dc9516aa8a889ea640b7538497009fd56489dde"
"""Of the file of constants: whoever fits anew changes this too, and runs all experiments again."""


def test_the_constants_are_those_that_were_frozen_before_any_other_policy_was_looked_at():
    assert hashlib.sha256(FILE.read_bytes()).hexdigest() == FROZEN


def test_experiments_use_the_frozen_file_and_no_other_constants():
    saved = json.loads(FILE.read_text(encoding="utf-8"))
    costs = frozen().costs
    assert {name: getattr(costs, name) for name in saved["costs"]} == saved["costs"]
    for name in setups():
        assert deployed(name).costs is costs
    assert saved == saved | calibration.constants_of(saved["fitted"]), "the file is what its fit says"
    folder = Path(inspect.getfile(contest)).parent
    for module in folder.glob("*.py"):
        if module.stem == "calibration":
            continue
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
            called = getattr(getattr(node, "func", None), "id", "")
            assert called not in {"Constants", "ClusterCosts"}, f"{module.name} has costs of its own"
            assert called != "deployed" or len(node.args) == 1, f"{module.name} gives constants of its own"


def test_the_fit_is_as_good_as_the_file_says():
    saved = json.loads(FILE.read_text(encoding="utf-8"))["fit"]
    assert saved.keys() == calibration.targets().keys()
    assert max(abs(one["error"]) for one in saved.values()) < 0.08
    for name in ("cq-small", "wc-30", "lsp-33"):
        found, _ = calibration.warm_run(frozen(), name, 20.0, seed=9)
        assert found == pytest.approx(saved[name]["simulated"], rel=0.03)


def test_nothing_but_the_default_is_fitted_to():
    tree = ast.parse(inspect.getsource(calibration))
    named = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert not named & {"MODEL", "DQN", "ACTOR", "EXTRA", "REDUCTION", "AVERAGES", "STEP"}


def test_reductions_that_are_printed_follow_from_the_times_that_are():
    for ours, theirs, setups_, name in (
        ("actor_critic", "default", CHAPTER3, "ac_vs_default"),
        ("actor_critic", "model_based", CHAPTER3, "ac_vs_model"),
        ("extra", "default", CHAPTER4, "extra_vs_default"),
        ("extra", "model_based", CHAPTER4, "extra_vs_model"),
    ):
        assert np.mean([reduction(one, ours, theirs) for one in setups_]) == pytest.approx(AVERAGES[name], abs=0.3)
    assert set(PUBLISHED) <= set(setups())
    assert set(published.REDUCTION) <= set(setups())


def test_the_default_has_the_times_that_were_fitted_and_begins_slower(tmp_path):
    found = outcome(Run(quick=True, out=tmp_path), "cq-small", "default", 1)
    assert found.stable == pytest.approx(1.98, rel=0.05)
    assert found.start > 1.5 * found.stable
    assert (found.threads, found.machines, found.moved, found.samples) == (20, 10, 0, 0)
    assert found.throughput[0] == pytest.approx(found.arrivals[0], rel=0.01)


def test_a_long_curve_begins_cold_and_settles(tmp_path):
    dealt = deployed("wc-7").setup.round_robin()
    minutes, times = curve(Run(out=tmp_path), "wc-7", Outcome(1, 1, 0, 1, 1, assignment=tuple(dealt.tolist())), 1)
    assert len(minutes) == 120
    thirds = [times[at : at + 6].mean() for at in (0, 12, 30)]
    assert all(one > other for one, other in pairwise(thirds))
    assert times[60:].mean() < 0.65 * times[0]


def test_everybody_of_a_chapter_takes_part_and_nobody_else():
    assert contestants("cq-31").keys() == {"default", "model_based", "local_search", "guided"}
    for setup in CHAPTER3:
        assert contestants(setup).keys() == PUBLISHED[setup].times.keys() | {"local_search", "guided"}
    for setup in CHAPTER4:
        assert contestants(setup).keys() == PUBLISHED[setup].times.keys() | {"local_search", "guided"}
        assert contestants(setup)["guided"] == "guided?numbers=true"


@pytest.mark.parametrize("experiment", [placement_fit, placement_parameters, placement_throughput])
def test_experiments_of_the_cluster_run(experiment, monkeypatch, tmp_path):
    monkeypatch.setattr(contest, "contestants", lambda setup: {"default": "default"})  # nobody has to learn for that
    result = experiment(Run(quick=True, out=tmp_path))
    assert result.tables
    assert result.kind == "simulated"


def test_every_setup_with_published_times_is_in_an_experiment():
    named = {setup for _, setups_, _ in contests.EXPERIMENTS.values() for setup in setups_}
    assert set(PUBLISHED) <= named
