"""Running jobs deal rows out by weights, and give what they would have given."""

from collections import Counter
from functools import partial

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.core import Action, ActionRefusedError, OptionError
from steelyard.core.dataflow import SHUFFLE, Edge, Grouping, Route
from steelyard.core.topology import Instance, Placement
from steelyard.core.weights import lowest
from steelyard.grouping import RoundRobin
from steelyard.resident import Flow, Memory, Rows, Settings
from steelyard.resident.jobs import Job, Results
from steelyard.resident.launchers import ThreadLauncher
from steelyard.resident.routing import InTurn, distributor
from tests.resident.test_rescaling import (
    KINDS,
    TABLES,
    Script,
    crash,
    drawn_tables,
    ended,
    flow_of,
    has_moved,
    right,
    timed,
)

EDGE = ("read", "kept")
IN_TURN = [SHUFFLE, Grouping(Route.COST, (), RoundRobin())]
pairs = st.tuples(st.integers(0, 5), st.integers(0, 5)).filter(any)
triples = st.tuples(*[st.integers(0, 5)] * 3).filter(any)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(IN_TURN), st.lists(st.tuples(triples, st.lists(st.integers(0, 30), max_size=5)), max_size=4))
def test_rows_are_dealt_out_exactly_in_batches_of_any_size(grouping, parts):
    """And the same by the engine's own shuffle and by the grouping that the simulator has too."""
    sends = distributor(Edge("from", "to", grouping), Instance("from", 1), 3, (1, 2))
    plain = RoundRobin().scheduler(3, 1, 2)
    for weights, sizes in parts:
        sends.weigh(weights)
        plain.weigh(weights)
        for size in sizes:
            counts = Counter(dict.fromkeys(range(3), 0))
            for receiver, part in sends.split(pa.record_batch({"n": list(range(size))})):
                counts[receiver] += part.num_rows
            expected = Counter(plain.choose([0] * size).to.tolist())
            assert counts == Counter({number: expected[number] for number in range(3)})


def job_of(dataflow, store=None, **how):
    return Job(dataflow, Placement.spread(dataflow, 2), ThreadLauncher(), Settings(store, heartbeat=0.05, **how))


drawn_acts = st.lists(
    st.tuples(st.integers(1, 8), pairs, st.sampled_from(["", "", "dies", "rescales", "moves"])), min_size=1, max_size=3
)


@settings(max_examples=15, deadline=None)
@given(st.sampled_from(sorted(KINDS)), drawn_tables, drawn_acts, st.integers(1, 4))
def test_drawn_weights_at_drawn_moments_leave_every_answer_as_it_is(tmp_path_factory, kind, drawn, acts, batch_rows):
    tables, script = tuple(map(timed, drawn)), Script()
    dataflow = flow_of(kind, tables, script, batch_rows=batch_rows)
    job = job_of(dataflow, str(tmp_path_factory.mktemp("weighed")), interval=0.05, restarts=20)
    due = 0
    for more, weights, then in acts:
        due += more
        script.then(due, partial(change, job, weights, then))
        if then == "dies":
            script.then(due, crash)
    outcome = ended(job)
    assert right(kind, Results(dataflow, outcome).table("out"), tables)


def change(job, weights, then):
    if len(job.observe().weights[EDGE]) == job._next[0].by_name["kept"].parallelism == 2:
        job.set_weights({EDGE: weights})
    if then == "rescales":
        job.rescale({"made": 3})
    if then == "moves":
        job.move(Placement.spread(job._next[0], 3))


ROWS = pa.table({"n": list(range(600))})


def dealing():
    flow = Flow("dealt")
    read = flow.source(Rows(ROWS), batch_rows=7, name="read")
    read.shuffle().map(lambda batch: batch, ROWS.schema, parallelism=3, name="kept").sink(Memory(), name="out")
    return flow.dataflow()


def came(outcome, instances=3):
    return [outcome.metrics[f"kept#{number}"]["rows_in"] for number in range(instances)]


@settings(max_examples=8, deadline=None)
@given(triples)
def test_instances_get_their_shares_from_the_start_to_within_a_cycle(weights):
    dataflow = dealing()
    outcome = ended(job_of(dataflow, weights={EDGE: weights}))
    whole = len(ROWS) // sum(lowest(weights))
    for count, weight in zip(came(outcome), lowest(weights), strict=True):
        assert whole * weight <= count <= (whole + 1) * weight
    assert sorted(Results(dataflow, outcome).table("out")["n"].to_pylist()) == list(range(600))


@pytest.mark.parametrize("way", ["", "dies", "moves"])
def test_weights_hold_while_rows_come_and_over_a_new_generation(tmp_path, monkeypatch, way):
    """Reading waits until both senders know: then the first instance gets nothing any more."""
    given_to, weigh, script = [], InTurn.weigh, Script()

    def noted(sender, weights):
        weigh(sender, weights)
        given_to.append(weights)

    monkeypatch.setattr(InTurn, "weigh", noted)
    dataflow = flow_of("in the end", TABLES, script, batch_rows=1)
    job = job_of(dataflow, str(tmp_path), restarts=3)
    seen = []

    def note():
        seen.append(job.observe().weights[EDGE])

    all_know = lambda: given_to.count((0, 1)) == 2  # noqa: E731
    script.then(6, partial(job.apply, Action(weights={EDGE: (0, 1)})), all_know)
    if way == "dies":
        script.then(9, crash)
    if way == "moves":
        moved = Placement.spread(dataflow, 3)
        script.then(9, partial(job.move, moved), partial(has_moved, job, 1))
    script.then(12, note)
    outcome = ended(job)
    assert seen == [(0, 1)]
    assert (outcome.restarts, outcome.moves) == (int(way == "dies"), int(way == "moves"))
    first, second = came(outcome, 2)
    assert second > 20
    assert first == 0 if way else 0 < first <= 6, "workers that begin have the weights from their first row on"
    assert right("in the end", Results(dataflow, outcome).table("out"), TABLES)


@pytest.mark.parametrize("in_place", [True, False])
def test_where_numbers_do_not_fit_any_more_they_begin_anew_as_equal_and_that_is_said(tmp_path, in_place):
    script = Script()
    dataflow = flow_of("in the end", TABLES, script, batch_rows=1)
    job = job_of(dataflow, str(tmp_path), weights={EDGE: (1, 0)})
    seen = []
    script.then(6, partial(job.rescale, {"kept": 3}, in_place=in_place), lambda: bool(job.outcome.rescalings))
    script.then(9, lambda: seen.append(job.observe().weights[EDGE]))
    outcome = ended(job)
    assert seen == [(1, 1, 1)]
    assert outcome.rescalings[0].unweighed == ("read -> kept",)
    assert "all weights are 1 again of read -> kept" in str(outcome.rescalings[0])
    assert outcome.metrics["kept#2"]["rows_in"] > 0
    assert right("in the end", Results(dataflow, outcome).table("out"), TABLES)


@pytest.mark.parametrize("in_place", [True, False])
def test_new_numbers_come_with_weights_of_their_own(tmp_path, in_place):
    script = Script()
    dataflow = flow_of("in the end", TABLES, script, batch_rows=1)
    job = job_of(dataflow, str(tmp_path))
    both = Action({"kept": 3} if in_place else {"kept": 3, "read": 1}, weights={EDGE: (1, 0, 0)})
    script.then(6, partial(job.apply, both), lambda: bool(job.outcome.rescalings))
    seen = []
    script.then(9, lambda: seen.append(job.observe()))
    outcome = ended(job)
    assert seen[0].weights[EDGE] == (1, 0, 0)
    assert both.changes(seen[0]).is_nothing
    assert [one.in_place for one in outcome.rescalings] == [in_place]
    assert not outcome.rescalings[0].unweighed
    assert right("in the end", Results(dataflow, outcome).table("out"), TABLES)


def test_what_has_no_weights_or_does_not_fit_is_refused_and_changes_nothing():
    dataflow = flow_of("in the end", TABLES, Script())
    job = job_of(dataflow)
    for weights, words in [
        ({("kept", "made"): (1, 2)}, r"edge kept -> made has no weights, since 'hash\(key\)' chooses"),
        ({EDGE: (1, 2, 3)}, r"edge read -> kept leads to 2 instances, got 3 weights"),
        ({("read", "made"): (1, 2)}, "no edge read -> made; those with weights: read -> kept, made -> out"),
    ]:
        with pytest.raises(ActionRefusedError, match=words):
            job.apply(Action({"made": 3}, weights=weights))
    with pytest.raises(OptionError, match="got 3 weights"):
        job_of(dataflow, weights={EDGE: (1, 2, 3)})
    assert job.observe().weights == {EDGE: (1, 1), ("made", "out"): (1,)}
    assert (ended(job).rescales, job.outcome.moves) == (0, 0)


def test_a_grouping_that_learns_has_no_weights():
    flow = Flow("learning")
    read = flow.source(Rows(ROWS), batch_rows=7, name="read")
    read.shuffle("osg?cost_of=n").map(lambda batch: batch, ROWS.schema, parallelism=3, name="kept").sink(Memory())
    job = job_of(flow.dataflow())
    with pytest.raises(ActionRefusedError, match="edge read -> kept has no weights"):
        job.apply(Action(weights={EDGE: (1, 2, 3)}))
