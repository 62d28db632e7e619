"""What the engine offers to every protocol, each alone: logs, messages overtaken, replay, deduplication, the keeper."""

import threading

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.core import StateError
from steelyard.core.topology import Channel, Instance
from steelyard.resident.channel import CREDIT, Mailbox, Message, Outlet
from steelyard.resident.checkpointer import Taken
from steelyard.resident.keeper import Keeper, Replay, packed_messages, unpacked_messages
from steelyard.resident.manifest import Log
from steelyard.resident.operator import ALONE, MAX_WATERMARK, MIN_WATERMARK
from steelyard.resident.snapshot import SnapshotStore
from steelyard.resident.wire import Kind, WireError
from steelyard.resident.wiring import joined_notes, parted_notes

SCHEMA = pa.schema({"n": pa.int64()})
TO = Channel(0, 0, Instance("from", 0), Instance("to", 0), 0, False)


def batch(*values):
    return pa.record_batch({"n": pa.array(values, pa.int64())})


def sent(first, last):
    """Messages of a channel, each with its number as its only row."""
    return [Message(Kind.DATA, number, batch(number)) for number in range(first, last + 1)]


def numbers(messages):
    return [one.number for one in messages]


def logged(store, number, messages):
    """A sender's log file with these messages of channel 0."""
    file = store.keep("from[0] log", number, {"0": packed_messages(messages)}, ALONE)
    return Log(file, [(0, messages[0].number, messages[-1].number)])


# the sender's log


@given(st.lists(st.sampled_from(["send", "take"]), max_size=40))
def test_a_log_has_what_was_sent_since_it_was_taken_and_all_of_it_once(steps):
    came, taken = [], []
    outlet = Outlet(TO, came.append, credit=None)
    outlet.log = []
    for step in steps:
        if step == "send":
            outlet.send(Kind.DATA, batch(outlet.sent))
        else:
            taken += outlet.taken_log()
            assert (outlet.log, outlet.logged) == ([], 0)
    assert outlet.logged == 8 * len(outlet.log)
    assert taken + outlet.log == came
    assert numbers(came) == list(range(1, len(came) + 1))


def test_a_channel_without_a_log_keeps_nothing_and_still_counts():
    outlet = Outlet(TO, lambda message: None)
    outlet.send(Kind.DATA, batch(1))
    assert outlet.taken_log() == []
    assert (outlet.log, outlet.logged, outlet.sent) == (None, 0, 1)


def test_markers_are_no_messages_of_a_log():
    outlet = Outlet(TO, lambda message: None)
    outlet.log = []
    outlet.send(Kind.DATA, batch(1))
    outlet.cut(1, "plan")
    outlet.send(Kind.WATERMARK, 5)
    assert [(one.kind, one.number) for one in outlet.taken_log()] == [(Kind.DATA, 1), (Kind.WATERMARK, 2)]


# the receiver: what a marker overtakes, and numbers that go on


@given(st.integers(0, 6), st.integers(0, 6))
def test_what_a_marker_overtakes_is_what_waits_before_it(before, behind):
    mailbox = Mailbox([(TO, lambda batches: None)], overtaking=True)
    for one in sent(1, before):
        mailbox.put(0, one)
    marker = Message(Kind.MARKER, before, 1)
    mailbox.put(0, marker)
    for one in sent(before + 1, before + behind):
        mailbox.put(0, one)
    assert mailbox.take(0) == (TO, marker)
    assert numbers(mailbox.ahead_of(0, marker)) == list(range(1, before + 1))
    rest = [mailbox.take(0)[1].number for _ in range(before + behind)]  # the marker has left its place
    assert rest == list(range(1, before + behind + 1))
    assert mailbox.take(0) is None


def test_a_marker_that_was_taken_in_its_place_has_overtaken_nothing():
    mailbox = Mailbox([(TO, lambda batches: None)])
    marker = Message(Kind.MARKER, 0, 1)
    mailbox.put(0, marker)
    assert mailbox.take(0) == (TO, marker)
    mailbox.put(0, sent(1, 1)[0])
    assert mailbox.ahead_of(0, marker) == []
    assert mailbox.length == 1


@given(st.integers(0, 9), st.integers(0, 9))
def test_numbers_go_on_over_generations(received, under_way):
    granted = []
    mailbox = Mailbox([(TO, granted.append)])
    before = sent(received + 1, received + under_way)
    mailbox.restore(0, received + under_way, before)
    assert mailbox.worked_off() == {0: received}
    assert numbers(mailbox.up_to(0, received + under_way)) == numbers(before)
    for wrong in (0, 2):
        with pytest.raises(WireError, match="one was lost or repeated"):
            mailbox.put(0, Message(Kind.DATA, received + under_way + wrong, batch(0)))
    fresh = sent(received + under_way + 1, received + under_way + CREDIT)
    for one in fresh:  # all of the window is there: nobody awaits room for what was under way
        mailbox.put(0, one)
    for one in before + fresh:
        assert mailbox.take(0)[1] == one
        mailbox.finished(0, Kind.DATA)
    assert mailbox.worked_off() == {0: received + under_way + CREDIT}
    assert sum(granted) == CREDIT


# replay out of logs, and deduplication


@settings(max_examples=40)
@given(st.data())
def test_what_was_under_way_comes_once_and_in_order(tmp_path_factory, data):
    """However the sender's checkpoints cut its log, and whatever part of it the receiver had worked off."""
    store = SnapshotStore(tmp_path_factory.mktemp("store"))
    last = data.draw(st.integers(1, 12))
    received = data.draw(st.integers(0, last))
    ends = sorted({*data.draw(st.lists(st.integers(1, last), max_size=4)), last})
    logs = [
        logged(store, number, sent(begin + 1, end))
        for number, (begin, end) in enumerate(zip([0, *ends], ends, strict=False))
    ]
    kept = data.draw(st.integers(received, last))  # the receiver's own checkpoint has the first of them
    state = {"captured 0": packed_messages(sent(received + 1, kept))} if kept > received else {}
    line = data.draw(st.integers(max(received, kept), last))  # the sender goes back to here
    found = Replay(store, logs, deduplicates=True, lossy=False).messages(0, received, line, state, SCHEMA)
    assert numbers(found) == list(range(received + 1, line + 1))
    assert [one.value for one in found] == [one.value for one in sent(received + 1, line)]


def test_without_deduplication_what_a_log_begins_with_comes_again(tmp_path):
    store = SnapshotStore(tmp_path)
    logs = [logged(store, 1, sent(1, 2)), logged(store, 2, sent(3, 6))]
    twice = Replay(store, logs, deduplicates=False, lossy=False).messages(0, 4, 6, {}, SCHEMA)
    assert numbers(twice) == [3, 4, 5, 6]
    assert numbers(Replay(store, logs, True, False).messages(0, 4, 6, {}, SCHEMA)) == [5, 6]


@pytest.mark.parametrize("missing", [0, 1])
def test_a_gap_in_the_logs_is_told_unless_nobody_minds(tmp_path, missing):
    store = SnapshotStore(tmp_path)
    logs = [logged(store, 1, sent(1, 2)), logged(store, 2, sent(3, 4))]
    del logs[missing]
    with pytest.raises(StateError, match="of channel 0, and those from 1 to 4 were under way"):
        Replay(store, logs, True, lossy=False).messages(0, 0, 4, {}, SCHEMA)
    assert len(Replay(store, logs, True, lossy=True).messages(0, 0, 4, {}, SCHEMA)) == 2


def test_an_end_that_was_under_way_comes_as_event_time_that_stands_still(tmp_path):
    store = SnapshotStore(tmp_path)
    ends = [Message(Kind.WATERMARK, 1, MAX_WATERMARK, mark=b"x"), Message(Kind.END, 2, None, b"note")]
    found = Replay(store, [logged(store, 1, ends)], True, False).messages(0, 0, 2, {}, SCHEMA)
    assert found == [Message(Kind.WATERMARK, number, MIN_WATERMARK) for number in (1, 2)]


@given(st.integers(0, 3), st.data())
def test_a_log_with_a_torn_end_is_an_error_and_never_fewer_messages(many, data):
    whole = packed_messages([*sent(1, many), Message(Kind.WATERMARK, many + 1, 5, mark=b"clock")])
    assert numbers(unpacked_messages(whole, SCHEMA)) == list(range(1, many + 2))
    torn = whole[: data.draw(st.integers(1, len(whole) - 1))]
    try:
        found = list(unpacked_messages(torn, SCHEMA))
    except WireError:
        return
    assert len(packed_messages(found)) == len(torn)  # it was cut between two messages: the numbers tell (Replay)


@pytest.mark.parametrize("cut", [1, 40])
def test_a_log_file_with_a_torn_end_is_told_before_a_message_of_it_is_seen(tmp_path, cut):
    store = SnapshotStore(tmp_path)
    log = logged(store, 1, sent(1, 3))
    file = tmp_path / log.file.name
    file.write_bytes(file.read_bytes()[:-cut])
    with pytest.raises(StateError, match=f"has {log.file.size - cut} bytes, and had {log.file.size}"):
        Replay(store, [log], True, False).messages(0, 0, 3, {}, SCHEMA)


# two notes on one message


@given(st.binary(max_size=40), st.binary(max_size=40))
def test_two_notes_travel_as_one_and_come_apart_again(mark, note):
    both = joined_notes(mark, note)
    assert (parted_notes(both) if both else (b"", b"")) == (mark, note)
    for short in range(min(2 + len(mark), len(both))):
        with pytest.raises(WireError, match="too short"):
            parted_notes(both[:short])


# the keeper


class Whose:
    """A checkpointer, as far as the keeper needs it."""

    cut, durable = 0, 0


def taken(number, log=(), captured=()):
    head = Instance("count", 0)
    states = {head: {"own": {"checkpoints": number}, "n": number}}
    log, captured = ({0: list(some)} if some else {} for some in (log, captured))
    return Taken(head, number, "local", 0, states, {0: number}, {}, log, 0.001, 0.0, captured=captured)


def test_a_keeper_writes_beside_its_caller_in_order_and_tells_of_what_is_durable(tmp_path, monkeypatch):
    store, told, free, whose = SnapshotStore(tmp_path), [], threading.Event(), Whose()
    keep = store.keep

    def slowly(*what):
        assert free.wait(10)
        return keep(*what)

    monkeypatch.setattr(store, "keep", slowly)
    keeper = Keeper(store, ALONE, lambda what, **more: told.append(more), pytest.fail)
    keeper.start()
    for number in (1, 2, 3):
        keeper.put(whose, taken(number, log=sent(number, number)))  # returns, though nothing is written
    assert (told, whose.durable) == ([], 0)
    free.set()
    keeper.stop(10)
    assert [one["number"] for one in told] == [1, 2, 3]
    assert whose.durable == 3
    for one in told:
        assert store.load(one["files"][str(Instance("count", 0))])["n"] == one["number"]
        assert one["spans"] == [(0, one["number"], one["number"])]
        logs = unpacked_messages(store.load(one["log"])["0"], SCHEMA)
        assert numbers(logs) == [one["number"]]


def test_a_keeper_puts_what_was_captured_into_the_state_and_writes_no_log_of_nothing(tmp_path):
    store, told = SnapshotStore(tmp_path), []
    keeper = Keeper(store, ALONE, lambda what, **more: told.append(more), pytest.fail)
    keeper.start()
    keeper.put(Whose(), taken(1, captured=sent(5, 7)))
    keeper.stop(10)
    (one,) = told
    assert (one["log"], one["captured"]) == (None, [(0, 5, 7)])
    state = store.load(one["files"][str(Instance("count", 0))])
    assert numbers(unpacked_messages(state["captured 0"], SCHEMA)) == [5, 6, 7]


def test_a_keeper_that_cannot_write_says_so_and_tells_of_nothing(tmp_path, monkeypatch):
    store, failed, whose = SnapshotStore(tmp_path), [], Whose()

    def full(*what):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store, "keep", full)
    keeper = Keeper(store, ALONE, pytest.fail, failed.append)
    keeper.start()
    keeper.put(whose, taken(1))
    keeper.stop(10)
    assert [type(one) for one in failed] == [OSError]
    assert whose.durable == 0
