"""Workers that die are forked again by supervisors that stay; supervisors that die are followed by others."""

import contextlib
import os
import signal
import socket
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from steelyard import count
from steelyard.core.topology import Placement
from steelyard.resident import Flow, Generated, JobError, Memory, Settings
from steelyard.resident import launchers as launching
from steelyard.resident.control import packed
from steelyard.resident.gang import Gang, GenerationError
from steelyard.resident.jobs import Job
from steelyard.resident.launchers import ProcessLauncher
from steelyard.resident.pulse import Pulse
from steelyard.resident.security import LAUNCHER, Credentials, Identity
from steelyard.resident.supervision import Supervision
from steelyard.resident.supervisor import TO_LAUNCHER, Supervisor
from steelyard.resident.wire import Kind
from steelyard.resident.worker import Worker
from steelyard.workloads import Zipf
from steelyard.workloads.rates import Constant
from tests.cluster.programs import Program, family
from tests.resident.relay import authority

SECONDS = 60.0
ROWS = 2500


def eventually(condition, what="it"):
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not come"
        time.sleep(0.005)


def counted(rows=ROWS, before=None):
    """Words in windows, at a pace."""
    flow = Flow("supervised", parallelism=2)
    reader = Generated(Zipf(keys=20, seed=3), rows=rows, pace=Constant(2500), pieces=2, block_rows=64)
    read = flow.source(reader, time="event_time", batch_rows=64, name="read").shuffle()
    passed = read.map(before or (lambda batch: batch), name="pass")
    passed.key_by("key").aggregate(window="100 milliseconds", n=count(), name="count").sink(Memory(), name="out")
    return flow.dataflow()


def right_answer(rows=ROWS):
    """The same in plain Python."""
    whole = Generated(Zipf(keys=20, seed=3), rows=rows, pieces=1, block_rows=rows)
    whole.splits(1)
    made = whole.read("0", 0, rows).batch
    starts = [at.replace(microsecond=at.microsecond // 100_000 * 100_000) for at in made["event_time"].to_pylist()]
    return Counter(zip(made["key"].to_pylist(), starts, strict=True))


def answer(outcome):
    table = pa.Table.from_batches(outcome.results["out"])
    found = Counter({(row["key"], row["window_start"]): row["n"] for row in table.to_pylist()})
    assert table.num_rows == len(found), "a window came twice"
    return found


def children_of(pid):
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def kill(pid, number=signal.SIGKILL):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


class Running:
    """A job on processes, in a thread."""

    def __init__(self, folder, dataflow=None, workers=2, tls=None, begin=True, **options):
        self.dataflow = dataflow or counted()
        self.launcher = ProcessLauncher()
        how = Settings(**{"store": str(folder), "interval": 0.05, "heartbeat": 0.1, "restarts": 100, **options})
        self.job = Job(
            self.dataflow, Placement.spread(self.dataflow, workers), self.launcher, how, Credentials.new(tls)
        )
        self._ended = []
        self.thread = threading.Thread(target=self._run, daemon=True)
        if begin:
            self.thread.start()

    def _run(self):
        try:
            self._ended.append(self.job.run())
        except BaseException as error:  # noqa: BLE001 - whoever waits raises it
            self._ended.append(error)

    def come(self, workers=2, since=-1):
        """Wait for the workers of a generation behind `since`, or the end; gives the generation."""

        def there():
            found = self.job.workers.values()
            return self._ended or (len(found) == workers and all(one.generation > since for one in found))

        eventually(there, "workers")
        return max((one.generation for one in self.job.workers.values()), default=since)

    def worker(self, number):
        """A worker's process, as soon as it is forked, before it has said anything."""
        supervisor = self.launcher.supervisors.get(number)
        return next(iter(children_of(supervisor)), None) if supervisor else None

    def outcome(self):
        self.thread.join(SECONDS)
        (found,) = self._ended
        if isinstance(found, BaseException):
            raise found
        return found


kills = st.lists(
    st.tuples(st.sampled_from(["forked", "come", "running"]), st.floats(0, 0.15), st.integers(0, 1)),
    min_size=1,
    max_size=4,
)


@settings(max_examples=8, deadline=None)
@given(kills)
@example([("running", 0.1, 0), ("forked", 0.0, 1), ("forked", 0.01, 1), ("come", 0.0, 0)])
def test_workers_killed_at_any_moment_are_forked_again_by_the_same_supervisors(tmp_path_factory, kills):
    running = Running(tmp_path_factory.mktemp("store"))
    generation, victims = running.come(), set()
    supervisors = running.launcher.supervisors
    for moment, pause, number in kills:
        if moment == "running":
            generation = running.come(since=generation) if victims else generation
        elif moment == "come":
            eventually(lambda number=number: running._ended or number in running.job.workers)
        else:
            eventually(lambda number=number: running._ended or running.worker(number) not in {None, *victims})
        time.sleep(pause)
        victim = running.worker(number)
        if victim is not None:
            victims.add(victim)
            kill(victim)
    outcome = running.outcome()
    assert answer(outcome) == right_answer()
    assert outcome.restarts >= 1 or not victims
    assert running.launcher.gangs == 1
    assert not running.launcher.supervisors
    assert not any(Path(f"/proc/{pid}").exists() for pid in (*supervisors.values(), *victims))


def test_a_recovery_says_who_died_how_and_what_noticing_and_restarting_took(tmp_path):
    running = Running(tmp_path)
    running.come()
    before = running.launcher.supervisors
    assert all(len(os.listdir(f"/proc/{pid}/task")) == 1 for pid in before.values()), "one with threads must not fork"
    kill(running.job.workers[1].pid)
    running.come(since=0)
    assert running.launcher.supervisors == before
    outcome = running.outcome()
    assert answer(outcome) == right_answer()
    (recovery,) = outcome.recoveries
    assert recovery.generation == 0
    assert "worker 1" in recovery.why
    assert recovery.detected >= 0
    assert recovery.restarted > 0
    assert recovery.seconds["total"] == recovery.detected + recovery.restarted


def test_the_job_that_fails_says_how_its_worker_ended(tmp_path):
    running = Running(tmp_path, restarts=0)
    running.come()
    kill(running.job.workers[0].pid)
    with pytest.raises(JobError, match="worker 0 was ended by SIGKILL"):
        running.outcome()


def test_a_worker_that_hangs_is_killed_by_its_supervisor_which_stays(tmp_path, monkeypatch):
    monkeypatch.setattr(launching, "FAILED_SECONDS", 0.3)
    running = Running(tmp_path, silence=2.0)
    running.come()
    frozen = running.job.workers[1].pid
    before = running.launcher.supervisors
    kill(frozen, signal.SIGSTOP)
    outcome = running.outcome()
    assert answer(outcome) == right_answer()
    assert running.launcher.gangs == 1, before
    assert outcome.recoveries[0].detected > 1.5, "it was silent before that was noticed"
    assert not Path(f"/proc/{frozen}").exists()


def test_a_supervisor_that_is_killed_takes_its_worker_along_and_others_follow(tmp_path):
    running = Running(tmp_path)
    running.come()
    worker, supervisor = running.worker(1), running.launcher.supervisors[1]
    kill(supervisor)
    eventually(lambda: not Path(f"/proc/{worker}").exists(), "the end of the worker")
    outcome = running.outcome()
    assert answer(outcome) == right_answer()
    assert running.launcher.gangs == 2
    assert outcome.restarts == 1


def test_a_move_to_another_number_of_workers_takes_other_supervisors(tmp_path):
    running = Running(tmp_path)
    running.come()
    running.job.move(Placement.spread(running.dataflow, 1))
    running.come(workers=1, since=0)
    assert running.launcher.gangs == 2
    assert len(running.launcher.supervisors) == 1
    running.job.move(Placement.spread(running.dataflow, 1))
    outcome = running.outcome()
    assert answer(outcome) == right_answer()
    assert running.launcher.gangs == 2
    assert outcome.restarts == 0


def test_workers_die_and_follow_under_tls(tmp_path):
    running = Running(tmp_path / "store", tls=authority(tmp_path)("worker"))
    for generation in range(2):
        running.come(since=generation - 1)
        kill(running.job.workers[generation % 2].pid)
    outcome = running.outcome()
    assert answer(outcome) == right_answer()
    assert outcome.restarts == 2
    assert running.launcher.gangs == 1


class Unmade(Worker):
    def __init__(self, *given):
        raise RuntimeError("it cannot be made")


def test_a_worker_that_dies_before_it_has_come_ends_the_generation_at_once(tmp_path):
    dataflow = counted()
    launcher = ProcessLauncher(Unmade)
    with pytest.raises(JobError, match=r"ended with code 1: RuntimeError: it cannot be made .*the last of 2"):
        Job(dataflow, Placement.spread(dataflow, 2), launcher, Settings(restarts=1)).run()
    assert launcher.gangs == 1


def test_a_supervisor_that_dies_before_it_has_come_is_followed_by_another_at_once(tmp_path, monkeypatch):
    class Dies(Supervisor):
        def run(self, launcher):
            if self._gang == 1 and self._number == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            return super().run(launcher)

    monkeypatch.setattr(launching, "Supervisor", Dies)
    made = counted()
    how = Settings(store=str(tmp_path), interval=0.05, heartbeat=0.1, join=10 * SECONDS)
    begun = time.monotonic()
    outcome = Job(made, Placement.spread(made, 2), ProcessLauncher(), how).run()
    assert time.monotonic() - begun < SECONDS
    assert "supervisor of worker 1 has ended" in outcome.recoveries[0].why
    assert answer(outcome) == right_answer()


def test_why_a_worker_is_gone_is_told_also_where_an_order_comes_to_nobody():
    """Whoever reads from it closes the connection, and the next order finds it closed."""
    gang = Gang(1, Credentials.new(), "127.0.0.1", 0, Pulse(0.5, 30.0), lambda worker, frame: None)
    ours, theirs = socket.socketpair()
    theirs.close()
    ours.close()
    gang._connections[0] = SimpleNamespace(send=lambda *what, **more: ours.send(b"order"), close=ours.close)
    gang.say("metrics", 0)
    gang.say("failed", 0, why="worker 0 was ended by SIGKILL")
    with pytest.raises(GenerationError, match="was ended by SIGKILL"):
        gang.order(0, "begin_round", {"number": 1})
    with pytest.raises(GenerationError, match="worker 0 is gone"):
        gang.order(0, "begin_round", {"number": 1})
    gang.close()


def test_a_job_that_is_stopped_leaves_no_process(tmp_path):
    running = Running(tmp_path, counted(10**9))
    running.come()
    there = [*running.launcher.supervisors.values(), *(one.pid for one in running.job.workers.values())]
    assert len(set(there)) == 4
    running.job.stop()
    running.outcome()
    assert not any(Path(f"/proc/{pid}").exists() for pid in there)


def test_a_launcher_serves_one_job_after_the_other(tmp_path):
    launcher = ProcessLauncher()
    for rows in (300, 600):
        dataflow = counted(rows)
        assert answer(Job(dataflow, Placement.spread(dataflow, 2), launcher).run()) == right_answer(rows)
    assert launcher.gangs == 2


DRIVER = """
import sys
import threading
from tests.resident.test_supervisors import Running, counted
running = Running(sys.argv[1], counted(10**9), begin=False)
threading.Thread(target=lambda: (running.come(), print("come", flush=True)), daemon=True).start()
try:
    running.job.run()
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_no_process_outlives_its_driver(tmp_path, number):
    with Program([sys.executable, "-c", DRIVER, str(tmp_path / "store")], tmp_path / "log") as program:
        eventually(lambda: "come" in program.said() or program.process.poll() is not None, "workers")
        assert len(family(program.process.pid)) == 5, program.said()
        if number == signal.SIGINT:
            os.killpg(program.process.pid, number)  # as a terminal does
        else:
            program.process.send_signal(number)
        eventually(lambda: not family(program.process.pid) or program.process.poll() is None, "the end")
        program.process.wait(SECONDS)
        eventually(lambda: not family(program.process.pid), "the end of all")
        assert ("interrupted" in program.said()) == (number == signal.SIGINT), program.said()


def come(gang, credentials, identity=None):
    return credentials.connect(gang.address, identity or Identity(1, 0, TO_LAUNCHER), LAUNCHER)


@pytest.mark.parametrize(
    "payload", [b"{}", b'{"event": "ended"}', packed("event", "ended", {"generation": 0, "status": "x", "why": ""})]
)
def test_what_a_supervisor_cannot_say_gives_it_up(payload):
    credentials, told = Credentials.new(), []
    gang = Supervision(1, credentials, "127.0.0.1", 1)
    gang.fork(0, ("127.0.0.1", 1), SimpleNamespace(abort=told.append))
    link = come(gang, credentials)
    link.send(Kind.CONTROL, payload=payload)
    eventually(lambda: told)
    assert "the supervisor of worker 0 was not understood" in told[0]
    assert gang.lost == told[0]
    gang.stop()
    gang.close()
    link.close()


@pytest.mark.parametrize("identity", [Identity(1, 7, TO_LAUNCHER), Identity(1, 0, 0), Identity(1, 0, TO_LAUNCHER)])
def test_a_supervisor_that_nobody_awaits_is_refused(identity):
    credentials = Credentials.new()
    gang = Supervision(1, credentials, "127.0.0.1", 1)
    first = come(gang, credentials)
    eventually(lambda: gang._links)
    other = come(gang, credentials, identity)
    with pytest.raises(OSError, match="closed"):
        other.receive()
    assert gang.lost is None
    gang.stop()
    gang.close()
    for link in (first, other):
        link.close()


def test_a_supervisor_that_does_not_answer_is_given_up(monkeypatch):
    monkeypatch.setattr("steelyard.resident.supervision._KILL_SECONDS", 0.1)
    credentials = Credentials.new()
    gang = Supervision(1, credentials, "127.0.0.1", 1)
    link = come(gang, credentials)
    eventually(lambda: gang._links)
    gang.fork(0, ("127.0.0.1", 1), SimpleNamespace())
    gang.gather(0.1)
    assert gang.lost == "the supervisors of workers [0] do not answer"
    gang.stop()
    gang.close()
    link.close()
