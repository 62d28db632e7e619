"""Experiments of learnt placements: what is kept is found again, and verdicts follow from the figures alone."""

from __future__ import annotations

import numpy as np
import pytest

from steelyard.bench import Run
from steelyard.bench.placement import contest
from steelyard.bench.placement.contest import Outcome, known, outcome, policy_of
from steelyard.bench.placement.learners import learnt
from steelyard.bench.placement.studies import grown, smoothed
from steelyard.bench.placement.verdicts import claims_of, reductions, result_of, times_table
from steelyard.placement import placement
from steelyard.sim.placed import deployed


def outcomes(default: float, model: float, dqn: float, ours: float) -> dict[tuple[str, str], list[Outcome]]:
    names = {"default": default, "model_based": model, "dqn": dqn, "actor_critic": ours}
    return {("cq-large", name): [Outcome(ms * by, ms, 1, 2, 3) for by in (1.0, 1.01)] for name, ms in names.items()}


def test_published_times_hold_all_claims_about_them():
    found = outcomes(2.64, 2.12, 2.45, 1.72)
    assert {one.verdict for one in claims_of(found, "cq-large", "actor_critic")} == {"holds"}
    assert reductions(found, "cq-large", "actor_critic", "default") == pytest.approx([34.8, 34.8], abs=0.1)
    result = result_of(found, "actor_critic", ["cq-large"], Run(quick=True))
    assert result.metrics["ac_vs_default"] == pytest.approx(34.85, abs=0.1)
    assert result.metrics["ac_vs_model"] == pytest.approx(18.9, abs=0.1)


def test_a_reduction_out_of_its_band_and_a_wrong_order_are_told():
    found = claims_of(outcomes(2.64, 1.5, 2.45, 1.9), "cq-large", "actor_critic")
    told = {one.claim: one for one in found}
    assert told["cq-large: actor_critic is faster than model_based"].verdict == "does not hold"
    assert told["cq-large: actor_critic is faster than dqn"].verdict == "holds"
    assert all(one.reason for one in found)
    assert times_table(outcomes(2, 2, 2, 2)).rows[0][:3] == ("cq-large", "default", 2.64)


def test_what_a_policy_came_to_is_kept_and_another_seed_is_not_it(tmp_path, monkeypatch):
    run = Run(quick=True, out=tmp_path)
    first = outcome(run, "cq-small", "default", 1)
    monkeypatch.setattr(contest, "watched", lambda *given: Outcome(9.0, 9.0, 0, 1, 1))
    assert outcome(run, "cq-small", "default", 1) == first
    assert outcome(run, "cq-small", "default", 2).stable == 9.0
    assert outcome(Run(out=tmp_path), "cq-small", "default", 1).stable == 9.0
    assert first.machines == 10
    assert 1.5 < first.stable < 2.5


def test_a_model_that_was_trained_before_has_the_seconds_of_its_training_and_other_options_train_anew(
    tmp_path, monkeypatch
):
    run, few = Run(quick=True, out=tmp_path), "schedules=2&settle=0&tuples=20"

    def took(name):
        policy = placement(f"{name}?{few}")
        seconds = contest.trained(policy, "cq-small", 1, run)
        assert policy.learnt.is_trained
        return seconds, len(list(tmp_path.rglob("model-*.npz")))

    first = took("model_based")
    assert first[0] > 0
    assert took("local_search") == first
    few += "&kernel=linear"
    assert took("model_based")[1] == 2
    monkeypatch.setattr(contest, "sources", lambda: "of another version")
    assert took("model_based")[1] == 3


def test_quick_runs_learn_less_and_absent_policies_are_left_out():
    assert policy_of("dqn?gamma=0", Run(quick=True)).samples == 200
    assert policy_of("dqn?gamma=0", Run()).samples == 10_000
    assert known(["default", "no_such_policy?a=1", "guided?numbers=true"]) == ["default", "guided?numbers=true"]


def test_a_contestant_gives_a_placement_that_can_be_deployed():
    setup = deployed("cq-small")
    choice = learnt("guided", setup, 1, quick=True)
    setup.setup.checked(choice.assignment)
    assert choice.samples == 40


def test_a_step_in_the_load_is_seen_as_a_spike_and_settles():
    minutes, times = grown(placement("default"), "cq-small", 1)
    before, after = (times[(minutes > low) & (minutes <= low + 5)].mean() for low in (15, 35))
    assert len(minutes) == 240
    assert after >= 0.98 * before
    assert np.isfinite(times).all()


def test_smoothing_keeps_a_constant_and_calms_noise():
    noise = np.random.default_rng(1).normal(size=600)
    assert smoothed(np.ones(600)) == pytest.approx(np.ones(600))
    assert smoothed(noise).std() < 0.3 * noise.std()
    assert smoothed(np.ones(2)).tolist() == [1, 1]
