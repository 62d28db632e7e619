"""Experiments of placement by predicted times: what they compare, and what their figures are of."""

import numpy as np
import pytest

from steelyard.bench import Run
from steelyard.bench.claims import FAILS, HOLDS
from steelyard.bench.placement import accuracy, live, predictor, what_if
from steelyard.bench.placement.contest import placed, trained
from steelyard.bench.placement.published import DEFAULT, MODEL, SEARCH
from steelyard.bench.result import WrongAnswerError
from steelyard.placement.draws import drawn
from steelyard.placement.features import features, per_tuple, weights
from steelyard.sim.placed import FastCluster, deployed


def studied(default, chosen, predicted=1.0):
    parts = {"query": 1e-3, "spout -> query": 2e-3, "query -> file": 1e-4, "overall": 3e-3}
    judged = accuracy.Judged({of: predicted * seconds for of, seconds in parts.items()}, parts)
    better = accuracy.Judged(parts, {**parts, "query": 1.1e-3, "spout -> query": 1e-3})
    return accuracy.Studied((judged, better), {DEFAULT: default, MODEL: chosen, SEARCH: chosen})


def test_accuracy_and_reduction_are_those_of_the_document():
    found = {"cq-31": [studied(2.0, 1.5, 0.8), studied(2.0, 1.6, 0.8)]}
    result = accuracy.result_of(found)
    assert result.metrics["model_reduction_percent"] == pytest.approx(22.5)
    assert result.metrics["accuracy_percent"] == pytest.approx(90.0)
    assert found["cq-31"][0].accuracy("spout -> query") == pytest.approx((80 + 0) / 2)
    verdicts = {claim.claim: claim.verdict for claim in result.claims}
    assert verdicts["cq-31: accuracy of the whole time, percent"] == HOLDS
    assert verdicts["cq-31: transfers take less, all streams together, percent"] == HOLDS
    assert verdicts["cq-31: processing takes slightly longer, all components together, percent"] == HOLDS
    ranges = result.table("accuracy of components and streams, from").records()
    told = [(row["published, %"], row["ours, %"], row["ours: of"]) for row in ranges]
    assert told == [(88.3, 40.0, "spout -> query"), (93.7, 90.0, "query -> file")]
    worse = accuracy.result_of({"cq-31": [studied(2.0, 2.2), studied(2.0, 2.21)]})
    assert [claim.verdict for claim in worse.claims][2] == FAILS


def test_models_are_compared_seed_by_seed():
    def one(rbf, own, pooled):
        kernels = {"rbf": rbf, "linear": 70.0, "poly": 60.0, "sigmoid": 10.0}
        searched = {who: predictor.Searched(1.0, settled, 0.5) for who, settled in ((MODEL, 2.0), (SEARCH, 1.8))}
        ranks = {"own": own, predictor.POOLED: pooled}
        return predictor.Compared(kernels, ranks, {"own": 90.0, predictor.POOLED: 70.0}, searched)

    result = predictor.result_of({"lsp-33": [one(90.0, 0.9, 0.5), one(88.0, 0.9, 0.49)]})
    assert [claim.verdict for claim in result.claims] == [HOLDS, HOLDS]
    assert result.metrics["local_search_vs_model_based"] == pytest.approx(0.9)
    assert result.metrics["rbf_accuracy_percent"] == pytest.approx(89.0)


def test_what_if_is_judged_by_rows_per_second():
    found = {case: [what_if.Compared(100.0, 210.0, 200.0)] for case in what_if.CASES}
    result = what_if.result_of(found, 1_000)
    assert result.metrics["what_if_error"] == pytest.approx(0.05)
    assert not result.missed
    found[what_if.EVEN] = [what_if.Compared(100.0, 300.0, 200.0)]
    assert [target.metric for target in what_if.result_of(found, 1_000).missed] == ["what_if_error"]


@pytest.fixture(scope="module", name="ran")
def _ran():
    setup = live.setup_of()
    return setup, {
        name: live.run_once(setup, assignment, 3.0)
        for name, assignment in ((live.ROUND_ROBIN, setup.round_robin()), (live.MODEL, 0 * setup.round_robin()))
    }


def test_records_of_resident_workers_are_those_of_every_row(ran):
    setup, runs = ran
    seen = live.watched(setup, runs[live.ROUND_ROBIN], 3)
    tuples = per_tuple(seen.records)
    assert len(tuples) == 2 * runs[live.ROUND_ROBIN].rows.num_rows
    assert tuples[["transfer_seconds", "processing_seconds"]].min(axis=None) >= 0
    by_root = tuples.groupby("root_id")[["transfer_seconds", "processing_seconds"]].sum().sum(axis=1)
    whole = seen.records.ack.to_pandas().set_index("root_id")
    assert np.allclose(by_root, (whole["t_ack"] - whole["t_emit"]).loc[by_root.index], atol=1e-6)
    found = features(seen.records, live.WINDOW)
    assert set(found.processing["component"]) == {"clean", "score"}
    assert set(found.transfer["edge"]) == {"rows -> clean", "clean -> score"}
    assert np.allclose(weights(seen.records).pair.groupby("edge")["weight"].sum(), 1.0)


def test_placements_on_workers_are_compared_where_answers_are_equal(ran):
    setup, runs = ran
    chosen = {live.ROUND_ROBIN: setup.round_robin(), live.MODEL: 0 * setup.round_robin()}
    chosen[live.LOCAL] = chosen[live.MODEL]
    each = {name: [one] for name, one in runs.items()} | {live.LOCAL: [runs[live.MODEL]]}
    result = live.result_of(setup, chosen, each, dict.fromkeys(chosen, 0.001))
    times = {name: float(one.times.mean()) for name, one in runs.items()}
    expected = times[live.MODEL] / times[live.ROUND_ROBIN]
    assert result.metrics["model_vs_round_robin_live"] == pytest.approx(expected)
    other = live.Ran(runs[live.MODEL].placement, runs[live.MODEL].rows.slice(1), 0.0)
    with pytest.raises(WrongAnswerError):
        live.result_of(setup, chosen, each | {live.MODEL: [other]}, dict.fromkeys(chosen, 0.001))


def test_what_is_learnt_of_simulated_tuples_finds_a_placement_that_is_better(tmp_path):
    setup = deployed("cq-small")
    policy, _ = trained(Run(quick=True, out=tmp_path), "cq-small", MODEL, 3)
    chosen, _ = placed(policy, setup, 3)
    fast = FastCluster(setup, seed=3)
    before, after = fast.times(np.stack([setup.setup.round_robin(), chosen]))[:, 0]
    assert after < 0.85 * before
    some = drawn(setup.setup, 30, seed=99)
    model = policy.learnt.prediction(setup.setup)
    assert predictor.spearman(model.times(some)[:, 0], fast.times(some)[:, 0]) > 0.8
