"""Experiments of learnt placements: what is kept is found again, and verdicts follow from the figures alone."""

from __future__ import annotations

import numpy as np
import pytest

from steelyard.bench import Run
from steelyard.bench.placement import contest, speed
from steelyard.bench.placement.contest import Outcome, code_of, kept, outcome, policy_of, samples_of, trained
from steelyard.bench.placement.studies import grown, smoothed
from steelyard.bench.placement.verdicts import (
    average_result,
    claims_of,
    dqn_claims,
    growth_claims,
    order_claims,
    reductions,
    result_of,
    times_table,
)
from steelyard.placement import placement
from steelyard.placement.actor_critic import ActorCritic

QUICK = Run(quick=True)


def outcomes(setup="cq-large", **times: float) -> dict[tuple[str, str], list[Outcome]]:
    return {(setup, name): [Outcome(ms * by, ms, 1, 2, 3) for by in (1.0, 1.01)] for name, ms in times.items()}


def published(default=2.64, model_based=2.12, dqn=2.45, actor_critic=1.72):
    who = {"default": default, "model_based": model_based, "dqn": dqn, "actor_critic": actor_critic}
    return outcomes(**who, local_search=2.0, guided=1.7)


def verdicts(claims):
    return {one.claim: one.verdict for one in claims}


def test_published_times_hold_all_claims_about_them():
    found = published()
    assert {one.verdict for one in claims_of(found)} == {"holds"}
    assert reductions(found, "cq-large", "actor_critic", "default") == pytest.approx([34.8, 34.8], abs=0.1)
    result = average_result(found, "actor_critic", QUICK)
    assert result.metrics["ac_vs_default"] == pytest.approx(34.85, abs=0.1)
    assert result.metrics["ac_vs_model"] == pytest.approx(18.9, abs=0.1)
    assert {(one.metric, one.value) for one in result.published if one.metric} == {
        ("ac_vs_default", 33.5),
        ("ac_vs_model", 14.0),
    }
    assert not result.missed
    assert result_of(found, QUICK).metrics["cq_large_dqn_ms"] == pytest.approx(2.45 * 1.005, rel=1e-3)


def test_an_average_that_is_far_from_the_published_one_is_missed_and_printed():
    result = average_result(published(actor_critic=2.2), "actor_critic", QUICK)
    assert [one.metric for one in result.missed] == ["ac_vs_default", "ac_vs_model"]
    assert {one.verdict for one in result.claims if "mean over" in one.claim} == {"does not hold"}


def test_a_reduction_out_of_its_band_and_a_wrong_order_are_told():
    found = claims_of(published(model_based=1.5, actor_critic=1.9))
    told = verdicts(found)
    assert told["cq-large: actor_critic is faster than model_based (percent)"] == "does not hold"
    assert told["cq-large: actor_critic is faster than dqn (percent)"] == "holds"
    assert told["cq-large: percent that model_based is below default"] == "does not hold"
    assert all(one.reason for one in found)


def test_orders_are_claimed_once_and_only_where_they_are_published():
    times = dict.fromkeys(("default", "model_based", "actor_critic", "extra"), 1.0)
    every = {}
    for name in ("cq-small", "cq-31", "hybrid", "wc-7"):
        every |= outcomes(name, **times)
    assert [(claim.claim, claim.published) for claim in order_claims(every)] == [
        ("cq-small: actor_critic is faster than model_based (percent)", "actor_critic < model_based < default"),
        ("cq-small: model_based is faster than default (percent)", "actor_critic < model_based < default"),
        ("cq-31: model_based is faster than default (percent)", "model_based < default"),
        ("hybrid: extra is faster than model_based (percent)", "extra < model_based < default"),
        ("hybrid: model_based is faster than default (percent)", "extra < model_based < default"),
    ]


def test_dqn_is_near_the_model_where_there_are_few_threads_and_slower_where_there_are_many():
    found = {**outcomes("cq-small", model_based=1.5, dqn=1.55), **outcomes("cq-large", model_based=2.0, dqn=2.4)}
    assert set(verdicts(dqn_claims(found)).values()) == {"holds"}
    found = {**outcomes("cq-small", model_based=1.5, dqn=1.8), **outcomes("cq-large", model_based=2.0, dqn=1.9)}
    assert set(verdicts(dqn_claims(found)).values()) == {"does not hold"}


@pytest.mark.parametrize(("large", "verdict"), [(0.5, "holds"), (0.8, "does not hold")])
def test_what_is_learnt_gains_more_where_there_are_more_threads(large, verdict):
    names = {"default": 1.0, "model_based": 1.0}
    found = outcomes("3x-cq-small", **names, extra=0.7) | outcomes("3x-cq-large", **names, extra=large)
    assert [one.verdict for one in growth_claims(found)] == [verdict] * 2
    assert growth_claims(found)[0].published == "+6.8 (34.2 and 41.0 %)"
    assert not growth_claims(outcomes("3x-cq-large", **names, extra=large))


def test_published_starts_stand_beside_ours():
    row = times_table(outcomes("cq-small", default=2.0, actor_critic=1.5)).records()[1]
    assert (row["published, ms"], row["published at the start, ms"]) == (1.33, 2.94)
    assert row["ours at the start, ms"] == 1.5
    assert row["published below the default, %"] == 32.1
    assert row["ours below the default, %"].startswith("25 [")


def test_what_a_policy_came_to_is_kept_and_another_seed_is_not_it(tmp_path, monkeypatch):
    run = Run(quick=True, out=tmp_path)
    first = outcome(run, "cq-small", "default", 1)
    monkeypatch.setattr(contest, "_outcome", lambda *given: {"stable": 9.0, "start": 9, "moved": 0} | few)
    few = {"machines": 1, "threads": 1}
    assert outcome(run, "cq-small", "default", 1) == first
    assert outcome(run, "cq-small", "default", 2).stable == 9.0
    assert outcome(Run(out=tmp_path), "cq-small", "default", 1).stable == 9.0
    assert outcome(run, "cq-small", "guided?numbers=true", 1).stable == 9.0
    assert not list(tmp_path.rglob("new-*"))


def test_what_is_kept_depends_on_code_and_not_on_how_it_is_described(tmp_path, monkeypatch):
    run = Run(quick=True, out=tmp_path)
    assert [kept(run, "x", (1,), lambda: 1), kept(run, "x", (1,), lambda: 2), kept(run, "x", (2,), lambda: 3)] == [
        1, 1, 3,
    ]  # fmt: skip
    monkeypatch.setattr(contest, "sources", lambda: "of another version")
    assert kept(run, "x", (1,), lambda: 4) == 4
    one = 'x = 1\n"""What it is."""\ndef f(y):\n    """Adds."""\n    return x + y  # here\n'
    assert code_of(one) == code_of("x = 1\n\ndef f(y):\n    return x + y\n")
    assert code_of(one) != code_of("x = 1\n\ndef f(y):\n    return x - y\n")


def test_all_code_that_outcomes_depend_on_is_in_their_key():
    used = {one for pattern in contest.CODE for one in contest._PACKAGE.glob(pattern)}
    assert all(list(contest._PACKAGE.glob(pattern)) for pattern in contest.CODE)
    for name in ("learning/networks.py", "kernels/nearest.py", "core/placing.py", "core/measured.py"):
        assert contest._PACKAGE / name in used


def test_who_predicts_shares_one_model_and_guided_counts_its_samples(tmp_path):
    run, models = Run(quick=True, out=tmp_path), lambda: len(list(tmp_path.rglob("model-*.npz")))
    model, seconds = trained(run, "cq-small", "model_based", 1)
    assert seconds > 0
    assert model.learnt.is_trained
    search, again = trained(run, "cq-small", "local_search", 1)
    assert (again, models()) == (seconds, 1)
    assert samples_of(model) == samples_of(search) == 8
    guided, more = trained(run, "cq-small", "guided", 1)
    assert more > seconds
    assert models() == 1
    assert samples_of(guided) == 40 + 8
    assert samples_of(placement("default")) == 0
    trained(run, "cq-small", "model_based?kernel=linear", 1)
    assert models() == 2


def test_quick_runs_learn_less():
    assert policy_of("dqn?gamma=0", Run(quick=True)).samples == 200
    assert policy_of("dqn?gamma=0", Run()).samples == 10_000
    assert policy_of("model_based", Run()).schedules == 40


def test_speed_judges_formulas_nearest_placements_and_a_training(monkeypatch):
    monkeypatch.setattr(speed, "training", lambda policy, seed: 130.0 if isinstance(policy, ActorCritic) else 0.0)
    monkeypatch.setattr(speed, "QUICK_PLACEMENTS", 2_000)
    result = speed.speed(QUICK)
    assert {one.metric for one in result.targets} == {
        "placements_per_second",
        "nearest_10_ms",
        "nearest_counts_10_ms",
        "training_s",
    }
    assert result.metrics["training_s"] == 130.0
    assert result.metrics["ms_per_step"] == 1000.0
    assert "training_s" in {one.metric for one in result.missed}


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
