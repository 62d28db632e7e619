"""What all tests share: patience, and one small Spark session."""

from __future__ import annotations

import tempfile

import pytest
from hypothesis import HealthCheck, settings

import steelyard as sy
from tests.tiny_spark import tiny

# Machines that run this are busy: an example may take long without being wrong.
PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None)
settings.register_profile("same", PATIENT, derandomize=True)  # the same cases on every machine, every day
settings.register_profile("fuzz", PATIENT, derandomize=False)  # new ones, for tests/fuzz.py
settings.load_profile("same")


COMPILING_FIRST = (
    "src/steelyard/sim/run.py",
    "src/steelyard/bench/osg/distributions.py",
    "tests/bench/test_osg_experiments.py",
    "src/steelyard/partition/dalton.py",
)
"""Files whose first test compiles much, where nothing is compiled yet: a process that came to the same kernel while
another compiles it would do so too."""
LONGEST_FIRST = (
    "tests/spark/test_answers_equal_plain_spark.py",
    "tests/spark/test_differential.py",
    "tests/crash/test_kill_nine.py",
    "tests/kafka/test_kafka.py",
    "tests/cluster/test_killed_workers.py",
    "tests/spark/test_examples.py",
    "tests/crash/test_join_crash.py",
    "tests/cluster/test_equal_answers.py",
    "tests/crash/test_staying_crash.py",
    "tests/spark/test_either_engine.py",
    "tests/resident/test_killed_drivers.py",
    "tests/spark/test_three_engines.py",
    "tests/spark/test_similarity_join.py",
    "tests/resident/test_killed_processes.py",
    "tests/resident/test_protocols.py",
    "tests/resident/test_rescaling.py",
    "tests/resident/test_rescaling_in_place.py",
    "tests/resident/test_supervisors.py",
    "tests/resident/test_other_starts.py",
    "tests/resident/test_recovery.py",
)
"""Files that take minutes: where one of them came last, the other process would wait for its end. Those that fork come
before others have made the process large, since a fork copies its tables of pages."""


NEEDS_JAVA = {"spark", "kafka_servers", "connector", "repository", "new_driver"}
"""Fixtures with a JVM behind them: who takes one is left out where there is no Java."""


@pytest.hookimpl(tryfirst=True)  # before marks are looked at
def pytest_collection_modifyitems(items):
    for item in items:
        if NEEDS_JAVA.intersection(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.spark)

    def rank(item):
        name, first = item.nodeid.partition("::")[0], COMPILING_FIRST + LONGEST_FIRST
        return first.index(name) if name in first else len(first)

    items.sort(key=rank)


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """The folder in which temporary folders of the driver are made."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture(scope="session")
def spark():
    session = sy.session("steelyard-tests", master="local[2]", config={**tiny(), "spark.driver.memory": "2g"})
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
