"""What is made ready while Spark starts, and what a person at a terminal is told meanwhile."""

from __future__ import annotations

import io
import logging
import subprocess
import sys
from threading import Event

import pytest
from pyspark import SparkContext

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
        monkeypatch.setattr(notices, "_told", Event())
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


def ended(thread):
    thread.join(60)
    return not thread.is_alive()


@pytest.fixture
def with_jvm(monkeypatch):
    monkeypatch.setattr(SparkContext, "_gateway", SparkContext._gateway or object())


@pytest.fixture
def without_jvm(monkeypatch):
    monkeypatch.setattr(SparkContext, "_gateway", None)


def test_what_fails_ahead_is_logged_and_fails_no_session(with_jvm, monkeypatch, caplog):
    monkeypatch.setattr(ahead, "MODULES", ("no_such_module_of_anyone",))
    with caplog.at_level(logging.INFO, logger="steelyard"):
        loading = ahead.Ahead()
        loading.go_on(None, local=False)
        assert ended(loading.thread)
    assert "ModuleNotFoundError: No module named 'no_such_module_of_anyone'" in caplog.text


def test_an_error_without_a_text_is_told_by_its_kind(caplog):
    def fails():
        raise EOFError

    with caplog.at_level(logging.INFO, logger="steelyard"):
        assert ended(ahead._in_background(fails, "trying"))
    assert caplog.messages == ["trying ahead failed, the first batch does it: EOFError"]


def test_nothing_is_loaded_where_spark_does_not_start(without_jvm, monkeypatch):
    monkeypatch.setattr(ahead, "import_module", None)
    with pytest.raises(OSError, match="no JVM"), ahead.Ahead() as loading:
        raise OSError("no JVM")
    assert ended(loading.thread)
    assert not loading._imported.is_set()


def test_a_session_that_waited_in_vain_says_so_and_what_helps(without_jvm, monkeypatch, caplog):
    monkeypatch.setattr(ahead, "MOST_SECONDS", 0.01)
    monkeypatch.setattr(ahead, "workers", None)
    loading = ahead.Ahead()
    loading.go_on(None, local=True)
    loading.__exit__(OSError, None, None)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "sy.session(ahead=False)" in record.getMessage()


ALONE = """
import os, sys
from threading import Event, Timer
from pyspark import SparkContext
from steelyard.spark import ahead

def forked(told):
    pid = os.fork()
    if pid == 0:
        os._exit(told())
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

done, begun, free = [], Event(), Event()
def slowly(run=ahead.compiled):
    begun.set(), free.wait(60), run(), done.append(True)
ahead.compiled = slowly
loading = ahead.Ahead()
assert forked(lambda: len(done)) == 0, "a fork waits for what has not begun"
assert not {"numba", "steelyard.spark.stream"} & set(sys.modules), "loaded before there was a JVM"
SparkContext._gateway = object()
assert begun.wait(60) and loading._imported.wait(60)
assert set(ahead.MODULES) <= set(sys.modules)
Timer(0.2, free.set).start()
assert forked(lambda: len(done)) == 1, "forked while functions were compiled"
from steelyard.kernels.xxhash import hash_bytes, hash_longs
assert hash_longs.signatures and hash_bytes.signatures
"""


def test_a_thread_loads_and_compiles_once_there_is_a_jvm_and_forks_wait_for_it():
    found = subprocess.run([sys.executable, "-c", ALONE], capture_output=True, text=True, timeout=120, check=False)
    assert found.returncode == 0, found.stderr


def test_a_fork_waits_no_longer_than_it_must_and_says_what_may_come(with_jvm, monkeypatch, caplog):
    held, free = Event(), Event()
    monkeypatch.setattr(ahead, "MOST_SECONDS", 0.01)
    monkeypatch.setattr(ahead, "compiled", lambda: (held.set(), free.wait(60)))
    loading = ahead.Ahead()
    assert held.wait(60)
    ahead._before_fork()
    free.set()
    assert ended(loading.thread)
    assert "sy.session(ahead=False)" in caplog.text
    caplog.clear()
    ahead._before_fork()
    assert not caplog.records


def test_a_job_of_one_row_starts_workers(spark, monkeypatch):
    started = Event()
    monkeypatch.setattr(ahead, "workers", lambda spark, run=ahead.workers: (run(spark), started.set()))
    with ahead.Ahead() as loading:
        loading.go_on(spark, local=True)
    assert started.wait(60)


def test_a_session_that_is_there_is_not_made_ready_again(spark, monkeypatch):
    monkeypatch.setattr(session, "Ahead", None)
    assert sy.session().sparkContext is spark.sparkContext


@pytest.mark.parametrize("wanted", [True, False])
def test_a_new_session_loads_while_spark_starts_and_goes_on_where_it_runs(spark, monkeypatch, wanted):
    seen = []

    class Fake:
        def __enter__(self):
            seen.append("begun")
            return self

        def __exit__(self, *how):
            seen.append("Spark is there")

        def go_on(self, spark, local):
            seen.append((spark.sparkContext.master, local))

    monkeypatch.setattr(session, "Ahead", Fake)
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)  # as if it were the first
    found = sy.session(ahead=wanted, quiet=True)
    assert found.sparkContext is spark.sparkContext
    assert seen == (["begun", "Spark is there", (spark.sparkContext.master, True)] if wanted else [])
