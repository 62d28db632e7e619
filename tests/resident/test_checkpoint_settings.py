"""Running jobs take checkpoints at another interval, or by another protocol, and give what they would have given."""

import contextlib
import os
import signal
import threading
import time
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard import count
from steelyard.control import Controller
from steelyard.core import Action, ActionRefusedError, OptionError
from steelyard.core.checkpointing import CHECKPOINT_INTERVAL, CHECKPOINT_PROTOCOL
from steelyard.core.topology import Placement
from steelyard.resident import Flow, Generated, Memory, Settings
from steelyard.resident.jobs import Job, Results
from steelyard.resident.launchers import ProcessLauncher, ThreadLauncher
from steelyard.scaling import Together
from steelyard.workloads import Constant, Zipf
from tests.resident.test_protocols import LIVE, OF_A_KIND
from tests.resident.test_rescaling import KINDS, TABLES, Script, crash, drawn_tables, ended, flow_of, right, timed

NEVER = 1000.0
"""An interval that is longer than any job here."""
ALL = [*OF_A_KIND, "stop_the_world", "none"]
TAKING = [*LIVE, "stop_the_world"]

drawn_acts = st.lists(
    st.tuples(
        st.integers(1, 8),
        st.sampled_from([0.01, 0.05, NEVER]),
        st.sampled_from([None, None, *ALL]),
        st.sampled_from(["", "", "dies", "waits", "rescales"]),
    ),
    min_size=1,
    max_size=3,
)


def job_of(dataflow, store, protocol, interval, **how):
    given_settings = Settings(str(store), interval=interval, protocol=protocol, heartbeat=0.05, restarts=20, **how)
    return Job(dataflow, Placement.spread(dataflow, 2), ThreadLauncher(), given_settings)


def change(job, interval, protocol, then):
    job.set_checkpoints(interval, protocol)
    if then == "rescales":
        job.rescale({"made": 3})


@settings(max_examples=20)
@given(
    st.sampled_from(sorted(KINDS)),
    st.sampled_from(ALL),
    st.sampled_from([0.02, NEVER]),
    drawn_tables,
    drawn_acts,
    st.integers(1, 4),
)
def test_drawn_changes_at_drawn_moments_leave_every_answer_as_it_is(
    tmp_path_factory, kind, protocol, interval, drawn, acts, batch_rows
):
    tables, script = tuple(map(timed, drawn)), Script()
    dataflow = flow_of(kind, tables, script, batch_rows=batch_rows)
    job = job_of(dataflow, tmp_path_factory.mktemp("settings"), protocol, interval)
    due, now, rows = 0, way(protocol), sum(map(len, tables))
    for more, seconds, wanted, then in acts:
        due = min(due + more, rows)
        moves = Moves(job, then == "waits" and wanted is not None and way(wanted) != now)
        now = now if wanted is None else way(wanted)
        script.then(due, partial(moves.after, partial(change, job, seconds, wanted, then)), moves.came)
        if then == "dies":
            script.then(due, crash)
    outcome = ended(job)
    assert script.acts == [], "all of it came to pass"
    assert right(kind, Results(dataflow, outcome).table("out"), tables)


def way(protocol):
    return Settings("folder", interval=1.0, protocol=protocol).way


class Moves:
    """Reading waits until the next generation has begun, if it is to."""

    def __init__(self, job, waits):
        self.job, self.waits, self.before = job, waits, 0

    def after(self, act):
        self.before = self.job.outcome.moves
        act()

    def came(self):
        return not self.waits or self.job.outcome.moves > self.before


@pytest.mark.parametrize("protocol", TAKING)
def test_another_interval_holds_while_the_same_workers_run(tmp_path, protocol):
    """With the first interval nothing would ever be committed while rows come: reading waits until something is."""
    script = Script()
    dataflow = flow_of("in the end", TABLES, script)
    job = job_of(dataflow, tmp_path, protocol, NEVER)
    faster = Action(settings={CHECKPOINT_INTERVAL: "0.01"})
    script.then(9, partial(job.apply, faster), lambda: job.outcome.epochs > 0)
    outcome = ended(job)
    assert (outcome.moves, outcome.restarts) == (0, 0)
    assert right("in the end", Results(dataflow, outcome).table("out"), TABLES)


@pytest.mark.parametrize("protocol", TAKING)
def test_another_interval_holds_behind_a_failure_and_behind_a_cut(tmp_path, protocol):
    script = Script()
    dataflow = flow_of("in the end", TABLES, script)
    job = job_of(dataflow, tmp_path, protocol, NEVER)
    known = []

    def note_and(act):
        known.append(job.outcome.epochs)
        act()

    def has_more():
        return job.outcome.epochs > known[-1]

    script.then(9, partial(job.set_checkpoints, 0.01), lambda: job.outcome.epochs > 0)
    script.then(12, partial(note_and, crash))
    script.then(15, lambda: None, has_more)
    script.then(18, partial(note_and, partial(job.rescale, {"made": 3})), lambda: job.outcome.rescales > 0)
    script.then(21, lambda: None, has_more)
    outcome = ended(job)
    assert outcome.restarts == 1
    assert len(known) == 2
    assert right("in the end", Results(dataflow, outcome).table("out"), TABLES)


@pytest.mark.parametrize("protocol", ["uncoordinated", "stop_the_world"])
def test_another_protocol_holds_from_the_next_generation_on(tmp_path, protocol):
    script = Script()
    dataflow = flow_of("in the end", TABLES, script)
    job = job_of(dataflow, tmp_path, "unaligned", NEVER)
    shown = []
    other = Action(settings={CHECKPOINT_PROTOCOL: protocol, CHECKPOINT_INTERVAL: "0.01"})
    script.then(6, lambda: shown.append(job.observe().checkpoints.settings))
    script.then(9, partial(job.apply, other), lambda: job.outcome.moves == 1)
    script.then(12, lambda: shown.append(job.observe()), lambda: job.outcome.epochs > 1)
    outcome = ended(job)
    assert shown[0] == {CHECKPOINT_INTERVAL: "1000", CHECKPOINT_PROTOCOL: "unaligned"}
    assert other.changes(shown[1]).is_nothing, "it is so already"
    assert outcome.restarts == 0
    assert ("local" in outcome.checkpoints.taken) == (protocol == "uncoordinated")
    assert outcome.checkpoints.moments > 0
    assert right("in the end", Results(dataflow, outcome).table("out"), TABLES)


def test_what_cannot_be_is_refused_and_changes_nothing(tmp_path):
    dataflow = flow_of("in the end", TABLES, Script())
    job = job_of(dataflow, tmp_path, "unaligned?interval=5", 5.0)
    for told, words in [
        ({CHECKPOINT_INTERVAL: "0"}, "above 0 seconds"),
        ({CHECKPOINT_INTERVAL: "inf"}, "above 0 seconds, got inf"),
        ({CHECKPOINT_INTERVAL: "nan"}, "above 0 seconds, got nan"),
        ({CHECKPOINT_INTERVAL: "soon"}, "must be a number of seconds, got 'soon'"),
        ({CHECKPOINT_PROTOCOL: "uncoordinatet"}, "uncoordinated"),
        ({CHECKPOINT_PROTOCOL: "uncoordinated?interval=2"}, "its interval is that of the job, 5 s here"),
        ({"colour": "red"}, "colour"),
    ]:
        with pytest.raises(ActionRefusedError, match=words):
            job.apply(Action({"made": 3}, settings=told))
    without = Job(dataflow, Placement.spread(dataflow, 2), ThreadLauncher())
    with pytest.raises(OptionError, match="checkpoints need a folder"):
        without.set_checkpoints(1.0)
    assert "checkpoints" not in without.shows
    outcome = ended(job)
    assert (outcome.moves, outcome.rescales) == (0, 0)


APART = "hybrid?regions=out:uncoordinated"
"""Only where `out` runs in a thread of its own is there anything that could be in a region."""


def test_a_protocol_that_does_not_fit_what_runs_is_refused_wherever_it_is_wished(tmp_path):
    script = Script()
    dataflow = flow_of("in the end", TABLES, script, chained=True)
    beside, how = Placement.spread(dataflow, 2), Settings(str(tmp_path), interval=5.0, protocol=APART)
    apart = Placement({one: (one.number + (one.operator == "out")) % 2 for one in dataflow.instances}, 2)
    with pytest.raises(OptionError, match="'out'"):
        Job(dataflow, beside, ThreadLauncher(), how)
    job = Job(dataflow, apart, ThreadLauncher(), how)
    more = dataflow.rescaled({"made": 3, "out": 3})
    for wish in (
        partial(job.move, beside),
        partial(job.rescale, {"made": 3, "out": 3}, Placement.spread(more, 2)),
        partial(job.rescale, {"made": 3, "out": 3}, Placement.spread(more, 2), in_place=False),
        partial(job.set_checkpoints, protocol="hybrid?regions=typo:coordinated"),
    ):
        with pytest.raises(OptionError, match=r"'(out|typo)'"):
            wish()
    job.set_checkpoints(protocol="unaligned")
    job.move(beside)
    with pytest.raises(ActionRefusedError, match="'out'"):
        job.apply(Action(settings={CHECKPOINT_PROTOCOL: APART}))
    script.then(3, lambda: None, lambda: job.outcome.moves > 0)
    outcome = ended(job)
    assert (outcome.moves, outcome.restarts) == (1, 0)
    assert right("in the end", Results(dataflow, outcome).table("out"), TABLES)


def test_a_protocol_that_is_set_before_the_job_runs_is_that_of_its_first_workers(tmp_path):
    script, held = Script(), []
    script.then(3, lambda: held.append(time.monotonic()), lambda: time.monotonic() > held[0] + 0.3)
    dataflow = flow_of("in the end", TABLES, script)
    job = job_of(dataflow, tmp_path, "unaligned", NEVER)
    job.set_checkpoints(0.01, "uncoordinated")
    assert ended(job).moves == 0
    assert job.observe().checkpoints.protocol == "uncoordinated"


class Meanwhile(Job):
    """Takes checkpoints otherwise when its first coordinator is made, and nobody knows of him yet."""

    def _coordinator(self, number):
        made = super()._coordinator(number)
        if number == 0:
            self.set_checkpoints(0.01, "uncoordinated")
        return made


def test_a_protocol_that_is_set_while_workers_are_begun_is_that_of_the_next(tmp_path):
    script = Script()
    dataflow = flow_of("in the end", TABLES, script)
    job = Meanwhile(dataflow, Placement.spread(dataflow, 2), ThreadLauncher(), Settings(str(tmp_path), interval=NEVER))
    script.then(3, lambda: None, lambda: job.outcome.moves > 0)
    outcome = ended(job)
    assert outcome.moves == 1
    assert right("in the end", Results(dataflow, outcome).table("out"), TABLES)


class Costly(Job):
    """Each generation ends with a checkpoint that took very long."""

    def _goes_on(self):
        self.outcome.checkpoints.all_stopped([1], 1, 100.0, 100.0)
        return super()._goes_on()


def test_what_the_protocol_before_cost_until_its_end_is_not_shown_of_the_next(tmp_path):
    script, shown = Script(), []
    dataflow = flow_of("in the end", TABLES, script)
    how = Settings(str(tmp_path), interval=NEVER, protocol="stop_the_world", heartbeat=0.05)
    job = Costly(dataflow, Placement.spread(dataflow, 2), ThreadLauncher(), how)
    script.then(9, partial(job.set_checkpoints, protocol="unaligned"), lambda: job.outcome.moves == 1)
    script.then(12, lambda: shown.append(job.observe().checkpoints))
    ended(job)
    assert (shown[0].protocol, shown[0].costs, shown[0].seconds) == ("unaligned", 0.0, 0.0)


def test_of_two_who_change_something_at_once_neither_undoes_what_the_other_did(tmp_path, monkeypatch):
    """Each looks at what is, and waits for the other to do so too, before he says what is to be."""
    dataflow = flow_of("in the end", TABLES, Script())
    job = job_of(dataflow, tmp_path, "unaligned", NEVER)
    both, plain = threading.Barrier(2), Settings.with_checkpoints

    def slowly(*given):
        found = plain(*given)
        with contextlib.suppress(threading.BrokenBarrierError):
            both.wait(0.3)
        return found

    monkeypatch.setattr(Settings, "with_checkpoints", slowly)
    wishes = (partial(job.set_checkpoints, 5.0, None), partial(job.set_checkpoints, None, "uncoordinated"))
    threads = [threading.Thread(target=wish) for wish in wishes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60.0)
    monkeypatch.undo()
    ended(job)
    shown = job.observe().checkpoints
    assert (shown.interval, shown.protocol) == (5.0, "uncoordinated")


class OnlyCheckpoints(Together):
    """Together, with nothing to do but checkpoints: how many rows come is not what is looked at here."""

    def _move(self, seen):
        return None


def test_failures_bring_together_to_another_interval(tmp_path):
    """Workers are killed; Young's root then says more often than once in many minutes, and so it is done."""
    rows = 4000
    flow = Flow("killed")
    read = flow.source(Generated(Zipf(keys=9), rows=rows, pace=Constant(800.0)), batch_rows=40, name="log")
    read.key_by("key").aggregate(n=count(), emit="end", name="made", parallelism=2).sink(Memory(), name="out")
    dataflow = flow.dataflow()
    how = Settings(str(tmp_path), interval=0.2, protocol="stop_the_world", heartbeat=0.05)
    job = Job(dataflow, Placement.spread(dataflow, 2), ProcessLauncher(), how)
    thread = threading.Thread(target=job.run, daemon=True)
    thread.start()
    controller, killed = Controller(job, OnlyCheckpoints(), history=None), []
    before = []
    while not job.ended:
        job.advance(0.2)
        if job.ended:
            break
        decision = controller.look()
        if len(killed) < 2:
            before += [decision.done] if decision is not None else []
        victim = job.workers.get(1)
        if len(killed) < 2 and job.outcome.epochs > 1 and victim is not None and victim.pid not in killed:
            job.set_checkpoints(NEVER)
            os.kill(victim.pid, signal.SIGKILL)
            killed.append(victim.pid)
    thread.join(60.0)
    assert all(CHECKPOINT_INTERVAL not in one.settings for one in before), "one failure says nothing yet"
    done = [one.done for one in controller.decisions if CHECKPOINT_INTERVAL in one.done.settings]
    assert done, "two failures came"
    assert 0 < float(done[0].settings[CHECKPOINT_INTERVAL]) < NEVER / 2
    assert "a failure comes every" in done[0].reason
    assert controller.seen.checkpoints.interval < NEVER
    assert len(controller.seen.checkpoints.failed_at) == 2
    assert controller.seen.checkpoints.costs > 0
    assert sum(Results(dataflow, job.outcome).table("out")["n"].to_pylist()) == rows
