"""What is reachable in the end is what a search over the links and sources that are left finds."""

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.applications.reachability import _Join, paths, reachability, reached
from steelyard.resident import Flow, Generated, Memory, Rows, run
from steelyard.workloads import Links
from tests.resident.test_answers import placed, widths


def left(changes):
    """The links and sources that are never deleted, by id."""
    gone = {row["id"] for row in changes if row["change"].startswith("delete")}
    made = [row for row in changes if row["change"].startswith("new") and row["id"] not in gone]
    return [[row for row in made if row["change"] == f"new {kind}"] for kind in ("link", "source")]


def simple_paths(changes):
    """The nodes of every path without a circle from every source, by the ids that it is made of."""
    links, sources = left(changes)
    found = {}
    waiting = [((row["start"],), (row["id"],)) for row in sources]
    while waiting:
        nodes, ids = waiting.pop()
        if len(ids) > 1:
            found[ids] = nodes
        for link in links:
            if link["start"] == nodes[-1] and link["end"] not in nodes:
                waiting.append(((*nodes, link["end"]), (*ids, link["id"])))
    return found


def searched(changes):
    """(source, node) for every node that a search from a source comes to."""
    links, sources = left(changes)
    found = set()
    for origin in {row["start"] for row in sources}:
        seen, waiting = {origin}, [origin]
        while waiting:
            at = waiting.pop()
            more = {link["end"] for link in links if link["start"] == at} - seen
            seen |= more
            waiting += more
        found |= {(origin, node) for node in seen - {origin}}
    return found


@settings(max_examples=30)
@given(st.integers(4, 9), st.integers(0, 10_000), st.integers(0, 45), st.booleans(), st.data())
def test_what_is_left_is_what_a_search_over_what_is_left_finds(nodes, seed, rows, shuffled, data):
    workload = Links(nodes=nodes, seed=seed)
    made = workload.rows(0, rows, np.zeros(rows, np.int64))
    table = pa.Table.from_batches([made])
    if shuffled:  # also deletions before what they delete
        table = table.take(pa.array(np.random.default_rng(seed).permutation(rows)))
    reader = data.draw(st.sampled_from([Rows(table), Generated(workload, rows=rows, block_rows=5)]))
    flow = Flow("reachability")
    changes = flow.source(reader, batch_rows=data.draw(st.sampled_from([1, 7, 100])), parallelism=data.draw(widths))
    reachability(changes, parallelism=data.draw(widths)).sink(Memory(), name="out")
    dataflow = flow.dataflow()
    got = run(dataflow, placement=placed(data.draw, dataflow)).table("out")
    assert paths(got) == simple_paths(made.to_pylist())
    assert reached(got) == searched(made.to_pylist())


@settings(max_examples=30)
@given(st.integers(0, 1000), st.integers(0, 30))
def test_a_join_that_goes_on_from_a_snapshot_gives_what_the_other_does(seed, at):
    """One instance, its pairs led back by hand."""
    changes = Links(nodes=4, seed=seed).rows(0, 30, np.zeros(30, np.int64)).to_pylist()

    def fed(join, rows):
        given = []
        for row in rows:
            verb, what = row["change"].split()
            if verb == "delete":
                waiting = [*join._delete(row["id"])]
            elif what == "link":
                waiting = [*join._link(row["id"], row["start"], row["end"])]
            else:
                waiting = [*join._path((row["start"],), (row["id"],))]
            while waiting:
                pair = waiting.pop()
                given.append(str(pair))
                added, _, _, nodes, ids, link, end = pair
                if added and end not in nodes:
                    waiting += join._path((*nodes, end), (*ids, link))
        return sorted(given)

    first, again = _Join(), _Join()
    fed(first, changes[:at])
    again.restore(first.snapshot(1))
    assert fed(again, changes[at:]) == fed(first, changes[at:])
