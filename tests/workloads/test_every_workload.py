"""What must hold for every workload that is registered."""

import pickle

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.workloads import WORKLOADS, Arrivals, Workload, parse_rate, workload

CASES = {
    **{name: workload(name, seed=11) for name in WORKLOADS},
    "zipf with drift by rows": workload("zipf", keys=50, drift_every=7, seed=3),
    "zipf with drift by seconds": workload("zipf", keys=50, drift_every=0.01, drift_unit="seconds", seed=3),
    "skewed lineitem": workload("lineitem", exponent=1.2, scale=0.01, seed=3),
    "short-lived jobs": workload("cluster", jobs=5, job_rows=10, seed=3),
    **{f"nexmark's {stream}": workload("nexmark", stream=stream, seed=3) for stream in ("persons", "auctions", "bids")},
    "skewed nexmark": workload("nexmark", stream="bids", skew=0.3, seed=3),
    "links of few nodes": workload("links", nodes=5, seed=3),
}
ARRIVALS = Arrivals(parse_rate("sinusoid:1000,0.9,3"), 10**15, jitter=2, late_share=0.1, event_delay=60)


@pytest.fixture(params=CASES, name="made")
def _made(request: pytest.FixtureRequest) -> Workload:
    return CASES[request.param]


def rows(made: Workload, first: int, count: int) -> pa.RecordBatch:
    return made.rows(first, count, ARRIVALS.times(first, count))


@settings(deadline=None, max_examples=30)
@given(
    first=st.integers(0, 10**10),
    counts=st.lists(st.integers(0, 70), min_size=1, max_size=5),
    case=st.sampled_from(sorted(CASES)),
)
def test_rows_do_not_depend_on_how_they_are_cut(first: int, counts: list[int], case: str) -> None:
    made = CASES[case]
    parts, at = [], first
    for count in counts:
        parts.append(rows(made, at, count))
        at += count
    whole = rows(made, first, at - first)
    assert pa.Table.from_batches(parts).combine_chunks().equals(pa.Table.from_batches([whole]))


def test_every_row_alone_is_the_row_among_others(made: Workload) -> None:
    whole = rows(made, 1000, 40)
    for i in range(40):
        assert rows(made, 1000 + i, 1).equals(whole.slice(i, 1))


def test_the_batch_has_the_schema_and_no_nulls(made: Workload) -> None:
    batch = rows(made, 0, 500)
    batch.validate(full=True)
    assert batch.schema.equals(made.schema)
    kinds = batch.column("kind").to_pylist() if "kind" in batch.schema.names else []
    own = {f"{kind}s": kinds.count(kind) for kind in dict.fromkeys(kinds)}  # columns of other kinds are null
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        of = [rows for stream, rows in own.items() if name in workload("nexmark", stream=stream).schema.names]
        assert len(column) - column.null_count == (sum(of) if of else 500)


def test_the_event_time_is_what_was_given(made: Workload) -> None:
    times = ARRIVALS.times(5, 100)
    column = made.rows(5, 100, times).column(made.event_time)
    assert column.type == pa.timestamp("us", tz="UTC")
    assert column.cast(pa.int64()).to_pylist() == times.tolist()


def test_no_rows_are_an_empty_batch(made: Workload) -> None:
    assert rows(made, 3, 0).num_rows == 0


def test_one_seed_gives_the_same_rows_and_another_gives_others(made: Workload) -> None:
    parameters = {**vars(made)}
    again = workload(made.name, **parameters)
    other = workload(made.name, **{**parameters, "seed": made.seed + 1})
    assert rows(again, 0, 200).equals(rows(made, 0, 200))
    assert not rows(other, 0, 200).equals(rows(made, 0, 200))


def test_a_workload_is_small_when_pickled_and_makes_the_same_rows(made: Workload) -> None:
    before = rows(made, 0, 50)
    sent = pickle.dumps(made)
    assert len(sent) < 1000
    assert rows(pickle.loads(sent), 0, 50).equals(before)


def test_a_wrong_range_is_refused(made: Workload) -> None:
    with pytest.raises(ValueError, match="numbered from 0"):
        made.rows(-1, 1, np.zeros(1, dtype=np.int64))
    with pytest.raises(ValueError, match="one event time a row"):
        made.rows(0, 2, np.zeros(1, dtype=np.int64))
