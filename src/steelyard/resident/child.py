"""A process that is forked, and that ends with the one that forked it."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import gc
import os
import select
import signal
import socket
import stat
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from typing import NamedTuple, NoReturn

_PR_SET_PDEATHSIG = 1
_MOST_SAID = 1 << 14
"""Bytes that a process may say of why it ended."""
_POLL = 0.001
"""Seconds between two looks at a process that has let go of its line, and is about to end."""
_prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else None
"""Found before anybody forks."""


class End(NamedTuple):
    """How a process ended."""

    status: int
    """Its exit code; below 0, the signal that ended it."""
    why: str
    """What it said."""

    def __str__(self) -> str:
        """In words.

        >>> str(End(-9, "")), str(End(1, "no luck"))
        ('was ended by SIGKILL', 'ended with code 1: no luck')
        """
        if self.status < 0:
            return f"was ended by {_name(-self.status)}"
        return f"ended with code {self.status}" + (f": {self.why}" if self.why else "")


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # one of the real-time signals
        return f"signal {number}"


class Child:
    """A process that this one forks; both hold an end of one line, and see by it when the other is gone.

    Linux kills it, too, when the thread that forked it ends.

    Parameters
    ----------
    action
        What it does, with its end of the line; gives why it failed, or nothing.
    foreign
        Files of this process that it must not hold: whoever is at the other end would not see this process end.
    """

    def __init__(self, action: Callable[[socket.socket], str], foreign: Iterable[int] = ()) -> None:
        _flush()  # or both would write what is there
        ours, theirs = socket.socketpair()
        parent = os.getpid()
        try:
            self.pid = os.fork()
        except OSError:
            ours.close()
            theirs.close()
            raise
        if self.pid == 0:
            _live(action, theirs, parent, [ours.fileno(), *foreign])
        theirs.close()
        ours.setblocking(False)
        self._line, self._said = ours, b""
        self.is_silent = False
        """Whether it has let go of its line: it is about to end."""

    def fileno(self) -> int:
        """Of the line, which can be read when the process ends."""
        return self._line.fileno()

    def ended(self) -> End | None:
        """How it ended, if it has; it is reaped then, and nothing more can be asked."""
        self._read()
        try:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
        except ChildProcessError:  # somebody else has reaped it
            pid, status = self.pid, 1 << 8
        if not pid:
            return None
        self._read()
        self._line.close()
        return End(os.waitstatus_to_exitcode(status), self._said.decode(errors="replace"))

    def wait(self, seconds: float) -> End | None:
        """How it ended, if it does in time."""
        deadline = time.monotonic() + seconds
        while (end := self.ended()) is None:
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            if self.is_silent:
                time.sleep(_POLL)
            else:
                poll = select.poll()
                poll.register(self._line, select.POLLIN)
                poll.poll(1000 * min(left, 0.1))  # a process of its own may hold the line, too
        return end

    def kill(self) -> None:
        """End it at once; it must not have been reaped."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def _read(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while not self.is_silent:
                try:
                    said = self._line.recv(_MOST_SAID)
                except ConnectionError:
                    said = b""
                self._said = (self._said + said)[:_MOST_SAID]
                self.is_silent = not said


def _live(action: Callable[[socket.socket], str], line: socket.socket, parent: int, foreign: list[int]) -> NoReturn:
    """All that a forked process does. It ends without what others have registered for the end of their process."""
    status, why = 1, ""
    try:
        gc.freeze()  # or a collection would copy every page of what it has from its parent
        _let_go(foreign)
        _own_signals()
        if _prctl is not None:
            _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == parent:
            why = action(line)
            status = 1 if why else 0
    except BaseException as error:  # noqa: BLE001 - whatever it is, it must not come to what the parent would do next
        traceback.print_exc()
        why = f"{type(error).__name__}: {error}"
    finally:
        with contextlib.suppress(OSError):
            line.sendall(why.encode()[:_MOST_SAID])
        _flush()
        os._exit(status)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()


def _let_go(foreign: Iterable[int]) -> None:
    """Close files, but leave their numbers taken: whoever closes them later closes nothing that was opened since."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, *foreign):
        os.dup2(nothing, number, inheritable=False)
    os.close(nothing)


def _own_signals() -> None:
    """As in a process that nobody has changed, but that an interrupt of the terminal is the driver's concern."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if faulthandler.is_enabled():
        faulthandler.enable(2)  # not the file of the parent


def die_with(line: socket.socket) -> None:
    """End this process at once when whoever forked it is gone; a thread watches for that."""

    def watch() -> None:
        with contextlib.suppress(OSError):
            line.recv(1)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, name="who forked", daemon=True).start()


def open_sockets() -> list[int]:
    """The numbers of all sockets that this process holds."""
    found = []
    for name in os.listdir("/dev/fd"):
        with contextlib.suppress(OSError):  # that of the listing is closed by now
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                found.append(int(name))
    return found
