"""Running jobs get other numbers of instances, at drawn moments, and give what plain Python gives."""

import contextlib
import os
import re
import signal
import threading
import time
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard import count
from steelyard.control import Controller, LargestStep
from steelyard.core import Action, ActionRefusedError, OptionError
from steelyard.core.topology import Instance, Placement
from steelyard.resident import Flow, Generated, Memory, Parquet, Settings, run
from steelyard.resident.jobs import Job, Results
from steelyard.resident.launchers import ProcessLauncher, ThreadLauncher
from steelyard.resident.manifest import Manifest
from steelyard.resident.sources import Read, Reader
from steelyard.workloads import Arrivals, Constant, Zipf
from steelyard.workloads.workload import TIMESTAMP
from tests.resident.test_dealing import Numbers, deal

SECOND = 1_000_000
SCHEMA = pa.schema({"key": pa.string(), "value": pa.int64(), "at": TIMESTAMP})
NUMBERED = pa.schema({"key": pa.string(), "n": pa.int64()})
SIZE, SLIDE, GAP = 10, 5, 4
CASES = 70
PATIENCE = 60.0


class CrashedError(Exception):
    """A worker died, as the test wanted it to."""


class Script:
    """What happens while rows are read: each act when so many rows were read, once, in its order."""

    def __init__(self):
        self.acts, self._read, self._goes_on, self._lock = [], 0, lambda: True, threading.Lock()

    def then(self, rows, act, goes_on=lambda: True):
        """Something to do, and whether sources may read on behind it."""
        self.acts.append((rows, act, goes_on))

    def may_read(self, rows):
        """Whether a source may read now; does what is due."""
        with self._lock:
            if not self._goes_on():
                return False
            self._read += rows
            if not self.acts or self._read < self.acts[0][0]:
                return True
            _, act, self._goes_on = self.acts.pop(0)
        act()
        return False


@dataclass(frozen=True)
class Scripted(Reader):
    """Splits of rows in the order of their times; (key, value, second)."""

    tables: tuple
    script: Any
    schema: pa.Schema = SCHEMA

    def splits(self, parallelism):
        return [str(number) for number in range(len(self.tables))]

    def read(self, split, offset, rows):
        mine = self.tables[int(split)]
        if offset < len(mine) and not self.script.may_read(min(rows, len(mine) - offset)):
            return Read(None, offset, False)
        part = mine[offset : offset + rows]
        after = offset + len(part)
        columns = [[one[at] * (SECOND if at == 2 else 1) for one in part] for at in range(3)]
        arrays = [pa.array(one, kind.type) for one, kind in zip(columns, SCHEMA, strict=True)]
        return Read(pa.record_batch(arrays, schema=SCHEMA) if part else None, after, after >= len(mine))


def starts_of(at):
    return range(at // SLIDE * SLIDE, at - SIZE, -SLIDE)


def seconds(time):
    return int(time.timestamp())


WINDOW = {"window": f"{SIZE} seconds", "slide": f"{SLIDE} seconds"}


def counted(read, grouping="hash", **how):
    return read.key_by("key", grouping=grouping).aggregate(n=count(), name="made", parallelism=2, **how)


def numbers(read):
    return read.key_by("key").process(lambda context: Numbers(), NUMBERED, deal=deal, name="made", parallelism=2)


def joined(read, tables, broadcast=False, **how):
    others = read.flow.source(Scripted(tables, Script()), time="at", batch_rows=3, name="other", parallelism=2)
    renamed = others.select("key", "at", more="value", name="renamed")
    left, right = (read.shuffle(), renamed.broadcast()) if broadcast else (read, renamed)
    return left.join(right, on="key", name="made", parallelism=2, **how)


def of_windows(rows):
    return Counter(Counter((key, start) for key, _, at in rows for start in starts_of(at)).items())


def of_sessions(rows):
    times, found = defaultdict(list), Counter()
    for key, _, at in rows:
        times[key].append(at)
    for key, some in times.items():
        parts = [[]]
        for at in sorted(some):
            if parts[-1] and at - parts[-1][-1] > GAP:
                parts.append([])
            parts[-1].append(at)
        found.update(((key, part[0]), len(part)) for part in parts)
    return found


def shown_windows(table):
    return Counter(((row["key"], seconds(row["window_start"])), row["n"]) for row in table.to_pylist())


def of_keys(rows):
    return Counter(Counter(key for key, *_ in rows).items())


def shown_keys(table):
    return Counter((row["key"], row["n"]) for row in table.to_pylist())


def shown_last(table):
    """The newest of each key: numbers only ever grow, and nothing is given twice."""
    given_rows = shown_keys(table)
    assert set(given_rows.values()) <= {1}
    return Counter({key: max(n for one, n in given_rows if one == key) for key, _ in given_rows}.items())


def of_numbers(rows):
    return Counter((key, n + 1) for key, many in Counter(key for key, *_ in rows).items() for n in range(many))


def of_pairs(rows, windowed=True):
    return Counter(
        (left[1], right[1], start)
        for left in rows
        for right in rows
        if left[0] == right[0]
        for start in (set(starts_of(left[2])) & set(starts_of(right[2])) if windowed else [None])
    )


def shown_pairs(table):
    return Counter(
        (row["value"], row["more"], seconds(row["window_start"]) if "window_start" in row else None)
        for row in table.to_pylist()
    )


SESSION = {"session": f"{GAP} seconds"}
KINDS = {
    "windows": (lambda read, _: counted(read, **WINDOW), of_windows, shown_windows),
    "windows, keys split": (lambda read, _: counted(read, "dalton", **WINDOW), of_windows, shown_windows),
    "sessions": (lambda read, _: counted(read, **SESSION), of_sessions, shown_windows),
    "sessions, keys split": (lambda read, _: counted(read, "pk2", **SESSION), of_sessions, shown_windows),
    "in the end": (lambda read, _: counted(read, emit="end"), of_keys, shown_keys),
    "as it comes": (lambda read, _: counted(read), of_keys, shown_last),
    "by epochs": (lambda read, _: counted(read, emit="epochs"), of_keys, shown_last),
    "a user's": (lambda read, _: numbers(read), of_numbers, shown_keys),
    "join": (joined, lambda rows: of_pairs(rows, windowed=False), shown_pairs),
    "windowed join": (lambda read, tables: joined(read, tables, **WINDOW), of_pairs, shown_pairs),
    "broadcast join": (lambda read, tables: joined(read, tables, broadcast=True, **WINDOW), of_pairs, shown_pairs),
}
"""What is made of rows, what plain Python makes of them, and what a table has of it."""


def flow_of(kind, tables, script, sink=None, batch_rows=3, groups=128, chained=False):
    flow = Flow(kind, parallelism=2, groups=groups)
    read = flow.source(Scripted(tables, script), time="at", batch_rows=batch_rows, name="read")
    kept = read.shuffle().filter(pc.field("value") > -100, name="kept")
    made = KINDS[kind][0](kept, tables)
    (made if chained else made.shuffle()).sink(sink or Memory(), name="out", parallelism=2 if chained else 1)
    return flow.dataflow()


def right(kind, table, tables):
    """Whether a table has what plain Python makes of the rows."""
    _, expected, shown = KINDS[kind]
    return shown(table) == expected([row for one in tables for row in one])


def timed(table):
    """Rows with their times, which ascend."""
    at, found = 0, []
    for key, value, more in table:
        at += more
        found.append((key, value, at))
    return tuple(found)


def ended(job):
    """Run a job to its end, with patience."""
    found = []
    thread = threading.Thread(target=lambda: found.append(job.run()), daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert found, "it came to its end"
    return found[0]


def crash():
    raise CrashedError("a worker died")


keyed = st.tuples(st.sampled_from("abcdef"), st.integers(-9, 9), st.integers(0, 3))
"""(key, value, seconds since the row before in its split)."""
drawn_tables = st.lists(st.lists(keyed, min_size=4, max_size=12), min_size=1, max_size=4)
drawn_numbers = st.dictionaries(st.sampled_from(["read", "kept", "made", "out"]), st.integers(1, 4), min_size=1)
drawn_acts = st.lists(
    st.tuples(st.integers(1, 8), drawn_numbers, st.sampled_from(["", "", "dies", "again"])), min_size=1, max_size=3
)


@settings(max_examples=CASES)
@given(st.sampled_from(sorted(KINDS)), drawn_tables, drawn_acts, st.integers(1, 4))
def test_drawn_jobs_that_are_rescaled_at_drawn_moments_give_what_plain_python_gives(
    tmp_path_factory, kind, drawn, acts, batch_rows
):
    tables, script = tuple(map(timed, drawn)), Script()
    dataflow = flow_of(kind, tables, script, batch_rows=batch_rows)
    store = tmp_path_factory.mktemp("rescaled")
    how = Settings(store=str(store), interval=0.05, heartbeat=0.05, restarts=20)
    job = Job(dataflow, Placement.spread(dataflow, 2), ThreadLauncher(), how)
    due, moves, now = 0, [0], {one.name: one.parallelism for one in dataflow.operators}
    for more, wanted, then in acts:
        due += more
        if "made partials" in dataflow.by_name and "kept" in wanted:
            wanted = wanted | {"made partials": wanted["kept"]}  # noqa: PLW2901
        twice = then == "again"  # the second comes before the first is done
        before, now = now, now | wanted | (SECOND_WISH if twice else {})
        moves.append(moves[-1] + (now != before))  # numbers that are there already move nothing
        script.then(due, partial(rescale, job, wanted, twice), partial(has_moved, job, moves[-1]))
        if then == "dies":
            script.then(due, crash)
    outcome = ended(job)
    assert right(kind, Results(dataflow, outcome).table("out"), tables)
    done = len(acts) - sum(one[1] is not crash for one in script.acts)
    assert has_moved(job, moves[done]), "in one way or the other"


SECOND_WISH = {"made": 3, "read": 1}


def rescale(job, wanted, twice=False):
    job.rescale(wanted)
    if twice:
        job.rescale(SECOND_WISH)


def has_moved(job, times):
    return job.outcome.moves + sum(one.in_place for one in job.outcome.rescalings) >= times


TABLES = tuple(timed([("abcdef"[(n * n + split) % 6], n, 1) for n in range(12)]) for split in range(3))


def stored(tmp_path, **how):
    return Settings(store=str(tmp_path / "store"), heartbeat=0.05, **how)


def forward(script):
    flow = Flow("forward", parallelism=2)
    read = flow.source(Scripted(TABLES, script), time="at", batch_rows=2, name="read")
    read.key_by("key").aggregate(n=count(), emit="end", name="made").sink(Memory(), name="out")
    return flow.dataflow()


def test_forward_edges_are_rescaled_at_both_ends_or_not_at_all(tmp_path):
    script = Script()
    dataflow = forward(script)
    job = Job(dataflow, Placement.spread(dataflow, 2), ThreadLauncher(), stored(tmp_path))
    words = (
        r"edge made -> out is forward, .* rescale all that forward edges join, as in \{'made': 3, 'out': 3\}, or write"
    )
    with pytest.raises(OptionError, match=words):
        job.rescale({"made": 3})
    with pytest.raises(OptionError, match="'mode'"):
        job.rescale({"mode": 3})
    with pytest.raises(OptionError, match="has parallelism 200, and keys are of 128 groups"):
        job.rescale({"made": 200, "out": 200})
    with pytest.raises(OptionError, match="takes a snapshot"):
        Job(dataflow, Placement.spread(dataflow, 2), ThreadLauncher()).rescale({"made": 3, "out": 3})
    wanted = {"made": 3, "out": 3}
    wider = partial(job.rescale, wanted, Placement.spread(dataflow.rescaled(wanted), 3))
    script.then(9, wider, partial(has_moved, job, 1))
    outcome = ended(job)
    assert (outcome.moves, outcome.rescales) == (1, 1)
    assert shown_keys(Results(dataflow, outcome).table("out")) == of_keys([row for one in TABLES for row in one])
    assert {name for name in outcome.metrics if name.startswith("made")} == {"made#0", "made#1", "made#2"}


def without_deal(script):
    flow = Flow("numbers", parallelism=2)
    read = flow.source(Scripted(TABLES, script), time="at", batch_rows=2, name="read")
    made = read.key_by("key").process(lambda context: Numbers(), NUMBERED, name="made")
    made.shuffle().sink(Memory(), name="out")
    return flow.dataflow()


def test_a_step_that_does_not_say_how_its_state_is_dealt_out_keeps_its_number(tmp_path):
    script = Script()
    dataflow = without_deal(script)
    job = Job(dataflow, Placement.spread(dataflow, 2), ThreadLauncher(), stored(tmp_path))
    script.then(5, lambda: job.rescale({"made": 3}), lambda: bool(job.outcome.refused))  # nobody knows of a state yet
    outcome = ended(job)
    words = (
        r"operator 'made' keeps its number of instances, 2: it has a state \(seen\), .* give process\(..., deal=...\)"
    )
    assert re.match(words, outcome.refused)
    assert (outcome.rescales, outcome.restarts) == (0, 0)
    assert shown_keys(Results(dataflow, outcome).table("out")) == of_numbers([row for one in TABLES for row in one])
    with pytest.raises(OptionError, match=words):  # now it is known
        job.rescale({"made": 3})
    with pytest.raises(ActionRefusedError, match=words):
        job.apply(Action({"made": 3}))
    with pytest.raises(OptionError, match=words):
        run(dataflow.rescaled({"made": 3}), settings=stored(tmp_path))


def test_a_job_starts_with_other_numbers_than_its_snapshot_has_if_that_was_at_rest(tmp_path, monkeypatch):
    script = Script()
    dataflow = flow_of("windows", TABLES, script)
    job = Job(dataflow, Placement.spread(dataflow, 2), ThreadLauncher(), stored(tmp_path))
    script.then(15, job.stop, lambda: False)
    given_rows = Results(dataflow, ended(job)).table("out")
    wider = flow_of("windows", TABLES, Script()).rescaled({"made": 3, "read": 1, "kept": 4})
    with monkeypatch.context() as patch:
        patch.setattr(Manifest, "is_at_rest", property(lambda _: False))
        words = r"ended while rows were under way .*\('read' had 2 instances, and has 1; 'kept' .*: start the dataflow"
        with pytest.raises(OptionError, match=words):
            run(wider, settings=stored(tmp_path))
    rest = run(wider, settings=stored(tmp_path)).table("out")
    assert rest.num_rows
    assert right("windows", pa.concat_tables([given_rows, rest]), TABLES)


@pytest.mark.parametrize("known", [True, False])
def test_keys_that_are_shared_out_by_other_groups_go_where_their_rows_will(tmp_path, monkeypatch, known):
    script = Script()
    dataflow = flow_of("in the end", TABLES, script, groups=2)
    job = Job(dataflow, Placement.spread(dataflow, 2), ThreadLauncher(), stored(tmp_path))
    script.then(15, job.stop, lambda: False)
    assert ended(job).epochs == 1
    if (
        not known
    ):  # before there were groups, a key was with the instance that its hash gave by itself: as with two of two
        monkeypatch.setattr(Manifest, "groups", property(lambda _: 0))
    got = run(flow_of("in the end", TABLES, Script(), groups=7), settings=stored(tmp_path))
    assert right("in the end", got.table("out"), TABLES)


def test_routers_by_cost_begin_anew_among_other_instances(tmp_path):
    script = Script()
    flow = Flow("costs", parallelism=2)
    read = flow.source(Scripted(TABLES, script), time="at", batch_rows=2, name="read")
    mapped = read.shuffle("osg?cost_of=key").map(lambda batch: batch, SCHEMA, name="mapped")
    mapped.key_by("key").aggregate(n=count(), emit="end", name="made").shuffle().sink(Memory(), name="out")
    dataflow = flow.dataflow()
    job = Job(dataflow, Placement.spread(dataflow, 2), ThreadLauncher(), stored(tmp_path))
    for times, mapped_by in enumerate((3, 1, 2)):
        script.then(8 * times + 4, partial(job.rescale, {"mapped": mapped_by}), partial(has_moved, job, times + 1))
    outcome = ended(job)
    assert outcome.rescales == 3
    assert shown_keys(Results(dataflow, outcome).table("out")) == of_keys([row for one in TABLES for row in one])


class Wider:
    """Wants one more instance of the aggregate at each look at which rows flow."""

    needs = ("operators",)

    def decide(self, seen):
        flows = any(one.name == "kept" and one.processed_per_second for one in seen.operators)
        return Action({"made": seen.parallelism["made"] + 2}, "wider") if flows else Action()


def test_a_policy_scales_a_running_job_under_guards(tmp_path):
    script = Script()
    dataflow = flow_of("windows", TABLES, script, batch_rows=1)
    job = Job(dataflow, Placement.spread(dataflow, 2), ThreadLauncher(), stored(tmp_path))
    script.then(6, lambda: None, partial(has_moved, job, 1))
    script.then(20, lambda: None, partial(has_moved, job, 2))
    thread = threading.Thread(target=job.run, daemon=True)
    thread.start()
    controller = Controller(job, Wider(), [LargestStep(up=1)])
    controller.run(PATIENCE, every=0.05)
    thread.join(PATIENCE)
    assert job.ended
    assert job.outcome.rescales >= 2
    assert not [one.refused for one in controller.decisions if one.refused]
    assert controller.decisions[0].done.parallelism == {"made": 3}
    assert len([one for one in job.outcome.metrics if one.startswith("made#")]) >= 4
    assert right("windows", Results(dataflow, job.outcome).table("out"), TABLES)


def test_what_forward_edges_join_is_scaled_together_by_a_policy(tmp_path):
    dataflow = forward(Script())
    job = Job(dataflow, Placement.spread(dataflow, 2), ThreadLauncher(), stored(tmp_path))
    job.apply(Action({"made": 1}))
    assert [one.parallelism for one in job._next[0].operators] == [2, 1, 1]
    job.apply(Action({"made": 3}, placement={"made#2": 1}))
    assert job._next[0].by_name["out"].parallelism == 3
    assert job._next[1].worker_of[Instance("made", 2)] == 1
    job.apply(Action({"made": 1, "out": 1}))
    assert [one.parallelism for one in job._next[0].operators] == [2, 1, 1]


def waited(condition):
    """Whether something came to be, in time."""
    deadline = time.monotonic() + PATIENCE
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.005)
    return condition()


def new_of(job, there):
    """Processes of workers that were not there."""
    return [one.pid for one in job.workers.values() if one.pid not in there]


def as_text(batch):
    return pa.record_batch({"key": batch.column("key").cast(pa.string())})


@pytest.mark.parametrize("protocol", ["unaligned", "uncoordinated", "stop_the_world"])
def test_processes_that_are_killed_behind_a_rescale_write_every_row_once(tmp_path, protocol):
    rate, rows, zipf = 3000, 9000, Zipf(keys=40)
    flow = Flow("killed", parallelism=2)
    read = flow.source(Generated(zipf, rows=rows, pace=Constant(rate), pieces=3), name="read", batch_rows=200)
    keys = read.shuffle().map(as_text, {"key": "string"}, name="keys")
    made = keys.key_by("key").process(lambda context: Numbers(), NUMBERED, deal=deal, name="made")
    made.shuffle().sink(Parquet(str(tmp_path / "out")), name="sink", parallelism=3)
    dataflow = flow.dataflow()
    how = stored(tmp_path, interval=0.1, restarts=20, protocol=protocol)
    job = Job(dataflow, Placement.spread(dataflow, 2), ProcessLauncher(), how)
    thread = threading.Thread(target=job.run, daemon=True)
    thread.start()
    for times, wanted in enumerate([{"made": 3, "sink": 1}, {"made": 1, "read": 3, "sink": 4}, {"made": 4}]):
        assert waited(lambda: any(one["rows_in"] for one in job.metrics.values()) or job.ended)
        there = {one.pid for one in job.workers.values()}
        job.rescale(wanted, in_place=False)
        assert waited(lambda times=times: job.outcome.rescales > times or job.ended)
        assert waited(lambda there=there: new_of(job, there) or job.ended)
        for pid in new_of(job, there)[:1]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    thread.join(PATIENCE)
    assert job.ended
    assert job.outcome.rescales >= 1
    assert job.outcome.restarts >= 1
    found = Counter(tuple(row.values()) for row in pq.read_table(tmp_path / "out").to_pylist())
    given_keys = zipf.rows(0, rows, Arrivals().times(0, rows)).column("key").to_pylist()
    assert found == of_numbers([(str(key),) for key in given_keys])
    assert not list((tmp_path / "out").glob("_staged*"))
