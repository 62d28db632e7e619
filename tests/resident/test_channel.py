"""Channels: order, numbers, credit, feedback before the rest, and waking those who wait."""

import threading

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.core.dataflow import Channel, Instance
from steelyard.resident.channel import CREDIT, Mailbox, Message, Outlet, StoppedError
from steelyard.resident.wire import Kind, WireError


def channel(number, feedback=False):
    return Channel(number, number, Instance("from", number), Instance("to", 0), 0, feedback)


def joined(*channels):
    """Outlets whose messages fall into one mailbox, and the mailbox."""
    outlets = {}
    mailbox = Mailbox([(one, lambda n, number=one.number: outlets[number].grant(n)) for one in channels])
    for one in channels:
        deliver = lambda message, number=one.number: mailbox.put(number, message)  # noqa: E731
        outlets[one.number] = Outlet(one, deliver, None if one.feedback else CREDIT)
    return list(outlets.values()), mailbox


def emptied(mailbox):
    found = []
    while (taken := mailbox.take(timeout=0)) is not None:
        found.append((taken[0].number, taken[1].value))
        mailbox.finished(taken[0].number, taken[1].kind)
    return found


@given(st.lists(st.tuples(st.integers(0, 2), st.booleans()), max_size=60))
def test_each_channel_keeps_its_order_and_loses_nothing(steps):
    outlets, mailbox = joined(channel(0), channel(1), channel(2))
    sent, got = {0: [], 1: [], 2: []}, {0: [], 1: [], 2: []}
    for step, (which, drain) in enumerate(steps):
        if drain or not outlets[which].has_credit:
            for number, value in emptied(mailbox):
                got[number].append(value)
        outlets[which].send(Kind.DATA, step)
        sent[which].append(step)
    for number, value in emptied(mailbox):
        got[number].append(value)
    assert got == sent
    assert mailbox.worked_off() == {outlet.channel.number: outlet.sent for outlet in outlets}


def test_a_sender_without_credit_waits_until_rows_are_worked_off():
    (outlet,), mailbox = joined(channel(0))
    for value in range(CREDIT):
        outlet.send(Kind.DATA, value)
    assert not outlet.has_credit
    sender = threading.Thread(target=outlet.send, args=(Kind.DATA, CREDIT), daemon=True)
    sender.start()
    assert mailbox.length == CREDIT
    found = emptied(mailbox)
    sender.join(10)
    assert not sender.is_alive()
    assert [value for _, value in found + emptied(mailbox)] == list(range(CREDIT + 1))


def test_watermarks_and_ends_need_no_credit():
    (outlet,), mailbox = joined(channel(0))
    for value in range(CREDIT):
        outlet.send(Kind.DATA, value)
    outlet.send(Kind.WATERMARK, 5)
    outlet.send(Kind.END, None)
    assert mailbox.length == CREDIT + 2


def test_feedback_is_taken_before_all_else_and_is_never_held_back():
    (forward, back), mailbox = joined(channel(0), channel(1, feedback=True))
    forward.send(Kind.DATA, "new")
    for turn in range(3 * CREDIT):
        back.send(Kind.DATA, turn)
    found = emptied(mailbox)
    assert [number for number, _ in found] == [1] * (3 * CREDIT) + [0]


def test_a_channel_that_is_blocked_is_kept_for_later():
    (first, second), mailbox = joined(channel(0), channel(1))
    first.send(Kind.DATA, "a")
    second.send(Kind.DATA, "b")
    mailbox.block(0)
    assert emptied(mailbox) == [(1, "b")]
    mailbox.unblock()
    assert emptied(mailbox) == [(0, "a")]


@pytest.mark.parametrize("number", [0, 2, 7])
def test_a_message_that_is_not_the_next_one_is_refused(number):
    _, mailbox = joined(channel(0))
    with pytest.raises(WireError, match="one was lost or repeated"):
        mailbox.put(0, Message(Kind.DATA, number, "row"))
    assert mailbox.length == 0


def test_a_message_for_a_channel_that_ends_elsewhere_is_refused():
    _, mailbox = joined(channel(0))
    with pytest.raises(WireError, match="channel 9, which does not end here"):
        mailbox.put(9, Message(Kind.DATA, 1, "row"))


def test_a_batch_beyond_the_credit_is_refused():
    _, mailbox = joined(channel(0))
    for number in range(1, CREDIT + 1):
        mailbox.put(0, Message(Kind.DATA, number, "row"))
    with pytest.raises(WireError, match="without credit"):
        mailbox.put(0, Message(Kind.DATA, CREDIT + 1, "row"))


def test_whoever_waits_is_woken_by_a_stop():
    (outlet,), mailbox = joined(channel(0))
    for value in range(CREDIT):
        outlet.send(Kind.DATA, value)
    raised = []

    def send():
        try:
            outlet.send(Kind.DATA, CREDIT)
        except StoppedError as error:
            raised.append(error)

    sender = threading.Thread(target=send, daemon=True)
    sender.start()
    outlet.stop()
    sender.join(10)
    assert len(raised) == 1
    mailbox.stop()
    with pytest.raises(StoppedError):
        mailbox.take()


def test_what_waits_is_counted_in_rows_and_places():
    first, second = channel(0), channel(1)
    outlets, mailbox = joined(first, second)
    batch = pa.record_batch({"n": [1, 2, 3]})
    for _ in range(CREDIT // 2):
        outlets[0].send(Kind.DATA, batch)
    outlets[1].send(Kind.DATA, batch)
    outlets[1].send(Kind.PROBE, 7)
    assert mailbox.waiting() == (3 * (CREDIT // 2 + 1), (CREDIT // 2 + 1) / (2 * CREDIT))
