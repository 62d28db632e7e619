"""what_if: throughput and latency on other machines, from what was measured on these."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard import count
from steelyard.core import OptionError
from steelyard.core.control import InstanceObservation, Observation, OperatorObservation, WorkerObservation
from steelyard.core.topology import Placement
from steelyard.resident import Flow, Memory, Rows
from steelyard.sim import simulate
from steelyard.sim.what_if import DEALT, SPREAD, Ran, what_if

RATE, SECONDS = 1_000.0, {"read": 0.0001, "work": 0.0008, "count": 0.0004, "out": 0.00001}


def dataflow(each=2):
    flow = Flow("lookups", parallelism=each)
    read = flow.source(Rows(pa.table({"word": ["a"]})), name="read").shuffle()
    read.map(lambda batch: batch, name="work").key_by("word").aggregate(n=count(), name="count").sink(
        Memory(), name="out"
    )
    return flow.dataflow()


def seen(made, cpu=1.0, cores=4.0, shares=(0.5, 0.5), latency=None):
    """As if every operator had worked on all rows, at these costs."""
    operators = []
    for one in made.operators:
        own = shares if one.name == "work" else np.full(one.parallelism, 1 / one.parallelism)
        each = [
            InstanceObservation(
                f"{one.name}#{at}",
                processed_per_second=RATE * share,
                sent_per_second=RATE * share,
                busy=RATE * share * SECONDS[one.name],
                cpu=cpu * RATE * share * SECONDS[one.name],
            )
            for at, share in enumerate(own)
        ]
        operators.append(OperatorObservation.of(one.name, each, {}))
    where = Placement.spread(made, 2)
    places = {str(one): at for one, at in where.worker_of.items()}
    workers = tuple(WorkerObservation(at, 0.5, cores) for at in range(2))
    return Observation(10.0, 10.0, tuple(operators), placement=places, workers=workers, latency=latency)


def ran(**how):
    made = dataflow()
    return Ran(made, seen(made, **how))


def test_costs_rates_and_shares_are_those_that_were_measured():
    one = ran()
    assert (one.workers, one.rate) == (2, pytest.approx(RATE))
    assert {name: one.cost(name) for name in SECONDS} == pytest.approx(SECONDS)
    assert one.cores == 2.0, "two workers share the four cores of their machine"


def test_twice_the_machines_do_twice_as_much():
    found = what_if(ran(), [2, 4, 8])
    rates = [found.answer(number, SPREAD).rows_per_second for number in (2, 4, 8)]
    assert rates[0] == pytest.approx(2 / SECONDS["work"])
    assert rates == pytest.approx([rates[0], 2 * rates[0], 4 * rates[0]])
    assert found.answer(4).instances == 16
    assert "work#" in found.answer(4, SPREAD).bottleneck


def test_cores_bound_what_threads_could_do_unless_threads_wait():
    few = what_if(ran(), [2], cores=0.5).answer(2, SPREAD)
    assert few.bottleneck.startswith("cores of machine")
    assert few.rows_per_second == pytest.approx(2 * 0.5 / sum(SECONDS.values()))
    waiting = what_if(ran(cpu=0.1), [2], cores=0.5).answer(2, SPREAD)
    assert waiting.rows_per_second == pytest.approx(2 / SECONDS["work"])


def test_a_hot_instance_stays_hot():
    one = ran(shares=(0.8, 0.2))
    assert what_if(one, [2]).answer(2, SPREAD).rows_per_second == pytest.approx(1 / (0.8 * SECONDS["work"]))
    assert one.shares("work", 4).tolist() == pytest.approx([0.3 + 0.7 / 4, *3 * [0.7 / 4]])
    more = what_if(one, [8], parallelism={"work": 2}).answer(8, SPREAD)
    assert more.rows_per_second == pytest.approx(1 / (0.8 * SECONDS["work"]))


@given(st.floats(0.2, 8.0), st.floats(0.3, 0.7), st.integers(1, 4), st.sampled_from([SPREAD, DEALT]))
@settings(max_examples=8, deadline=None)
def test_throughput_is_nearly_that_of_the_same_tuple_by_tuple(cores, share, machines, name):
    one = ran(shares=(share, 1 - share))
    made = one.on(machines, dict.fromkeys(SECONDS, 2))
    where = Placement.spread(made, machines) if name == SPREAD else Placement.dealt(made, machines, {})
    most, _ = one.capacity(made, where, cores)
    scenario = one.scenario(made, where, cores, rate=10 * most)
    bounded = replace(
        scenario,
        operators=tuple(replace(op, capacity=200) if op.ports else op for op in scenario.operators),
    )
    read = simulate(bounded, 12.0, seed=1).total("read", after=4.0).throughput
    # a thread that is busy all the time waits for a core now and then where others use them, so that less comes out
    assert 0.75 * most < read < 1.05 * most


def test_latency_is_told_where_the_rate_can_be_kept_up_with():
    known = {50.0: 0.050, 95.0: 0.060, 99.0: 0.070}
    found = what_if(ran(latency=known), [2, 4])
    assert found.answer(2, SPREAD).latency[50.0] == pytest.approx(0.050, rel=0.1)
    assert found.answer(4, SPREAD).latency[50.0] <= found.answer(2, SPREAD).latency[50.0] * 1.05
    full = what_if(ran(latency=known), [2, 4], cores=0.5)
    assert full.answer(4, SPREAD).latency[50.0] < 0.02, "what was measured is queues, of which there will be none"
    assert any("as fast as it could" in note for note in full.notes)
    assert what_if(ran(), [2], rate=1e6).answer(2).latency is None
    assert any("No latency was measured" in note for note in what_if(ran(), [2]).notes)


def test_notes_tell_the_rate_that_was_asked_about_and_whose_cores_were_taken():
    asked = what_if(ran(), [2], rate=500.0)
    assert asked.notes[0].startswith("Latencies are of 500 rows/s;")
    shared = "All 2 workers were taken to share one machine's 4 cores: give cores= where each has its own."
    assert shared in asked.notes
    told = what_if(ran(), [2], cores=2.0).notes
    assert told[0].startswith("Latencies are of the present rate;")
    assert not any("share one machine" in note for note in told)


def test_too_few_rows_for_a_latency_are_said(monkeypatch):
    found = what_if(ran(latency={50.0: 0.050, 99.0: 0.070}), [2], rate=0.001)
    assert found.answer(2).latency is None
    assert found.notes[-1] == "'-' also where 0.001 rows/s are too few rows in 20 s to simulate."
    monkeypatch.setattr("tests.sim.test_what_if.RATE", 0.001)
    found = what_if(ran(latency={50.0: 0.050, 99.0: 0.070}), [2], rate=1_000.0)
    assert np.isfinite(found.answer(2).latency[50.0])
    assert any("It read too few rows in 20 s" in note for note in found.notes)


def test_the_answer_is_a_table():
    found = what_if(ran(), [2, 4])
    assert list(found.to_pandas()["machines"]) == [2, 2, 4, 4]
    lines = str(found).splitlines()
    assert lines[0].startswith("lookups on 2 workers: 1,000 rows/s; per row read 100 µs")
    assert len({len(line) for line in lines[1:6]}) == 1, "columns are under each other"
    assert found._repr_html_().count("<tr>") == 5
    assert repr(found) == str(found)


def test_what_was_not_measured_is_said():
    made = dataflow()
    empty = Observation(10.0, 10.0)
    with pytest.raises(OptionError, match="nothing was measured of 'read'"):
        Ran(made, empty)
    looked = seen(made)
    silent = replace(looked, operators=tuple(replace(one, processed_per_second=0.0) for one in looked.operators))
    with pytest.raises(OptionError, match="no row came to 'read'"):
        Ran(made, silent)
    with pytest.raises(OptionError, match="give cores="):
        what_if(Ran(made, replace(looked, workers=())), [2])
    with pytest.raises(OptionError, match="unknown placement 'spred': did you mean 'spread'"):
        what_if(ran(), [2], ["spred"])
    with pytest.raises(OptionError, match="machines must be 1 or more"):
        what_if(ran(), [0])
    with pytest.raises(OptionError, match="nobody asked about 3 machines"):
        what_if(ran(), [2]).answer(3)
