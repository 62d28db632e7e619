"""Logs and checkpoints over time: what is made of the samples, and that a store is looked at while it is written."""

import pytest

from steelyard.bench.checkmate import soak


@pytest.mark.parametrize("protocol", ["uncoordinated", "unaligned"])
def test_a_store_is_looked_at_while_its_job_runs(tmp_path, protocol):
    seen = soak.soak(protocol, 3.0, tmp_path / "store")
    assert seen.epochs > 2
    assert len(seen.seconds) == len(seen.files) == len(seen.workers) > 3
    assert max(seen.files) > 0
    assert max(seen.commits) > 0
    assert (max(seen.logs) > 0) == (protocol == "uncoordinated")  # only there do senders keep what they sent
    assert min(seen.workers) > 1


@pytest.mark.parametrize(
    ("logs", "memory", "missed"),
    [(105, 100, []), (120, 100, ["log_growth"]), (100, 120, ["worker_growth"])],
)
def test_logs_or_workers_that_grow_miss_their_target(logs, memory, missed):
    steady = [100.0] * 5
    grown = soak.Soaked(steady, [*steady[1:], logs], steady, steady, [*steady[1:], memory], 9)
    without = soak.Soaked(steady, [0.0] * 5, steady, steady, steady, 9)
    result = soak.result_of({"uncoordinated": grown, "unaligned": without}, 5.0)
    assert result.metrics["log_growth"] == pytest.approx(max(1.0, logs / 100))
    assert "unaligned_log_growth" not in result.metrics
    assert [target.metric for target in result.missed] == missed
