"""Graphs of operators: what is refused and why, what is counted, and what a picture shows."""

import xml.etree.ElementTree as ET

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import steelyard as sy
from steelyard import count, sum
from steelyard.core import OptionError
from steelyard.core.dataflow import FORWARD, Dataflow, Edge, Grouping, Operator, Route
from steelyard.core.topology import DataflowError, Instance, Placement
from steelyard.resident import Flow, Memory, Rows, Step, mermaid, svg
from steelyard.resident.aggregates import FUNCTIONS
from steelyard.resident.stateless import Filter
from steelyard.workloads.workload import TIMESTAMP

LINKS = pa.table({"start": [1, 2], "end": [2, 3], "at": pa.array([0, 1], TIMESTAMP)})


def links(**options):
    flow = Flow("links")
    return flow, flow.source(Rows(LINKS), time="at", name="links", **options)


def refused(flow):
    with pytest.raises(DataflowError) as error:
        flow.dataflow()
    return str(error.value)


def test_columns_follow_from_operator_to_operator():
    flow, rows = links()
    named = rows.select("at", node="start").key_by("node").aggregate(n=count(), window="1 second", name="out degree")
    named.sink(Memory())
    assert flow.dataflow().schemas["out degree"].names == ["node", "window_start", "window_end", "n"]


def test_an_unknown_column_is_named_with_the_operator_and_the_nearest_one():
    flow, rows = links()
    rows.select("strat", name="pick").sink(Memory())
    assert refused(flow).startswith("operator 'pick': unknown column 'strat': did you mean 'start'?")


def test_an_unknown_key_is_named_with_its_edge():
    flow, rows = links()
    rows.key_by("nod").filter(pc.field("end") > 1, name="kept").sink(Memory())
    assert "edge links -> kept: unknown column 'nod'" in refused(flow)


def test_a_condition_is_tried_against_the_columns():
    flow, rows = links()
    rows.filter(pc.field("weight") > 1).sink(Memory())
    assert "does not fit columns start, end, at" in refused(flow)


def test_an_aggregate_that_does_not_fit_its_column_is_refused():
    flow = Flow()
    flow.source(Rows(pa.table({"k": [1], "text": ["x"]}))).key_by("k").aggregate(s=sum("text")).sink(Memory())
    assert "does not fit its column's type" in refused(flow)


def test_an_operator_whose_rows_nobody_takes_is_unconnected():
    flow, rows = links()
    rows.filter(pc.field("end") > 1, name="kept")
    assert "operator 'kept' is unconnected: nothing takes its rows; add a sink" in refused(flow)


def test_an_operator_that_nothing_leads_to_is_unconnected():
    _, rows = links()
    lost = Operator("lost", Filter(lambda batch: []))
    sink = Operator("sink", Memory())
    with pytest.raises(DataflowError, match="operator 'lost' is unconnected: no edge leads to it"):
        Dataflow("d", (rows.operators[0], lost, sink), (Edge("links", "sink"), Edge("lost", "sink")))


def test_a_dataflow_without_a_source_is_refused():
    assert "has no source" in refused(Flow())


def looped(feedback):
    flow, rows = links()
    kept = rows.filter(pc.field("end") > 1, name="kept")
    more = kept.filter(pc.field("end") > 2, name="more")
    more.sink(Memory())
    flow._edges.append(Edge("more", "kept", FORWARD, feedback=feedback))
    return flow


def test_a_cycle_needs_a_feedback_edge():
    assert "cycle without a feedback edge: kept -> more -> kept" in refused(looped(False))
    assert looped(True).dataflow().cyclic


def test_a_feedback_edge_that_closes_no_cycle_is_refused():
    flow, rows = links()
    kept = rows.filter(pc.field("end") > 1, name="kept")
    rows.feedback(kept)
    kept.sink(Memory())
    assert "feedback edge links -> kept closes no cycle" in refused(flow)


def test_a_window_behind_a_cycle_is_refused():
    flow, rows = links()
    kept = rows.filter(pc.field("end") > 1, name="kept")
    kept.feedback(kept)
    timed = kept.map(lambda batch: batch, pa.schema({"at": pa.timestamp("us", tz="UTC")}), name="timed")
    timed.key_by("at").aggregate(n=count(), window="1 second", name="n").sink(Memory())
    assert "operator 'n' has windows and stands in or behind the cycle" in refused(flow)


def test_a_feedback_edge_brings_the_columns_that_its_input_has():
    flow, rows = links()
    kept = rows.filter(pc.field("end") > 1, name="kept")
    picked = kept.select("start", name="picked")
    picked.feedback(kept)
    picked.sink(Memory())
    assert "edge picked -> kept: columns (start int64) meet others" in refused(flow)


def test_a_forward_edge_keeps_the_parallelism():
    flow, rows = links(parallelism=2)
    rows.forward().filter(pc.field("end") > 1, name="kept", parallelism=3).sink(Memory())
    assert "'links' has parallelism 2 and 'kept' has 3" in refused(flow)


def test_rows_of_a_key_must_meet_where_an_operator_needs_it():
    flow, rows = links()
    other = flow.source(Rows(LINKS), name="others")
    joined = rows.join(other, on="start", name="pairs", parallelism=2)
    joined.sink(Memory())
    flow._edges[0] = Edge("links", "pairs", Grouping(Route.SHUFFLE))
    assert "'pairs' needs the rows of a key (start) in one instance" in refused(flow)


def test_one_side_of_a_join_may_be_broadcast_and_not_both():
    for both in (False, True):
        flow, rows = links()
        other = flow.source(Rows(LINKS), name="others").broadcast()
        pairs = (rows.broadcast() if both else rows.shuffle()).join(other, on="start", parallelism=2)
        pairs.sink(Memory())
        if both:
            assert "all inputs are broadcast" in refused(flow)
        else:
            assert len(flow.dataflow().edges) == 3


def test_a_policy_that_may_split_keys_gets_a_second_stage_that_merges_them():
    flow, rows = links()
    rows.key_by("start", grouping="dalton?epsilon=0.1").aggregate(n=count(), name="n", parallelism=3).sink(Memory())
    dataflow = flow.dataflow()
    assert [str(edge.grouping) for edge in dataflow.edges] == ["dalton?epsilon=0.1(start)", "hash(start)", "forward"]
    assert dataflow.by_name["n partials"].parallelism == 3


def test_a_mistyped_policy_is_found_where_it_is_written():
    _, rows = links()
    with pytest.raises(OptionError, match="did you mean 'dalton'"):
        rows.key_by("start", grouping="daltn")


def test_windows_need_event_times():
    flow = Flow()
    rows = flow.source(Rows(LINKS))
    with pytest.raises(OptionError, match="a window needs event times"):
        rows.key_by("start").aggregate(n=count(), window="1 second")


def test_a_user_operator_declares_its_keys_by_key_by():
    flow, rows = links()
    rows.key_by("end").process(lambda context: Step(), name="own", parallelism=2).sink(Memory())
    assert flow.dataflow().by_name["own"].logic.keys(0) == ("end",)


@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 4))
def test_channels_are_all_pairs_of_instances_that_may_talk(readers, counters, workers):
    flow, rows = links(parallelism=readers)
    rows.key_by("start").aggregate(n=count(), parallelism=counters, name="n").sink(Memory())
    dataflow = flow.dataflow()
    channels = dataflow.channels()
    assert len(channels) == readers * counters + counters
    assert [channel.number for channel in channels] == list(range(len(channels)))
    assert len({(channel.edge, channel.sender, channel.receiver) for channel in channels}) == len(channels)
    placement = Placement.spread(dataflow, workers)
    hosted = [instance for worker in range(workers) for instance in placement.hosted(worker)]
    assert sorted(hosted) == sorted(dataflow.instances)


def test_the_aggregates_of_queries_are_those_of_dataflows_where_workers_have_them():
    def gives(use):
        flow, rows = links()
        rows.key_by("start").aggregate(t=use, emit="epochs", name="t").sink(Memory())
        return flow.dataflow().schemas["t"].field("t").type

    made = {name: gives(getattr(sy, name)("end")) for name in FUNCTIONS}
    assert made == dict.fromkeys(FUNCTIONS, pa.int64()) | dict.fromkeys(("mean", "variance"), pa.float64())
    for use in (sy.top_k("end"), sy.collect("end"), sy.approx_distinct("end")):
        with pytest.raises(OptionError, match=rf"aggregate 't': workers that stay have no {use.function}; they have"):
            gives(use)


@pytest.mark.parametrize("use", ["sum", sum])
def test_an_aggregate_of_something_else_is_named_with_the_remedy(use):
    _, rows = links()
    with pytest.raises(OptionError, match=r"aggregate 't' must be sy.count\(\), sy.sum"):
        rows.key_by("start").aggregate(t=use)


def test_another_parallelism_gives_another_dataflow():
    flow, rows = links()
    rows.key_by("start").aggregate(n=count(), name="n").sink(Memory(), name="out", parallelism=1)
    wider = flow.dataflow().rescaled({"n": 3, "out": 3})
    assert Instance("n", 2) in wider.instances
    with pytest.raises(DataflowError, match="unknown operator 'm'"):
        flow.dataflow().rescaled({"m": 2})


def test_pictures_show_every_operator_and_edge_and_dot_the_feedback():
    dataflow = looped(True).dataflow()
    text = mermaid(dataflow)
    assert text.count("-->") == 3
    assert text.count("-.->") == 1
    assert "links<br/>source x1" in text
    drawn = ET.fromstring(svg(dataflow))
    space = "{http://www.w3.org/2000/svg}"
    assert len(drawn.findall(f"{space}rect")) == 4
    assert len([path for path in drawn.findall(f"{space}path") if path.get("stroke-dasharray")]) == 1


def test_names_with_signs_of_markup_do_not_break_a_picture():
    flow = Flow('a<b>&"c')
    flow.source(Rows(LINKS), name='x<y>&"z').sink(Memory())
    ET.fromstring(svg(flow.dataflow()))
    assert '"x#lt;y#gt;#amp;#quot;z<br/>' in mermaid(flow.dataflow())
