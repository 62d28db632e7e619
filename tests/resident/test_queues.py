"""Rows of a shuffle edge that are kept back while all instances have enough to do: none is lost, nobody runs dry."""

import threading
import time

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.core.dataflow import Edge, Grouping, Route
from steelyard.core.topology import Channel, Instance
from steelyard.grouping import Reply, TrackingOSG
from steelyard.resident.channel import CREDIT, Mailbox, Message, Outlet, StoppedError
from steelyard.resident.queues import FILLED_SECONDS, Queues
from steelyard.resident.reports import now
from steelyard.resident.routing import distributor
from steelyard.resident.wire import Kind

POLICY = TrackingOSG(cost_of="key")
ROW = 0.002
"""Seconds of a row, as instances have told."""


def informed(scheduler):
    """A scheduler that all instances have told how long a row takes."""
    scheduler.choose(np.arange(4 * scheduler.instances), times=np.zeros(4 * scheduler.instances))
    told = [Reply(instance, 0, 1, 0.0, 10.0, 10 * ROW, 1.0, 1.0) for instance in range(scheduler.instances)]
    scheduler.feedback(told)
    assert scheduler.mode == "run"
    return scheduler


def edge_of(instances):
    """A distributor that follows its instances, their outlets, and what was sent to each."""
    chooses = distributor(Edge("a", "b", Grouping(Route.COST, ("key",), POLICY)), Instance("a", 0), instances)
    informed(chooses._scheduler)
    sent = [[] for _ in range(instances)]
    outlets = {
        to: Outlet(Channel(to, 0, Instance("a", 0), Instance("b", to), 0, False), sent[to].append)
        for to in range(instances)
    }
    chooses.follow(outlets)
    return chooses, outlets, sent


def rows(count):
    return pa.record_batch({"key": pa.array(np.arange(count)), "n": pa.array(np.arange(count))})


def send(chooses, outlets, batch):
    for to, part, note in chooses.addressed(batch):
        outlets[to].send(Kind.DATA, part, note)


def numbers(sent):
    return [n for message in sent for n in message.value["n"].to_pylist()]


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 5), st.booleans()), max_size=40))
def test_what_is_left_is_what_was_given_and_not_worked_off(steps):
    scheduler = informed(POLICY.scheduler(3))
    queues = Queues(scheduler)
    given_ = {to: [] for to in range(3)}
    moment = 10.0
    for to, count, works in steps:
        if works and given_[to]:
            queues.worked_off(to, 1, moment)
            given_[to].pop(0)
        elif not works:
            before = np.array(scheduler.given)
            scheduler.choose(np.arange(count), times=np.full(count, moment))
            work = np.array(scheduler.given) - before
            for one in np.flatnonzero(work):
                queues.sent(int(one), moment)
                given_[int(one)].append(work[one])
        assert np.allclose(queues.left(moment), [sum(given_[one]) for one in range(3)], atol=1e-9)


def test_time_takes_off_no_more_than_the_message_under_way():
    scheduler = informed(POLICY.scheduler(2))
    queues = Queues(scheduler)
    for _ in range(2):
        before = np.array(scheduler.given)
        scheduler.choose(np.arange(2), times=np.full(2, 5.0))
        for to in np.flatnonzero(np.array(scheduler.given) - before):
            queues.sent(int(to), 5.0)
    assert queues.left(5.0) == pytest.approx([2 * ROW, 2 * ROW])
    assert queues.left(5.0 + ROW / 2) == pytest.approx([1.5 * ROW, 1.5 * ROW])
    assert queues.left(99.0) == pytest.approx([ROW, ROW])
    queues.worked_off(0, 1, 6.0)
    assert queues.left(6.0) == pytest.approx([ROW, ROW])
    assert queues.left(99.0) == pytest.approx([0.0, ROW])


def test_an_instance_that_is_stuck_gets_no_more_than_it_has_time_for():
    chooses, outlets, sent = edge_of(2)
    batch = rows(200)

    def serve():  # instance 1 works off whatever comes, and instance 0 nothing
        done = 0
        while len(numbers(sent[0])) + len(numbers(sent[1])) < 200 or done < len(sent[1]):
            if done < len(sent[1]):
                done += 1
                outlets[1].grant(1)
            time.sleep(0.0005)

    worker = threading.Thread(target=serve)
    worker.start()
    send(chooses, outlets, batch)
    worker.join(30)
    assert not worker.is_alive()
    assert sorted(numbers(sent[0]) + numbers(sent[1])) == list(range(200))
    # the message under way may be done for all that is known: as much as that again
    assert 1 <= len(numbers(sent[0])) <= 2 * (FILLED_SECONDS / ROW + 1)
    assert chooses.waited > 0.0


def test_an_instance_that_has_enough_gets_none_while_another_has_not():
    chooses, outlets, sent = edge_of(3)
    send(chooses, outlets, rows(30))  # all were without work, and have some now
    assert sum(len(numbers(one)) for one in sent) == 30
    assert all(len(one) == 1 for one in sent)
    outlets[1].grant(1)
    send(chooses, outlets, rows(4))
    assert [len(one) for one in sent] == [1, 2, 1]
    assert chooses._queues.patience(now()) == 0.0
    outlets[1].grant(1)
    assert min(chooses._queues.left(now())) == pytest.approx(0.0, abs=1e-9)


@given(st.lists(st.integers(0, 2), min_size=1, max_size=60))
def test_of_several_requests_to_an_instance_the_last_one_goes(items):
    scheduler = informed(TrackingOSG(cost_of="key", resync=1, apart=0.0).scheduler(3))
    scheduler._rule = scheduler._rule._replace(apart=0.0)
    queues = Queues(scheduler)
    found = queues.choose(np.array(items), 10.0)
    asked = found.to[found.requests.position]
    assert len(set(asked.tolist())) == len(asked)
    assert (np.diff(found.requests.position) > 0).all()


def test_rows_of_a_burst_wait_for_room_and_go_out_in_their_order():
    chooses, outlets, sent = edge_of(3)
    ready = threading.Event()

    def serve():
        ready.wait(10)
        done = [0, 0, 0]
        while sum(len(numbers(one)) for one in sent) < 300:
            for to in range(3):
                if done[to] < len(sent[to]):
                    outlets[to].grant(len(sent[to]) - done[to])
                    done[to] = len(sent[to])
            time.sleep(0.001)

    worker = threading.Thread(target=serve)
    worker.start()
    sender = threading.Thread(target=send, args=(chooses, outlets, rows(300)))
    sender.start()
    time.sleep(0.05)
    # nobody has worked anything off: each has what it was given ahead, and the rest was kept back
    assert all(len(numbers(one)) <= 2 * (FILLED_SECONDS / ROW + 1) for one in sent)
    ready.set()
    sender.join(30)
    worker.join(30)
    assert not sender.is_alive()
    assert sorted(n for one in sent for n in numbers(one)) == list(range(300))
    assert all(numbers(one) == sorted(numbers(one)) for one in sent)


def test_a_sender_that_keeps_rows_back_is_woken_by_a_stop():
    chooses, outlets, _ = edge_of(2)
    raised = []

    def sender():
        try:
            send(chooses, outlets, rows(100))
        except StoppedError as error:
            raised.append(error)

    thread = threading.Thread(target=sender)
    thread.start()
    time.sleep(0.02)
    chooses.stop()
    thread.join(10)
    assert not thread.is_alive()
    assert len(raised) == 1


def test_small_messages_never_wait_for_the_credit_of_one_instance_while_another_has_room():
    chooses, outlets, sent = edge_of(2)
    for _ in range(6 * CREDIT):
        chooses._scheduler._bank.means[...] = 0.0  # costs are not known, so that only credit says what is there
        before = len(sent[1])
        send(chooses, outlets, rows(1))
        if len(sent[1]) > before:  # instance 1 works off what comes, and instance 0 nothing
            outlets[1].grant(1)
    assert len(sent[0]) == CREDIT
    assert len(sent[1]) == 5 * CREDIT
    assert not outlets[0].waited


def test_channels_whose_sender_follows_give_room_back_at_once():
    granted = []
    channel = Channel(0, 0, Instance("a", 0), Instance("b", 0), 0, False)
    for prompt, wanted in (((0,), [1, 2]), ((), [])):
        granted.clear()
        mailbox = Mailbox([(channel, granted.append)], prompt)
        for number in range(3):
            mailbox.put(0, Message(Kind.DATA, number + 1, None))
            mailbox.take(0)
        mailbox.finished(0, Kind.DATA)
        mailbox.finished(0, Kind.DATA, 2)
        assert granted == wanted
