"""Processes that are forked: how they end is told, and they end with the one that forked them."""

import os
import signal
import socket
import time

import pytest

from steelyard.resident.child import Child, End, die_with, open_sockets

SECONDS = 20.0


def gone(pid):
    """Whether a process has ended, within some time; what nobody has reaped yet has."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        try:
            with open(f"/proc/{pid}/stat") as file:
                if file.read().rpartition(")")[2].split()[0] == "Z":
                    return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.01)
    return False


def sleeps(line):
    die_with(line)
    time.sleep(10 * SECONDS)


def raises(line):
    raise RuntimeError("out of luck")


@pytest.mark.parametrize(
    ("action", "wanted"),
    [
        (lambda line: "", End(0, "")),
        (lambda line: "no rows", End(1, "no rows")),
        (lambda line: "x" * 10**6, End(1, "x" * (1 << 14))),
        (raises, End(1, "RuntimeError: out of luck")),
        (lambda line: os._exit(7), End(7, "")),
        (lambda line: os.kill(os.getpid(), signal.SIGSEGV), End(-signal.SIGSEGV, "")),
    ],
    ids=["nothing", "a reason", "a long one", "raised", "a code", "a signal"],
)
def test_how_a_process_ended_is_told(action, wanted):
    assert Child(action).wait(SECONDS) == wanted


def test_a_process_that_lives_is_not_told_to_have_ended_until_it_is_killed():
    made = Child(sleeps)
    assert made.wait(0.05) is None
    made.kill()
    assert made.wait(SECONDS) == End(-signal.SIGKILL, "")
    assert gone(made.pid)


def test_a_process_whose_own_child_holds_its_line_is_still_seen_to_end():
    def leaves_another(line):
        if os.fork() == 0:
            time.sleep(3)
            os._exit(0)
        os._exit(5)

    begun = time.monotonic()
    assert Child(leaves_another).wait(SECONDS) == End(5, "")
    assert time.monotonic() - begun < 3


@pytest.mark.parametrize("prctl", [True, False], ids=["by Linux", "by the line"])
def test_a_process_ends_with_the_one_that_forked_it(prctl, monkeypatch):
    if not prctl:
        monkeypatch.setattr("steelyard.resident.child._prctl", None)
    told, heard = os.pipe()

    def forks(line):
        inner = Child(sleeps if not prctl else lambda line: time.sleep(10 * SECONDS) or "")
        os.write(heard, f"{inner.pid}\n".encode())
        time.sleep(10 * SECONDS)

    outer = Child(forks)
    inner = int(os.read(told, 100))
    outer.kill()
    assert outer.wait(SECONDS).status == -signal.SIGKILL
    assert gone(inner)
    os.close(told)
    os.close(heard)


def test_a_process_lets_go_of_foreign_sockets_and_keeps_their_numbers():
    ours, theirs = socket.socketpair()
    kept, other = socket.socketpair()

    def look(line):
        left = set(open_sockets())
        numbers = {theirs.fileno(), ours.fileno()}
        fresh = socket.socket()
        return "" if not numbers & left and kept.fileno() in left and fresh.fileno() not in numbers else str(left)

    made = Child(look, [ours.fileno(), theirs.fileno()])
    assert made.wait(SECONDS) == End(0, "")
    assert {ours.fileno(), theirs.fileno()} <= set(open_sockets())
    for one in (ours, theirs, kept, other):
        one.close()


def test_an_interrupt_of_the_terminal_is_not_the_concern_of_a_process_that_was_forked():
    def interrupted(line):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.05)
        return ""

    assert Child(interrupted).wait(SECONDS) == End(0, "")
