"""A job goes on from its snapshot with another policy, and with its aggregates in another order."""

import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard import count, max, mean, sum, variance
from steelyard.core import OptionError
from steelyard.core.policies import identity
from steelyard.partition.registry import edge_policy
from steelyard.resident import Flow, Memory, ParquetFiles, Settings, run
from steelyard.resident.routing import ByPolicy
from steelyard.workloads.workload import TIMESTAMP

POLICIES = ["hash", "dalton", "dalton?epsilon=0.3", "prompt", "auto", "pk2"]
AGGREGATES = {
    "n": count(),
    "total": sum("value"),
    "top": max("value"),
    "mean": mean("value"),
    "spread": variance("value"),
}
SCHEMA = pa.schema({"key": pa.string(), "value": pa.int64(), "at": TIMESTAMP})
HOWS = {
    "windows": {"window": "10 seconds", "slide": "5 seconds", "open_end": True},
    "changed windows": {"window": "10 seconds", "emit": "epochs"},
    "changed keys": {"emit": "epochs"},
    "sessions": {"session": "2 seconds", "open_end": True},
    "keys": {"emit": "end"},
}


def written(path, seed, first):
    """Rows in the order of their times, which begin at a second."""
    draw = random.Random(seed)
    times = sorted(first * 1_000_000 + draw.randrange(30_000_000) for _ in range(300))
    rows = [(draw.choice("aaaaabcdefgh"), draw.randrange(9), at) for at in times]
    columns = [pa.array(one, kind.type) for one, kind in zip(zip(*rows, strict=True), SCHEMA, strict=True)]
    pq.write_table(pa.table(columns, schema=SCHEMA), path)
    return str(path)


def counted(paths, how, policy, names):
    flow = Flow("counts", parallelism=2)
    read = flow.source(ParquetFiles(paths), time="at", name="read", batch_rows=20)
    keyed = read.key_by("key", grouping=policy)
    kept = keyed.aggregate({name: AGGREGATES[name] for name in names}, name="count", **HOWS[how])
    kept.sink(Memory(), name="out", parallelism=1)
    return flow.dataflow()


def given_by(results):
    """Rows as dictionaries; of what changed, the newest."""
    rows = [row for result in results for row in result.table("out").to_pylist()]
    newest = {}
    for row in rows:
        rounded = {name: round(one, 9) if isinstance(one, float) else one for name, one in row.items()}
        newest[row["key"], row.get("window_start")] = rounded
    return newest, len(rows)


@pytest.mark.parametrize("how", HOWS)
@settings(deadline=None, max_examples=6)
@given(data=st.data())
def test_a_job_goes_on_with_another_policy_and_another_order_of_aggregates(tmp_path_factory, how, data):
    folder = tmp_path_factory.mktemp("changed")
    paths = [written(folder / f"{number}.parquet", data.draw(st.integers(0, 99)), 30 * number) for number in range(3)]
    names = [one for one in AGGREGATES if how != "keys" or one != "spread"]
    kept = Settings(store=str(folder / "store"))
    policies = POLICIES[1:] if how == "sessions" else POLICIES
    found = []
    for number in range(3):
        order = data.draw(st.permutations(names))
        dataflow = counted(paths[: number + 1], how, data.draw(st.sampled_from(policies)), order)
        found.append(run(dataflow, settings=kept))
        assert found[-1].table("out").column_names[-len(order) :] == order
    got, rows = given_by(found)
    expected, _ = given_by([run(counted(paths, how, "hash", names))])
    assert got == expected
    assert rows == len(expected) or how not in ("windows", "sessions"), "a window is given once"


def test_what_a_router_has_learnt_is_for_its_own_policy():
    def distributor(named):
        policy = edge_policy(named)
        return ByPolicy(2, ("key",), policy.router(2), policy=identity(policy))

    batch = pa.record_batch({"key": ["a"] * 50 + ["b"] * 3})
    before = distributor("dalton?epsilon=0.3")
    for _ in range(5):
        list(before.split(batch))
    fresh = {named: distributor(named).state() for named in ("dalton?epsilon=0.3", "dalton", "pk2")}
    for named, state in fresh.items():
        again = distributor(named)
        again.restore(before.state())
        assert again.state() == (before.state() if named == "dalton?epsilon=0.3" else state)


def test_sessions_know_where_a_policy_splits_keys_and_go_on_with_policies_alone(tmp_path):
    paths = [written(tmp_path / "0.parquet", 1, 0)]
    kept = Settings(store=str(tmp_path / "store"))
    run(counted(paths, "sessions", "hash", ["n"]), settings=kept)
    with pytest.raises(OptionError, match="operator 'count partials' is new"):
        run(counted(paths, "sessions", "dalton", ["n"]), settings=kept)


def test_aggregates_that_were_not_there_are_refused(tmp_path):
    paths = [written(tmp_path / "0.parquet", 1, 0)]
    kept = Settings(store=str(tmp_path / "store"))
    run(counted(paths, "windows", "hash", ["n", "total"]), settings=kept)
    for names in (["n"], ["n", "top"], ["n", "total", "top"]):
        with pytest.raises(OptionError, match="of another dataflow: operator 'count' had columns"):
            run(counted(paths, "windows", "hash", names), settings=kept)
    assert run(counted(paths, "windows", "dalton", ["total", "n"]), settings=kept).outcome.epochs == 2
