"""A policy in charge of a resident job: what it sees is what instances did, and instances go where it wants them."""

import threading
import time

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from steelyard import count
from steelyard.control import Controller
from steelyard.core import Action, ActionRefusedError, OptionError
from steelyard.core.control import InstanceObservation
from steelyard.core.topology import Placement
from steelyard.resident import Flow, Generated, Memory, Rows, Settings
from steelyard.resident.jobs import Job
from steelyard.resident.lag import Behind
from steelyard.resident.launchers import ProcessLauncher, ThreadLauncher
from steelyard.resident.metrics import InstanceMetrics, ThreadTime
from steelyard.resident.observed import Looks
from steelyard.resident.sources import SocketLines
from steelyard.resident.transformed import Transformed
from steelyard.scaling import DS2, Dhalion, Fixed, HpaCpu, HpaVarga
from steelyard.workloads import Constant, Zipf
from tests.control.shown import shown_by

ROWS = pa.table({"n": list(range(600)), "k": [n % 5 for n in range(600)]})


def flow_of(seconds=0.0):
    """Rows that are mapped, each batch of 10 in so many seconds, and counted by key."""

    def slowly(batch):
        time.sleep(seconds)
        return batch

    flow = Flow("counts")
    read = flow.source(Rows(ROWS), batch_rows=10, name="in")
    mapped = read.shuffle().map(slowly, ROWS.schema, parallelism=2, name="map")
    mapped.key_by("k").aggregate(n=count(), emit="end", parallelism=1, name="count").sink(Memory(), name="out")
    return flow.dataflow()


def counts(results):
    table = pa.Table.from_batches(results["out"])
    return dict(zip(table["k"].to_pylist(), table["n"].to_pylist(), strict=True))


def metrics(dataflow, **known):
    """As workers tell them, the same for every instance."""
    return {str(instance): InstanceMetrics(**known).to_dict() for instance in dataflow.instances}


def test_a_look_shows_what_came_since_the_last_one():
    dataflow = flow_of()
    looks, there = Looks(dataflow), Placement.spread(dataflow, 2)
    looks.observed(metrics(dataflow, rows_in=100, rows_out=50, busy=1.0, idle=1.0), there, 2.0)
    seen = looks.observed(
        metrics(dataflow, rows_in=200, rows_out=110, busy=2.5, blocked=0.5, idle=1.0, useful=1.0, cpu=0.5), there, 4.0
    )
    assert (seen.time, seen.seconds) == (4.0, 2.0)
    assert seen.parallelism == {"in": 1, "map": 2, "count": 1, "out": 1}
    assert seen.placement == {"in#0": 0, "map#0": 0, "map#1": 1, "count#0": 0, "out#0": 0}
    read, mapped, *_ = seen.operators
    assert (read.processed_per_second, read.sent_per_second) == (50.0, 30.0)
    assert (mapped.processed_per_second, mapped.received_from) == (100.0, {"in": 100.0})
    assert (mapped.busy, mapped.backpressured, mapped.idle) == (0.75, 0.25, 0.0)
    assert (mapped.useful, mapped.cpu) == (0.5, 0.25)
    assert [one.name for one in mapped.instances] == ["map#0", "map#1"]
    assert {one.processed_per_second for one in mapped.instances} == {50.0}


def test_what_a_source_reads_is_counted_as_what_comes_to_it_whatever_it_leaves_out():
    """Else policies would take rows that a filter leaves out for rows that it cannot keep up with."""

    def kept(batch):
        return batch.filter(pc.less(batch.column("k"), 2)), 0

    flow = Flow("filtered")
    flow.source(Transformed(Rows(ROWS), kept, ROWS.schema), batch_rows=7, name="in").sink(Memory(), name="out")
    dataflow = flow.dataflow()
    job = Job(dataflow, Placement.spread(dataflow, 1), ThreadLauncher())
    job.run()
    assert (job.outcome.metrics["in#0"]["rows_in"], job.outcome.metrics["in#0"]["rows_out"]) == (600, 240)
    read = next(one for one in job.whole().operators if one.name == "in")
    assert read.processed_per_second == pytest.approx(read.sent_per_second * 600 / 240)


def test_instances_that_began_anew_count_from_nothing():
    dataflow = flow_of()
    looks, there = Looks(dataflow), Placement.spread(dataflow, 2)
    looks.observed(metrics(dataflow, rows_in=100, busy=9.0), there, 10.0)
    seen = looks.observed(metrics(dataflow, rows_in=30, busy=1.0), there, 11.0)
    assert seen.operators[1].processed_per_second == 60.0
    assert seen.operators[1].busy == 1.0


def test_a_new_generation_that_is_further_on_than_the_one_before_counts_whole():
    dataflow = flow_of()
    looks, there = Looks(dataflow), Placement.spread(dataflow, 2)
    looks.observed(metrics(dataflow, rows_in=100, busy=1.0), there, 1.0, generation=0)
    seen = looks.observed(metrics(dataflow, rows_in=150, busy=2.0), there, 2.0, generation=1)
    assert seen.operators[1].processed_per_second == 300.0


@pytest.mark.parametrize("silent", ["map#0", "in#0", "count#0"])
@pytest.mark.parametrize("policy", [DS2, HpaVarga, HpaCpu, Dhalion])
def test_who_stops_to_report_is_not_taken_for_idle_and_nobody_decides_by_it(silent, policy):
    """Its queue and its time at work of the look before are there still, as old as they are."""
    dataflow = flow_of()
    looks, there = Looks(dataflow), Placement.spread(dataflow, 2)
    decided = policy()
    for number in range(1, 60):
        said = metrics(dataflow, seconds=15.0 * number, rows_in=9000 * number, rows_out=9000 * number, cpu=1.0 * number)
        for one in said.values():
            one |= {"busy": 3.0 * number, "idle": 12.0 * number, "queue_rows": 4}
        said["in#0"]["behind"] = Behind(9000 * number, 9000 * number, 0, 0.0)._asdict()
        seen = looks.observed(said, there, 15.0 * number)
        wanted = decided.decide(seen).changes(seen)
    assert {one.idle for one in seen.operators} == {0.8}
    assert wanted.parallelism, "who says so is idle"
    later = metrics(dataflow, seconds=900.0, rows_in=540_000, rows_out=540_000)
    for one in later.values():
        one |= {"busy": 180.0, "idle": 720.0, "cpu": 60.0}
    later["in#0"]["behind"] = Behind(540_000, 540_000, 0, 0.0)._asdict()
    seen = looks.observed({**later, silent: said[silent]}, there, 900.0)
    nothing = next(one for operator in seen.operators for one in operator.instances if one.name == silent)
    assert nothing == InstanceObservation(silent)
    action = decided.decide(seen)
    assert action.is_nothing
    alone = silent if silent == "map#0" else silent.partition("#")[0]
    assert f"{alone} says nothing" in action.reason


def test_an_instance_that_nobody_has_told_of_yet_is_not_taken_for_idle():
    dataflow = flow_of()
    seen = Looks(dataflow).observed({}, Placement.spread(dataflow, 2), 15.0)
    assert {one for operator in seen.operators for one in operator.instances} == {
        InstanceObservation(str(one)) for one in dataflow.instances
    }
    assert "in says nothing" in DS2().decide(seen).reason


def test_of_two_edges_from_one_sender_all_rows_are_its():
    flow = Flow("twice")
    read = flow.source(Rows(ROWS), name="in")
    left, right = read.map(lambda batch: batch, ROWS.schema, name="a"), read
    left.union(right).map(lambda batch: batch, ROWS.schema, name="b").sink(Memory(), name="out")
    dataflow = flow.dataflow()
    seen = Looks(dataflow).observed(metrics(dataflow, rows_in=200, rows_out=100), Placement.spread(dataflow, 1), 1.0)
    found = {one.name: one.received_from for one in seen.operators}
    assert sum(found["b"].values()) == pytest.approx(200.0 * dataflow.by_name["b"].parallelism)


def test_a_wish_that_comes_while_a_move_is_under_way_adds_to_it(tmp_path):
    dataflow = flow_of()
    job = Job(dataflow, Placement.spread(dataflow, 2), ThreadLauncher(), Settings(store=str(tmp_path)))
    job.apply(Action(placement={"map#0": 1}))
    job.apply(Action(placement={"in#0": 1}))
    assert job.observe().placement == {"in#0": 1, "map#0": 1, "map#1": 1, "count#0": 0, "out#0": 0}


def test_a_policy_moves_instances_while_a_job_runs_and_the_answer_stays(tmp_path):
    class Together:
        """All on the worker that has the first instance, as soon as rows flow."""

        needs = ("operators", "placement")

        def decide(self, observation):
            flowing = any(one.name == "map" and one.processed_per_second > 0 for one in observation.operators)
            return Action(placement=dict.fromkeys(observation.placement, 1), reason="together") if flowing else Action()

    dataflow = flow_of(0.05)
    settings = Settings(store=str(tmp_path), heartbeat=0.05)
    job = Job(dataflow, Placement.spread(dataflow, 2), ThreadLauncher(), settings)
    runs = threading.Thread(target=job.run)
    runs.start()
    controller = Controller(job, Together())
    controller.run(60.0, every=0.1)
    runs.join(60)
    assert job.ended
    assert job.outcome.moves == 1
    first = controller.decisions[0]
    assert first.done.placement == {"in#0": 1, "map#0": 1, "count#0": 1, "out#0": 1}
    assert set(job.observe().placement.values()) == {1}
    assert counts(job.outcome.results) == dict.fromkeys(range(5), 120)


def test_what_a_job_cannot_show_or_do_is_told(tmp_path):
    dataflow = flow_of()
    job = Job(dataflow, Placement.spread(dataflow, 1), ThreadLauncher(), Settings(store=str(tmp_path)))
    for numbers, words in (({"mop": 3}, "'mop'"), ({"count": 200}, "parallelism 200, and keys are of 128 groups")):
        with pytest.raises(ActionRefusedError, match=words):
            job.apply(Action(numbers))
    for placement, words in (
        ({"map#0": 7}, "map#0 is placed on worker 7: there are 1"),
        ({"mop#0": 0}, "which the dataflow has not"),
        ({"map": 0}, "'map' is no instance: give its operator and its number from 0, as in 'count#0'"),
        ({"map#-1": 0}, "'map#-1' is no instance"),
        ({"#0": 0}, "'#0' is no instance"),
    ):
        with pytest.raises(ActionRefusedError, match=words):
            job.apply(Action(placement=placement))
    with pytest.raises(ActionRefusedError, match="takes a snapshot"):
        Job(dataflow, Placement.spread(dataflow, 2), ThreadLauncher()).apply(Action(placement={"map#0": 1}))
    controller = Controller(job, Fixed())
    job.run()
    controller.run(10.0, every=1.0)
    assert controller.last is None


def test_a_job_whose_reader_cannot_tell_where_its_rows_end_refuses_who_needs_that():
    flow = Flow("lines")
    flow.source(SocketLines("127.0.0.1", 1, {"n": "int64"}), name="in").sink(Memory(), name="out")
    dataflow = flow.dataflow()
    job = Job(dataflow, Placement.spread(dataflow, 1), ThreadLauncher())
    with pytest.raises(OptionError, match="ds2 needs to see what comes to sources, which a resident job cannot show"):
        Controller(job, DS2())


def test_processor_time_of_a_thread_goes_to_those_that_were_busy():
    clock, leads, follows = ThreadTime(), InstanceMetrics(), InstanceMetrics()
    clock._seconds, leads.busy, follows.busy = 1.0, 1.0, 3.0
    clock.share([leads, follows])
    clock._seconds, leads.busy = 3.0, 2.0
    clock.share([leads, follows])
    assert (leads.cpu, follows.cpu) == (2.25, 0.75)
    clock._seconds = 3.5
    clock.share([leads, follows])
    assert (leads.cpu, follows.cpu) == (2.75, 0.75)


def test_what_instances_say_is_seen_of_each_and_of_all_together():
    dataflow = flow_of()
    looks, there = Looks(dataflow), Placement.spread(dataflow, 2)
    said = metrics(dataflow, seconds=2.0, busy=1.0, idle=1.0, cpu=0.5, bytes_in=100)
    said["map#1"] |= {"queue_rows": 40, "queue_filled": 0.5, "costs": [(10, 0.1)], "bytes_in": 300}
    said["in#0"]["behind"] = Behind(50, 400, 30, 1.5)._asdict()
    said["out#0"] |= {"aged": 2, "ages": [9.0, 1.0, 3.0]}
    hosts = {number: {"cores": 4, "sent": {"payload": 600, "overhead": 200}} for number in range(2)}
    seen = looks.observed(said, there, 4.0, hosts=hosts, state_bytes={"count#0": 77})
    read, mapped, counted, _ = seen.operators
    assert (read.arrived_per_second, read.end_offset, read.lag, read.lag_seconds) == (25.0, 400, 30, 1.5)
    assert (mapped.bytes_in_per_second, mapped.queue, mapped.queue_filled) == (200.0, 40, 0.25)
    assert mapped.costs == ((10, 0.1),)
    assert (mapped.lag, mapped.state_bytes, counted.state_bytes) == (None, None, 77)
    assert seen.latency == pytest.approx({50.0: 2.0, 95.0: 2.9, 99.0: 2.98})
    assert [(one.cores_used, one.load) for one in seen.workers] == [(1.0, 0.25), (0.25, 0.0625)]
    assert [one.sent_bytes_per_second for one in seen.workers] == [200.0, 200.0]
    again = {**said, "in#0": {**said["in#0"], "seconds": 4.0, "behind": Behind(60, 410, 10, 0.5)._asdict()}}
    seen = looks.observed(again, there, 6.0, hosts=hosts)
    assert (seen.operators[0].arrived_per_second, seen.operators[0].lag_per_second) == (5.0, -10.0)
    assert seen.latency is None
    assert seen.workers[0].sent_bytes_per_second == 0.0


def test_latency_is_that_of_results_and_not_of_what_is_beside_them():
    flow = Flow("beside")
    read = flow.source(Rows(ROWS), name="in")
    read.sink(Memory(), name="out")
    read.filter(pc.field("k") > 3, name="bad").sink(Memory(measured=False), name="letters")
    dataflow = flow.dataflow()
    said = metrics(dataflow, seconds=1.0)
    said["out#0"] |= {"aged": 2, "ages": [1.0, 3.0]}
    said["letters#0"] |= {"aged": 5, "ages": [0.0] * 5}
    seen = Looks(dataflow).observed(said, Placement.spread(dataflow, 1), 1.0)
    assert seen.latency[50.0] == 2.0


@pytest.mark.parametrize(("processes", "workers"), [(False, 1), (True, 2)])
def test_ds2_rescales_a_job_and_all_that_is_shown_is_there(tmp_path, processes, workers):
    flow = Flow("paced")
    bids = Generated(Zipf(keys=20), rows=100_000, pace=Constant(20_000), block_rows=500)
    read = flow.source(bids, batch_rows=500, name="in", parallelism=2)
    mapped = read.shuffle().map(lambda batch: batch, bids.schema, name="map", parallelism=2)
    mapped.key_by("key").aggregate(n=count(), emit="end", name="count", parallelism=1).sink(Memory(), name="out")
    dataflow = flow.dataflow()
    settings = Settings(store=str(tmp_path), interval=0.2, heartbeat=0.05)
    launcher = ProcessLauncher() if processes else ThreadLauncher()
    job = Job(dataflow, Placement.spread(dataflow, workers), launcher, settings)
    controller = Controller(job, DS2(overprovisioning=2.0))
    runs = threading.Thread(target=job.run)
    runs.start()
    shown, seen = set(), []
    while not job.ended and not (shown >= job.shows and job.outcome.rescales):
        job.advance(0.2)
        controller.look()
        seen.append(controller.seen)
        shown |= shown_by(controller.seen)
        assert shown <= job.shows
    job.stop()
    runs.join(60)
    assert shown == job.shows
    done = [one.done for one in controller.decisions if not one.refused]  # one that comes while all end may be refused
    assert any(one.parallelism for one in done)
    assert job.outcome.rescales
    assert all(one.seconds > 0 and set(one.placement) >= set(map(str, dataflow.instances)) for one in seen)
