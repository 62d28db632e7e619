"""What is made ready while Spark starts, and what a person at a terminal is told meanwhile."""

from __future__ import annotations

import io
import logging
import sys
from threading import Event
from types import SimpleNamespace

import pytest

import steelyard as sy
from steelyard.core import notices
from steelyard.spark import ahead, session


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def told(monkeypatch):
    """What is said at a terminal by a logger of which nobody has set up anything, for each kind of program."""

    def said(terminal=True, handler=None, aloud=True, times=1):
        where = Terminal() if terminal else io.StringIO()
        monkeypatch.setattr(notices.sys, "stderr", where)
        monkeypatch.setattr(notices, "_told", [])
        log = logging.Logger("of nobody")
        if handler is not None:
            log.addHandler(handler)
        for _ in range(times):
            notices.tell_waiting(log, "it starts", aloud)
        return where.getvalue()

    return said


def test_a_person_at_a_terminal_is_told_once_in_one_line(told):
    assert told() == told(times=3) == "steelyard: it starts\n"


def test_nobody_is_told_past_a_logging_that_is_set_up_nor_in_a_file_nor_unasked(told):
    kept = []
    handler = logging.Handler()
    handler.emit = lambda record: kept.append(record.getMessage())
    assert [told(handler=logging.NullHandler()), told(terminal=False), told(aloud=False)] == ["", "", ""]
    assert (told(handler=handler), kept) == ("", ["it starts"])


def test_what_fails_ahead_is_logged_and_fails_no_session(monkeypatch, caplog):
    monkeypatch.setattr(ahead, "MODULES", ("no_such_module_of_anyone",))
    with caplog.at_level(logging.INFO, logger="steelyard"):
        loading = ahead.Ahead()
        loading.go_on(SimpleNamespace(conf={}))  # without the daemon of a local session no job is run
        loading.thread.join()
    assert "No module named 'no_such_module_of_anyone'" in caplog.text


def test_all_that_is_loaded_is_there_and_a_job_starts_workers(spark, monkeypatch):
    started = Event()
    monkeypatch.setattr(ahead, "workers", lambda spark, run=ahead.workers: (run(spark), started.set()))
    loading = ahead.Ahead()
    loading.go_on(spark)
    assert started.wait(60)
    loading.thread.join()
    assert set(ahead.MODULES) <= set(sys.modules)


def test_a_session_that_is_there_is_not_made_ready_again(spark, monkeypatch):
    monkeypatch.setattr(session, "Ahead", None)
    assert sy.session().sparkContext is spark.sparkContext
