"""A slow consumer behind a fast source: how far the source may be ahead, and what is made of the samples."""

import pytest

from steelyard.bench.engine import soak
from steelyard.resident import JobError
from steelyard.resident.channel import CREDIT


def test_a_source_is_never_further_ahead_than_the_credit_that_it_has():
    seen = soak.soak(seconds=1.0, batch_rows=1000, batch_seconds=0.005)
    assert seen.batches > 2 * CREDIT
    assert CREDIT <= seen.most_ahead <= CREDIT + soak.IN_HANDS  # it uses its credit, and no more
    assert len(seen.seconds) == len(seen.source_mib) == len(seen.consumer_mib) > 1
    assert min(seen.source_mib + seen.consumer_mib) > 1


def test_a_soak_whose_worker_fails_says_why(monkeypatch):
    def broken(self, split, offset, rows):
        raise RuntimeError("out of rows")

    monkeypatch.setattr(soak.Counted, "read", broken)
    with pytest.raises(JobError, match=r"operator 'source' \(instance 0, worker 0\): RuntimeError: out of rows"):
        soak.soak(seconds=1.0, batch_rows=10)


@pytest.mark.parametrize(
    ("last", "ahead", "missed"), [(105, 18, []), (120, 18, ["rss_growth"]), (100, 19, ["batches_ahead"])]
)
def test_memory_that_grows_or_a_source_that_runs_away_misses_its_target(last, ahead, missed):
    seen = soak.Soaked([0, 1, 2, 3, 4], [100, 100, 100, 100, last], [90, 90, 90, 90, 90], ahead, 500)
    result = soak.result_of(seen, 5.0)
    assert result.metrics["rss_growth"] == pytest.approx(last / 100)
    assert [target.metric for target in result.missed] == missed
