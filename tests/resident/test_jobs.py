"""Jobs: failures and what follows them, snapshots, clean stops, back-pressure, and uninvited guests."""

import builtins
import contextlib
import os
import random
import signal
import socket
import threading
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard import count, sum
from steelyard.core import BadRowError, NoEffectWarning, OptionError, SteelyardError
from steelyard.core.topology import Instance, Placement
from steelyard.resident import (
    Callback,
    Flow,
    Generated,
    JobError,
    Memory,
    Parquet,
    Rows,
    Settings,
    SocketLines,
    Step,
    launchers,
    run,
)
from steelyard.resident.channel import CREDIT
from steelyard.resident.connection import Connection
from steelyard.resident.coordinator import Coordinator, GenerationError
from steelyard.resident.deployment import Deployment, Events
from steelyard.resident.jobs import Job
from steelyard.resident.launchers import ProcessLauncher, ThreadLauncher
from steelyard.resident.manifest import Manifest, difference, shape_of
from steelyard.resident.operator import Attempt
from steelyard.resident.outcome import Present
from steelyard.resident.peers import TO_COORDINATOR, TO_PEER, WorkerError
from steelyard.resident.quiet import QuietCheck
from steelyard.resident.security import Credentials, Identity
from steelyard.resident.snapshot import SnapshotStore, packed, unpacked
from steelyard.resident.wire import Frame, Kind, WireError
from steelyard.resident.worker import Worker
from steelyard.workloads import Zipf
from steelyard.workloads.rates import Constant

SECONDS = 60
"""How long a test waits for what must come."""


def eventually(condition):
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.01)


class Trouble(Step):
    """Passes rows on, and makes trouble once, after so many committed epochs."""

    def __init__(self, marker, epochs, trouble):
        self.marker, self.epochs, self.trouble, self.seen = Path(marker), epochs, trouble, 0
        self.rows = 0

    def process(self, port, batch):
        self.rows += batch.num_rows
        if self.seen >= self.epochs and not self.marker.exists():
            self.marker.touch()
            self.trouble()
        yield batch

    def committed(self, number):
        self.seen += 1

    def snapshot(self, number):
        return {"rows": self.rows}

    def restore(self, state):
        self.rows = state.get("rows", 0)


def killed():
    os.kill(os.getpid(), signal.SIGKILL)


def raised():
    raise RuntimeError("out of luck")


def troubled(folder, trouble, epochs, rows=4000):
    """Paced rows through trouble into counts, once into memory and once into Parquet files."""
    flow = Flow("troubled", parallelism=2)
    reader = Generated(Zipf(keys=20, seed=3), rows=rows, pace=Constant(2500), block_rows=64)
    read = flow.source(reader, time="event_time", batch_rows=64, name="read")
    passed = read.shuffle().process(lambda context: Trouble(folder / "marker", epochs, trouble), name="pass")
    counted = passed.key_by("key").aggregate(window="100 milliseconds", n=count(), name="count")
    counted.sink(Memory(), name="memory")
    counted.sink(Parquet(str(folder / "files")), name="files")
    return flow.dataflow()


def expected_counts(rows):
    batch = Generated(Zipf(keys=20, seed=3), rows=rows, pieces=1, block_rows=rows)
    batch.splits(1)
    made = batch.read("0", 0, rows).batch
    starts = [at.as_py() for at in made["event_time"]]
    return Counter(
        (key, start.replace(microsecond=start.microsecond // 100_000 * 100_000))
        for key, start in zip(made["key"].to_pylist(), starts, strict=True)
    )


def counts_of(table):
    return Counter({(row["key"], row["window_start"]): row["n"] for row in table.to_pylist()})


@pytest.mark.parametrize("trouble", [raised, killed])
@pytest.mark.parametrize("epochs", [0, 2])
def test_a_worker_that_dies_costs_nothing_and_doubles_nothing(tmp_path, trouble, epochs):
    dataflow = troubled(tmp_path, trouble, epochs)
    settings = Settings(store=str(tmp_path / "store"), interval=0.05, heartbeat=0.1)
    results = run(dataflow, workers=2, processes=trouble is killed, settings=settings)
    # Where all rows are through before that many epochs, on a very slow machine, there is no trouble.
    assert results.outcome.restarts == (tmp_path / "marker").exists()
    assert epochs or results.outcome.restarts == 1
    expected = expected_counts(4000)
    got = results.table("memory")
    assert counts_of(got) == expected
    assert got.num_rows == len(expected)
    files = pq.read_table(tmp_path / "files")
    assert counts_of(files) == expected
    assert files.num_rows == len(expected)
    assert not list((tmp_path / "files").glob("_staged*"))


def test_workers_killed_at_any_moment_leave_the_answers_as_they_are(tmp_path):
    dataflow = troubled(tmp_path, killed, epochs=10**9, rows=6000)
    store, launcher = SnapshotStore(tmp_path / "store"), ProcessLauncher()
    settings = Settings(store=str(store.path), interval=0.05, heartbeat=0.1)
    job = Job(dataflow, Placement.spread(dataflow, 3), launcher, settings)
    outcomes, draw = [], random.Random(7)
    thread = threading.Thread(target=lambda: outcomes.append(job.run()), daemon=True)
    thread.start()
    for _ in range(3):
        before = store.latest() or 0
        eventually(lambda before=before: not thread.is_alive() or (store.latest() or 0) > before)
        time.sleep(draw.uniform(0, 0.1))  # any moment will do
        if thread.is_alive() and job.workers:
            victim = draw.choice(list(job.workers.values()))
            with contextlib.suppress(ProcessLookupError):
                os.kill(victim.pid, signal.SIGKILL)
    thread.join(SECONDS)
    got = pa.Table.from_batches(outcomes[0].results["memory"])
    expected = expected_counts(6000)
    assert outcomes[0].restarts >= 1
    for table in (got, pq.read_table(tmp_path / "files")):
        assert counts_of(table) == expected
        assert table.num_rows == len(expected)


def frozen():
    os.kill(os.getpid(), signal.SIGSTOP)


def test_a_worker_that_falls_silent_is_taken_for_dead(tmp_path, monkeypatch):
    monkeypatch.setattr(launchers, "FAILED_SECONDS", 0.2)
    dataflow = troubled(tmp_path, frozen, 0, rows=1000)
    results = run(dataflow, workers=2, processes=True, settings=Settings(heartbeat=0.1, silence=4.0, restarts=10))
    assert results.outcome.restarts >= 1  # a machine that is slow enough makes others seem dead, too
    assert counts_of(results.table("memory")) == expected_counts(1000)


def test_a_store_that_cannot_be_written_is_refused_with_its_reason(tmp_path):
    (tmp_path / "store").write_text("a file where the folder should be")
    flow = Flow()
    flow.source(Rows(pa.table({"x": [1]}))).sink(Memory())
    settings = Settings(store=str(tmp_path / "store"), restarts=0)
    with pytest.raises(OptionError, match=r"store .*store cannot be written: (NotADirectory|FileExists)Error"):
        run(flow.dataflow(), settings=settings)


def test_a_job_that_fails_again_and_again_says_why_in_the_end():
    flow = Flow()
    flow.source(Rows(pa.table({"x": [1]}))).map(lambda batch: raised(), name="odd").sink(Memory())
    said = r"operator 'odd' \(instance 0, worker 0\): RuntimeError: out of luck \(test_jobs.py:\d+ in .*\) "
    with pytest.raises(JobError, match=said + r"\(generation 2, the last of 3\)"):
        run(flow.dataflow(), settings=Settings(restarts=2))


def test_a_policy_with_one_instance_to_choose_is_said_to_have_no_effect():
    flow = Flow()
    rows = flow.source(Rows(pa.table({"x": [1, 2]})), name="read")
    rows.key_by("x", grouping="dalton").aggregate(n=count(), name="n", parallelism=1).sink(Memory())
    with pytest.warns(NoEffectWarning, match=r"dalton\(x\) on the edge read -> n partials has no effect: 'n partials'"):
        run(flow.dataflow(), workers=1)
    with pytest.warns(NoEffectWarning, match=r"'pk2\(x\)' has no effect: rows of a key must meet to be joined"):
        rows.key_by("x", grouping="pk2").join(rows.key_by("x"), suffix="_2")
    with pytest.warns(NoEffectWarning, match=r"'osg\(x\)'\) has no effect: rows of a key must meet .*; use key_by"):
        whole = rows.shuffle("osg?cost_of=x").aggregate(n=count(), emit="end", name="all")
    assert whole.operators[0].logic.keys(0) in ((), None), "what costs depend on is no key"


def test_names_of_other_libraries_are_answered_with_ours():
    rows = Flow("f").source(Rows(pa.table({"x": [1]})), name="read")
    assert repr(rows.key_by("x")) == "Stream(of 'read' in 'f', grouped by hash(x))"
    assert repr(rows.flow) == "Flow('f': read x 1)"
    for name, ours in {"groupBy": "key_by", "where": "filter", "keyBy": "key_by", "flatMap": "flat_map"}.items():
        with pytest.raises(AttributeError, match=f"Stream has no '{name}': did you mean '{ours}'"):
            getattr(rows, name)


def test_rows_that_are_bad_would_be_bad_again_so_that_there_is_no_restart():
    def refuse(batch):
        raise BadRowError("a row has no key")

    flow = Flow()
    flow.source(Rows(pa.table({"x": [1]}))).map(refuse, name="tidy").sink(Memory())
    with pytest.raises(JobError, match=r"operator 'tidy' \(instance 0, worker 0\): BadRowError: a row has no key$"):
        run(flow.dataflow(), settings=Settings(restarts=2))


def test_a_source_that_cannot_be_read_again_is_not_restarted():
    server = socket.create_server(("127.0.0.1", 0))

    def serve():
        sock, _ = server.accept()
        sock.sendall(b'{"x": 1}\n')
        sock.close()

    threading.Thread(target=serve, daemon=True).start()
    flow = Flow()
    lines = SocketLines(*server.getsockname(), pa.schema({"x": pa.int64()}))
    flow.source(lines, name="lines").map(lambda batch: raised()).sink(Memory())
    with pytest.raises(JobError, match="source 'lines' cannot be read again, so there is no restart"):
        run(flow.dataflow())
    server.close()


def test_lines_of_a_socket_are_read_to_their_end():
    server = socket.create_server(("127.0.0.1", 0))

    def serve():
        sock, _ = server.accept()
        for x in range(10):
            sock.sendall(b'{"x": %d}\n' % x)
        sock.sendall(b'{"x": 10}')  # a last line without its end
        sock.close()

    threading.Thread(target=serve, daemon=True).start()
    flow = Flow(parallelism=2)
    flow.source(SocketLines(*server.getsockname(), pa.schema({"x": pa.int64()}))).sink(Memory(), name="out")
    assert sorted(run(flow.dataflow()).table("out")["x"].to_pylist()) == list(range(11))
    server.close()


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_instances_move_while_rows_come_and_the_answer_is_the_same(tmp_path, workers):
    flow = Flow()
    reader = Generated(Zipf(keys=5), rows=3000, pace=Constant(4000), block_rows=16)
    flow.source(reader, batch_rows=16, name="read").key_by("key").aggregate(
        n=count(), emit="end", parallelism=2, name="counts"
    ).sink(Memory(), name="out")
    dataflow = flow.dataflow()
    job = Job(dataflow, Placement.spread(dataflow, 2), ThreadLauncher(), Settings(store=str(tmp_path), heartbeat=0.05))
    outcomes = []
    thread = threading.Thread(target=lambda: outcomes.append(job.run()), daemon=True)
    thread.start()
    eventually(lambda: job.metrics.get("read#0", {}).get("rows_out", 0) > 100)
    job.move(Placement(dict.fromkeys(dataflow.instances, workers - 1), workers))
    thread.join(SECONDS)
    assert (outcomes[0].moves, outcomes[0].restarts) == (1, 0)
    assert set(job.workers) == set(range(workers))
    table = pa.Table.from_batches(outcomes[0].results["out"])
    assert builtins.sum(table["n"].to_pylist()) == 3000
    assert len(set(table["key"].to_pylist())) == table.num_rows == 5


def test_a_move_needs_a_store_and_a_place_for_everything(tmp_path):
    flow = Flow()
    flow.source(Rows(pa.table({"x": [1]})), name="read").sink(Memory(), name="out")
    dataflow = flow.dataflow()
    there = Placement.spread(dataflow, 1)
    with pytest.raises(OptionError, match="give a folder"):
        Job(dataflow, there, ThreadLauncher()).move(there)
    with pytest.raises(OptionError, match="no worker for out#0"):
        Job(dataflow, there, ThreadLauncher(), Settings(store=str(tmp_path))).move(
            Placement({Instance("read", 0): 0}, 1)
        )


def test_a_job_that_is_stopped_ends_cleanly_and_goes_on_later(tmp_path):
    def dataflow(rows):
        flow = Flow()
        reader = Generated(Zipf(keys=5), rows=rows, pace=Constant(5000), block_rows=16)
        flow.source(reader, batch_rows=16, name="read").key_by("key").aggregate(
            n=count(), total=sum("value"), emit="end", parallelism=2
        ).sink(Memory(), name="out")
        return flow.dataflow()

    settings = Settings(store=str(tmp_path), heartbeat=0.05)
    endless = dataflow(10**9)
    job = Job(endless, Placement.spread(endless, 2), ThreadLauncher(), settings)
    outcomes = []
    thread = threading.Thread(target=lambda: outcomes.append(job.run()), daemon=True)
    thread.start()
    eventually(lambda: job.metrics.get("read#0", {}).get("rows_out", 0) > 100)
    job.stop()
    thread.join(SECONDS)
    assert outcomes[0].epochs == 1
    offset = SnapshotStore(tmp_path).read(1, Instance("read", 0))["step offsets"]["0"]
    assert offset >= 100
    rows = offset + 500
    again = run(dataflow(rows), workers=2, settings=settings)
    assert again.outcome.epochs == 2
    assert builtins.sum(again.table("out")["n"].to_pylist()) == rows
    assert again.outcome.metrics["read#0"]["rows_out"] == 500


def test_a_slow_consumer_holds_its_source_back():
    opened, taken = threading.Event(), []

    def slowly(batch):
        taken.append(batch.num_rows)
        opened.wait(SECONDS)

    flow = Flow()
    read = flow.source(Generated(Zipf(keys=5), rows=10**9), batch_rows=100, name="read")
    read.shuffle().map(lambda batch: batch, name="map", parallelism=2).shuffle().sink(
        Callback(slowly), name="slow", parallelism=1
    )
    dataflow = flow.dataflow()
    job = Job(dataflow, Placement.spread(dataflow, 2), ThreadLauncher(), Settings(heartbeat=0.02))
    thread = threading.Thread(target=job.run, daemon=True)
    thread.start()
    read_rows = []

    def still():
        rows = job.metrics.get("read#0", {}).get("rows_out", 0)
        steady = taken and rows and read_rows[-20:] == [rows] * 20
        read_rows.append(rows)
        return steady

    eventually(still)
    in_flight = CREDIT * 100 * 4 + 3 * 100  # four channels full of batches, and one batch in each hand
    assert read_rows[-1] <= in_flight + builtins.sum(taken)
    opened.set()
    job.stop()
    thread.join(SECONDS)
    assert not thread.is_alive()
    metrics = job.metrics
    assert metrics["read#0"]["blocked"] > 0
    assert metrics["slow#0"]["rows_in"] == metrics["read#0"]["rows_out"] == builtins.sum(taken)


@pytest.mark.parametrize("processes", [False, True])
def test_metrics_tell_rows_bytes_and_times_of_every_instance(processes):
    flow = Flow(parallelism=2)
    read = flow.source(Generated(Zipf(keys=5), rows=5000, block_rows=100), batch_rows=100, name="read")
    read.key_by("key").aggregate(n=count(), emit="end", name="n").sink(Memory(), name="out")
    outcome = run(flow.dataflow(), workers=2, processes=processes).outcome
    read_rows = [outcome.metrics[f"read#{i}"]["rows_out"] for i in range(2)]
    counted = [outcome.metrics[f"n#{i}"] for i in range(2)]
    assert builtins.sum(read_rows) == builtins.sum(one["rows_in"] for one in counted) == 5000
    for one in counted:
        assert one["done"]
        assert one["bytes_in"] > 0
        assert one["useful"] <= one["busy"]
        assert one["cost"] > 0
        assert one["queue"] == 0
    sent = [traffic["sent"] for traffic in outcome.traffic.values()]
    received = [traffic["received"] for traffic in outcome.traffic.values()]
    assert builtins.sum(one["payload"] for one in sent) == builtins.sum(one["payload"] for one in received) > 0
    assert all(one["overhead"] > 0 for one in sent)


def test_uninvited_guests_do_not_disturb_a_job():
    flow = Flow(parallelism=2)
    reader = Generated(Zipf(keys=5), rows=2000, pace=Constant(800), block_rows=50)
    read = flow.source(reader, batch_rows=50, name="read")
    read.key_by("key").aggregate(n=count(), emit="end").sink(Memory(), name="out")
    dataflow = flow.dataflow()
    launcher = ThreadLauncher()
    job = Job(dataflow, Placement.spread(dataflow, 2), launcher, Settings(heartbeat=0.05, restarts=0))
    outcomes = []
    thread = threading.Thread(target=lambda: outcomes.append(job.run()), daemon=True)
    thread.start()
    eventually(lambda: job.metrics.get("read#0", {}).get("rows_out", 0) > 50)
    for worker in launcher.workers:
        for noise in (b"GET / HTTP/1.0\r\n\r\n", random.Random(5).randbytes(5000), b""):
            guest = socket.create_connection(worker.address)
            guest.sendall(noise)
            guest.close()
    thread.join(SECONDS)
    results = outcomes[0].results["out"]
    assert builtins.sum(batch["n"][i].as_py() for batch in results for i in range(batch.num_rows)) == 2000


frames = st.builds(
    Frame, st.sampled_from(Kind), st.integers(0, 6), st.integers(0, 3), st.binary(max_size=60), st.binary(max_size=5)
)


@given(st.lists(frames, max_size=5), st.integers(0, 2))
def test_frames_that_a_peer_cannot_send_never_reach_an_operator(given_frames, worker):
    reached = []

    class Watch(Step):
        def process(self, port, batch):
            reached.append(batch)
            return ()

    flow = Flow(parallelism=2)
    flow.source(Rows(pa.table({"x": [1]})), name="read").key_by("x").process(lambda context: Watch()).sink(Memory())
    dataflow = flow.dataflow()
    quiet = Events(lambda *_: None, lambda *_: None, lambda *_: None)
    deployment = Deployment(dataflow, Placement.spread(dataflow, 2), 0, lambda *_: None, quiet)
    for runner in deployment.runners.values():
        runner.start()
    for frame in given_frames:
        try:
            deployment.receive(worker, frame)
        except WireError:
            continue
        assert frame.kind is not Kind.DATA
    deployment.stop(SECONDS)
    assert not reached


def test_a_worker_without_instances_is_no_hindrance():
    flow = Flow()
    flow.source(Rows(pa.table({"x": [1, 2]}))).sink(Memory(), name="out")
    assert run(flow.dataflow(), workers=3).table("out").num_rows == 2


def test_workers_that_never_come_are_named():
    class Nobody:
        host = "127.0.0.1"

        def launch(self, dataflow, credentials, generation, coordinator):
            pass

        def gather(self, failed=False):
            return ""

        def release(self):
            pass

    flow = Flow()
    flow.source(Rows(pa.table({"x": [1]}))).sink(Memory())
    dataflow = flow.dataflow()
    job = Job(dataflow, Placement.spread(dataflow, 2), Nobody(), Settings(join=0.1, heartbeat=0.02, restarts=0))
    with pytest.raises(JobError, match=r"workers \[0, 1\] did not come within 0.1 s: are there enough slots"):
        job.run()


def small():
    flow = Flow()
    flow.source(Rows(pa.table({"x": [1]}))).sink(Memory(), name="out")
    return flow.dataflow()


def coordinator(workers=2, **options):
    dataflow = small()
    credentials = Credentials.new()
    where = Placement.spread(dataflow, workers)
    return Coordinator(dataflow, where, credentials, Settings(**options)), dataflow, credentials


def test_a_worker_that_waits_for_others_is_not_taken_for_dead():
    made, dataflow, credentials = coordinator(heartbeat=0.05, silence=1.5)
    workers = [Worker(number, dataflow, credentials) for number in range(2)]
    outcomes = []
    threads = [threading.Thread(target=lambda: outcomes.append(made.run()), daemon=True)]
    threads += [threading.Thread(target=one.run, args=(made.address,), daemon=True) for one in workers]
    threads[0].start()
    threads[1].start()
    eventually(lambda: 0 in made.present)
    time.sleep(2.0)  # longer than the silence that is borne
    threads[2].start()
    for thread in threads:
        thread.join(SECONDS)
    made.close()
    assert outcomes[0].results["out"][0].num_rows == 1
    assert made.present[1] == Present(socket.gethostname(), os.getpid(), 0)


def test_who_comes_when_all_is_over_is_turned_away():
    made, dataflow, credentials = coordinator(workers=1, join=0.05, heartbeat=0.01)
    with pytest.raises(GenerationError, match="did not come within"):
        made.run()
    ours, theirs = socket.socketpair()
    made._gang._welcome(Identity(0, 0, TO_COORDINATOR), Connection(ours))  # its handshake had begun before the end
    assert theirs.recv(1) == b""
    theirs.close()
    worker = Worker(0, dataflow, credentials)
    with pytest.raises(WorkerError, match="the coordinator is gone"):
        worker.run(made.address)
    with pytest.raises(OSError, match="refused"):  # its own door is shut, too
        socket.create_connection(worker.address, timeout=5)
    ours, theirs = socket.socketpair()
    worker._peers._welcome(Identity(0, 1, TO_PEER), Connection(ours))
    assert theirs.recv(1) == b""
    theirs.close()


def test_workers_that_cannot_be_started_leave_nothing_open():
    doors = []

    class Broken:
        host = "127.0.0.1"

        def launch(self, dataflow, credentials, generation, coordinator):
            doors.append(coordinator.address)
            raise OSError("no more processes")

        def gather(self, failed=False):
            return ""

        def release(self):
            pass

    dataflow = small()
    with pytest.raises(OSError, match="no more processes"):
        Job(dataflow, Placement.spread(dataflow, 1), Broken()).run()
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(doors[0], timeout=5)


def test_the_last_metrics_are_not_followed_by_older_ones():
    """A heartbeat whose figures were read before the end must not be sent behind those of the end."""
    worker = Worker(0, small(), Credentials.new())
    reading, read_on, told = threading.Event(), threading.Event(), []
    figures = iter(["old", "last"])

    def metrics():
        figure = next(figures)
        if figure == "old":
            reading.set()
            read_on.wait(SECONDS)
        return {"figure": figure}

    worker.metrics = metrics
    worker._tell = lambda event, **what: told.append(what["figure"])
    beat = threading.Thread(target=worker._report, args=(0.01,), daemon=True)
    beat.start()
    assert reading.wait(SECONDS)
    end = threading.Thread(target=worker._finish, args=({},), daemon=True)
    end.start()
    end.join(0.2)
    read_on.set()
    for thread in (beat, end):
        thread.join(SECONDS)
    worker._close()
    assert told == ["old", "last"]


def test_snapshots_without_a_folder_are_refused():
    with pytest.raises(OptionError, match="needs a folder for the snapshots"):
        Settings(interval=1.0)


state_values = st.one_of(
    st.integers(), st.text(max_size=5), st.binary(max_size=20), st.lists(st.integers(), max_size=3)
)


@given(st.dictionaries(st.text(max_size=5), state_values, max_size=4))
def test_states_are_read_as_they_were_written(state):
    assert unpacked(packed(state)) == state


def test_a_state_of_something_else_is_refused(tmp_path):
    with pytest.raises(SteelyardError, match="no state of an operator"):
        unpacked(b"something else")
    store = SnapshotStore(tmp_path)
    store.commit(Manifest(3, "a-0", {}, {}))
    with pytest.raises(SteelyardError, match="has no state of a#0"):
        store.read(3, Instance("a", 0))
    (tmp_path / "commit-00000004.json").write_text('{"epoch": 4}')
    with pytest.raises(SteelyardError, match=r"commit-00000004\.json of epoch 4 is damaged"):
        store.newest()


def taken(store, epoch, attempt, **states):
    """A snapshot, not committed: the manifest of these states."""
    files = {name: store.write(epoch, Instance.parse(name), state, attempt) for name, state in states.items()}
    return Manifest(epoch, str(attempt), {}, files)


def test_only_committed_snapshots_count_and_old_ones_go(tmp_path):
    store = SnapshotStore(tmp_path)
    one, attempt = Instance("a b", 0), Attempt("r", 0)
    for epoch in range(1, 5):
        store.commit(taken(store, epoch, attempt, **{str(one): {"epoch": epoch}}))
    taken(store, 5, attempt, **{str(one): {"epoch": 5}})
    assert store.latest() == 4
    assert store.read(4, one) == {"epoch": 4}
    assert store.newest() == store.manifest(4)
    assert not (tmp_path / "epoch-00000002").exists()


def test_a_worker_of_an_old_generation_that_still_writes_changes_no_newer_snapshot(tmp_path):
    store, one = SnapshotStore(tmp_path), Instance("a", 0)
    old, new = Attempt("r", 0), Attempt("r", 1)
    store.commit(taken(store, 1, new, **{str(one): {"of": "new"}}))
    store.write(1, one, {"of": "old"}, old)  # it was taken for dead
    store.write(1, one, {"of": "another run"}, Attempt("s", 1))
    assert store.read(1, one) == {"of": "new"}


def test_of_two_jobs_with_one_store_the_second_to_commit_fails(tmp_path):
    store, one = SnapshotStore(tmp_path), Instance("a", 0)
    mine, other = Attempt("mine", 2), Attempt("other", 0)
    store.commit(taken(store, 1, other, **{str(one): {"of": "other"}}))
    with pytest.raises(SteelyardError, match=r"epoch 1 already, of attempt other-0, and this is mine-2: give each job"):
        store.commit(taken(store, 1, mine, **{str(one): {"of": "mine"}}))
    assert store.read(1, one) == {"of": "other"}


def counted(parallelism=2, window="1 second", name="count", column="key", rows=200):
    flow = Flow(parallelism=2)
    read = flow.source(Generated(Zipf(keys=5), rows=rows), time="event_time", name="read")
    kept = read.key_by(column).aggregate(n=count(), window=window, name=name, parallelism=parallelism)
    kept.sink(Memory(), name="out", parallelism=1)
    return flow.dataflow()


OTHERS = {
    "operator 'count' is gone": {"name": "counts"},
    "operator 'count' had columns key ": {"column": "value"},
    "operator 'count' had settings .* and has ": {"window": "2 seconds"},
}


@pytest.mark.parametrize("what", OTHERS)
def test_a_job_goes_on_only_with_the_dataflow_that_its_snapshot_is_of(tmp_path, what):
    settings = Settings(store=str(tmp_path))
    run(counted(), settings=settings)
    with pytest.raises(OptionError, match=rf"has a snapshot \(epoch 1\) of another dataflow: {what}"):
        run(counted(**OTHERS[what]), settings=settings)
    # workers and numbers of instances may be others, and a source may have more
    assert run(counted(rows=300), workers=1, settings=settings).outcome.epochs == 2
    assert run(counted(parallelism=1), settings=settings).outcome.epochs == 3


@given(st.integers(1, 4), st.integers(1, 4), st.booleans())
def test_shapes_are_equal_for_equal_dataflows_only(before, after, shuffled):
    def flow(parallelism, shuffle):
        made = Flow()
        read = made.source(Rows(pa.table({"x": [1]})), name="read", parallelism=parallelism)
        (read.shuffle() if shuffle else read.key_by("x")).sink(Memory(), name="out", parallelism=2)
        return shape_of(made.dataflow())

    assert difference(flow(before, False), flow(before, False)) is None
    assert (difference(flow(before, False), flow(after, shuffled)) is None) == (not shuffled)


def test_a_placement_that_leaves_an_instance_out_is_refused():
    dataflow = counted()
    whole = Placement.spread(dataflow, 2)
    fewer = {one: worker for one, worker in whole.worker_of.items() if one != Instance("count", 1)}
    with pytest.raises(OptionError, match="no worker for count#1"):
        Job(dataflow, Placement(fewer, 2), ThreadLauncher())
    with pytest.raises(OptionError, match="has other#0, which the dataflow has not"):
        Job(dataflow, Placement({**whole.worker_of, Instance("other", 0): 0}, 2), ThreadLauncher())


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=10))
def test_quiet_needs_two_equal_rounds_in_which_all_is_worked_off(rounds):
    check = QuietCheck()
    said = [check.round({0: sent}, {0: done}) for sent, done in rounds]
    for i, quiet in enumerate(said):
        calm = i > 0 and rounds[i] == rounds[i - 1] and rounds[i][0] == rounds[i][1]
        assert quiet == calm


def test_processes_run_what_threads_run():
    flow = Flow(parallelism=3)
    read = flow.source(Generated(Zipf(keys=50), rows=3000), time="event_time")
    read.key_by("key").aggregate(window="1 second", n=count()).sink(Memory(), name="out")
    dataflow = flow.dataflow()
    by_threads, by_processes = (
        run(dataflow, workers=3, processes=processes)
        .table("out")
        .sort_by([("key", "ascending"), ("window_start", "ascending")])
        for processes in (False, True)
    )
    assert by_threads.equals(by_processes)
