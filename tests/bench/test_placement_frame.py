"""The frame of the placement experiments, and the frozen constants that all of them use."""

from __future__ import annotations

import ast
import hashlib
import inspect
import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from steelyard.bench.claims import HOLDS
from steelyard.bench.placement import calibration, contests, frame, published
from steelyard.bench.placement.cluster import placement_fit, placement_parameters, placement_throughput
from steelyard.bench.placement.frame import (
    Choice,
    Contest,
    contest,
    contestants,
    curve,
    order_claims,
    reduction_claims,
    times_table,
)
from steelyard.bench.placement.published import AVERAGES, CHAPTER3, CHAPTER4, PUBLISHED, reduction
from steelyard.bench.registry import Run
from steelyard.sim.placed import deployed, setups
from steelyard.sim.placed.frozen import FILE, frozen

FROZEN = "20d0da25dc2620c49aca32696dc9516aa8a889ea640b7538497009fd56489dde"
"""Of the file of constants: whoever fits anew changes this too, and runs all experiments again."""
QUICK = Run(quick=True)


def test_the_constants_are_those_that_were_frozen_before_any_other_policy_was_looked_at():
    assert hashlib.sha256(FILE.read_bytes()).hexdigest() == FROZEN


def test_experiments_use_the_frozen_file_and_no_other_constants():
    saved = json.loads(FILE.read_text(encoding="utf-8"))
    costs = frozen().costs
    assert {name: getattr(costs, name) for name in saved["costs"]} == saved["costs"]
    for name in setups():
        assert deployed(name).costs is costs
    assert saved == saved | calibration.constants_of(saved["fitted"]), "the file is what its fit says"
    folder = Path(inspect.getfile(frame)).parent
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


def test_a_contest_of_the_default_alone_has_its_times_beside_the_published_ones():
    found = contest(QUICK, "cq-small", ["default"])
    row = times_table([found]).records()[0]
    assert row["published, ms"] == 1.96
    assert np.mean(found.settled("default")) == pytest.approx(1.98, rel=0.05)
    assert row["threads"] == 20
    assert row["machines used"] == 10
    assert next(iter(contestants())) == "default"


def test_verdicts_are_made_of_all_that_took_part_and_of_nobody_else():
    setup = deployed("cq-small")
    one = Contest("cq-small")
    for who, machines in (("default", 10), ("actor_critic", 5)):
        for seed in range(3):
            choice = Choice(setup.setup.round_robin() % machines)
            one.choices.setdefault(who, []).append(choice)
            one.curves.setdefault(who, []).append(curve(setup, choice.assignment, seed, True))
    claims = reduction_claims([one], contests.PAIRS, "because")
    assert [claim.published for claim in claims] == ["32.1 %"]
    result = contests.result_of([one], QUICK)
    assert {claim.claim for claim in result.claims} >= {"cq-small: actor_critic is faster than default"}
    assert all(
        claim.verdict == HOLDS
        for claim in result.claims
        if "faster than default" in claim.claim and "much" not in claim.claim
    )


def test_orders_are_claimed_once_and_only_where_they_are_published():
    made = curve(deployed("cq-small"), deployed("cq-small").setup.round_robin(), 1, True)
    who = ("default", "model_based", "actor_critic", "extra")
    every = [Contest(name, {one: [made] for one in who}) for name in ("cq-small", "cq-31", "hybrid", "wc-7")]
    orders = [
        (claim.claim, claim.published)
        for claim in order_claims(every, ("actor_critic", "extra", "model_based", "default"), "because")
    ]
    assert orders == [
        ("cq-small: actor_critic is faster than model_based", "actor_critic < model_based < default"),
        ("cq-small: model_based is faster than default", "actor_critic < model_based < default"),
        ("cq-31: model_based is faster than default", "model_based < default"),
        ("hybrid: extra is faster than model_based", "extra < model_based < default"),
        ("hybrid: model_based is faster than default", "extra < model_based < default"),
    ]


def test_a_long_curve_begins_cold_and_settles():
    found = curve(deployed("wc-7"), deployed("wc-7").setup.round_robin(), 1, quick=False)
    assert len(found.minutes) == 120
    thirds = [found.mean[at : at + 6].mean() for at in (0, 12, 30)]
    assert all(one > other for one, other in pairwise(thirds))
    assert found.settled < 0.65 * found.mean[0]


@pytest.mark.parametrize("experiment", [placement_fit, placement_parameters, placement_throughput])
def test_experiments_of_the_cluster_run(experiment, monkeypatch):
    monkeypatch.setattr(frame, "contestants", lambda: {"default": frame.default})  # nobody has to learn for that
    result = experiment(QUICK)
    assert result.tables
    assert result.kind == "simulated"


def test_every_setup_with_published_times_is_in_an_experiment():
    named = {setup for _, setups_, _ in contests.EXPERIMENTS.values() for setup in setups_}
    assert set(PUBLISHED) <= named
