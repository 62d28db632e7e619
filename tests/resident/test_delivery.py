"""What sinks in the driver get: each epoch once, in order, whenever a driver ends; and no damage goes unnoticed."""

import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from steelyard.core import OptionError, StateError
from steelyard.core.topology import Placement
from steelyard.resident import Flow, Memory, Rows, Settings, delivery, run
from steelyard.resident.jobs import Job
from steelyard.resident.launchers import ThreadLauncher
from steelyard.resident.snapshot import DELIVERED, SnapshotStore
from tests.damages import DAMAGES, damaged, files_of, olders

ROWS = pa.table({"n": list(range(500))})


EPOCHS = 5
"""At least so many there are in a job that reads slowly."""


@dataclass(frozen=True)
class Slow(Rows):
    """Takes a moment for each read, and a long one until there are some snapshots."""

    folder: Path | None = None

    def read(self, split, offset, rows):
        time.sleep(0.002 if (SnapshotStore(self.folder).latest() or 0) >= EPOCHS else 0.1)
        return super().read(split, offset, rows)


def flow_of(folder=None, reader=Slow):
    flow = Flow("all", parallelism=2)
    rows = Rows(ROWS, pieces=2) if folder is None else reader(ROWS, pieces=2, folder=folder)
    flow.source(rows, batch_rows=10, name="in").sink(Memory(), name="out")
    return flow.dataflow()


class Keeps:
    """What was handed on, by epoch; raises at some calls, before or after it has kept what it got."""

    def __init__(self, fails=(), late=False):
        self.epochs, self.calls, self.fails, self.late = {}, [], set(fails), late

    def __call__(self, epoch, results):
        self.calls.append(epoch)
        wrong = len(self.calls) in self.fails
        if wrong and not self.late:
            raise OSError("the table is locked")
        self.epochs[epoch] = pa.Table.from_batches(results["out"])["n"].to_pylist()
        if wrong:
            raise OSError("the connection was lost")

    @property
    def rows(self):
        return Counter(n for rows in self.epochs.values() for n in rows)


def settings(folder, keeps, restarts=0):
    return Settings(store=str(folder), interval=0.02, heartbeat=0.02, restarts=restarts, deliver=keeps)


def test_epochs_are_handed_on_in_order_each_row_once(tmp_path):
    keeps = Keeps()
    outcome = run(flow_of(tmp_path), settings=settings(tmp_path, keeps)).outcome
    assert keeps.calls == sorted(set(keeps.calls))
    assert len(keeps.calls) > 2
    assert keeps.rows == Counter(range(500))
    assert outcome.results == {}
    again = Keeps()
    run(flow_of(), settings=settings(tmp_path, again))
    assert again.calls == [], "all was handed on before"


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("fails", [1, 2, 3])
def test_an_epoch_that_was_not_handed_on_is_at_the_next_start_and_is_the_same(tmp_path, fails, late):
    keeps = Keeps({fails}, late)
    with pytest.raises(OSError, match=r"locked|lost"):
        run(flow_of(tmp_path), settings=settings(tmp_path, keeps))
    failed, before = keeps.calls[-1], dict(keeps.epochs)
    run(flow_of(tmp_path), settings=settings(tmp_path, keeps))
    assert keeps.calls.count(failed) == 2
    assert keeps.calls[fails] == failed, "it comes first"
    assert keeps.calls == sorted(keeps.calls)
    if late:
        assert keeps.epochs[failed] == before[failed]
    assert keeps.rows == Counter(range(500))


def refusal(store, whole):
    """What is said against a store; nothing where it is what it was."""
    try:
        return "" if store.checked() == whole else "another commit"
    except StateError as error:
        return str(error)


def test_a_damaged_file_is_refused_or_changes_nothing(tmp_path):
    keeps = Keeps({3})
    with pytest.raises(OSError, match="locked"):
        run(flow_of(tmp_path), settings=settings(tmp_path, keeps))
    store = SnapshotStore(tmp_path)
    whole = store.checked()
    assert whole.results
    older = olders(tmp_path)
    named = {tmp_path / one.name for one in whole.described}
    for file in files_of(tmp_path):
        for how in DAMAGES:
            with damaged(file, how, older[file]) as is_other:
                if not is_other:
                    continue
                if file.name == DELIVERED:  # then it comes again, which who takes epochs by number does not mind
                    assert not store.is_delivered(whole.epoch), how
                    continue
                said = refusal(store, whole)
                assert str(file) in said if said else file not in named, (file, how, said)
    run(flow_of(tmp_path), settings=settings(tmp_path, keeps))
    assert keeps.rows == Counter(range(500))


def test_results_are_handed_on_only_where_they_can_be_kept():
    with pytest.raises(OptionError, match="store="):
        Settings(deliver=print)


def test_what_was_not_handed_on_is_not_forgotten_by_a_start_with_another_sink(tmp_path):
    keeps = Keeps({2})
    with pytest.raises(OSError, match="locked"):
        run(flow_of(tmp_path), settings=settings(tmp_path, keeps))
    with pytest.raises(OptionError, match=f"results of epoch {keeps.calls[-1]} that did not come to their sink"):
        run(flow_of(), settings=Settings(store=str(tmp_path)))
    run(flow_of(), settings=settings(tmp_path, keeps))
    assert keeps.rows == Counter(range(500))
    run(flow_of(), settings=Settings(store=str(tmp_path)))


def test_a_job_that_fails_hands_nothing_on_beside_the_next_one(tmp_path):
    under_way, go_on = threading.Event(), threading.Event()

    class Holds(Keeps):
        def __call__(self, epoch, results):
            under_way.set()
            go_on.wait(20)
            super().__call__(epoch, results)

    @dataclass(frozen=True)
    class Fails(Slow):
        def read(self, split, offset, rows):
            if under_way.is_set() and SnapshotStore(tmp_path).latest() >= EPOCHS:
                go_on.set()
                raise RuntimeError("killed")
            return super().read(split, offset, rows)

    keeps = Holds()
    with pytest.raises(Exception, match="killed"):
        run(flow_of(tmp_path, Fails), settings=settings(tmp_path, keeps))
    before = len(keeps.calls)
    time.sleep(0.3)
    assert len(keeps.calls) == before, "nobody hands on any more"
    run(flow_of(), settings=settings(tmp_path, keeps))
    assert keeps.calls == sorted(set(keeps.calls))
    assert keeps.rows == Counter(range(500))


def test_a_job_that_could_not_hand_on_runs_again_to_the_end(tmp_path):
    keeps, dataflow = Keeps({1}), flow_of(tmp_path)
    job = Job(dataflow, Placement.spread(dataflow, 1), ThreadLauncher(), settings(tmp_path, keeps))
    with pytest.raises(OSError, match="locked"):
        job.run()
    assert job.delivered < job.outcome.epochs
    job.run()
    assert job.delivered == job.outcome.epochs
    assert keeps.rows == Counter(range(500))


def test_a_slow_taker_holds_snapshots_up_and_not_all_in_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(delivery, "IN_MEMORY", 1)
    monkeypatch.setattr(delivery, "MOST_WAITING", 3)
    most = []

    class Slowly(Keeps):
        def __call__(self, epoch, results):
            time.sleep(0.1)
            most.append(len(SnapshotStore(tmp_path).newest().results))
            super().__call__(epoch, results)

    keeps = Slowly()
    run(flow_of(tmp_path), settings=settings(tmp_path, keeps))
    assert max(most) <= 4
    assert keeps.calls == sorted(set(keeps.calls))
    assert keeps.rows == Counter(range(500))
