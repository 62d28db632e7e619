"""What sinks in the driver get: each epoch once, in order, whenever a driver ends; and no damage goes unnoticed."""

import time
from collections import Counter
from dataclasses import dataclass

import pyarrow as pa
import pytest

from steelyard.core import OptionError, StateError
from steelyard.resident import Flow, Memory, Rows, Settings, run
from steelyard.resident.snapshot import DELIVERED, SnapshotStore
from tests.damages import DAMAGES, damaged, files_of, olders

ROWS = pa.table({"n": list(range(500))})


@dataclass(frozen=True)
class Slow(Rows):
    """Takes a moment for each read."""

    def read(self, split, offset, rows):
        time.sleep(0.002)
        return super().read(split, offset, rows)


def flow_of(reader=Rows):
    flow = Flow("all", parallelism=2)
    flow.source(reader(ROWS, pieces=2), batch_rows=10, name="in").sink(Memory(), name="out")
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
    outcome = run(flow_of(Slow), settings=settings(tmp_path, keeps)).outcome
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
        run(flow_of(Slow), settings=settings(tmp_path, keeps))
    failed, before = keeps.calls[-1], dict(keeps.epochs)
    run(flow_of(Slow), settings=settings(tmp_path, keeps))
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
        run(flow_of(Slow), settings=settings(tmp_path, keeps))
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
    run(flow_of(Slow), settings=settings(tmp_path, keeps))
    assert keeps.rows == Counter(range(500))


def test_results_are_handed_on_only_where_they_can_be_kept():
    with pytest.raises(OptionError, match="store="):
        Settings(deliver=print)
