"""What all tests share: patience, and one small Spark session."""

from __future__ import annotations

import tempfile

import pytest
from hypothesis import HealthCheck, settings

import steelyard as sy

# Machines that run this are busy: an example may take long without being wrong.
PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None)
settings.register_profile("same", PATIENT, derandomize=True)  # the same cases on every machine, every day
settings.register_profile("fuzz", PATIENT, derandomize=False)  # new ones, for tests/fuzz.py
settings.load_profile("same")


LONGEST_FIRST = (
    "tests/spark/test_answers_equal_plain_spark.py",
    "tests/spark/test_differential.py",
    "tests/crash/test_kill_nine.py",
    "tests/crash/test_join_crash.py",
    "tests/kafka/test_kafka.py",
    "tests/cluster/test_killed_workers.py",
    "tests/spark/test_examples.py",
)
"""Files that take minutes: where one of them came last, the other process would wait for its end."""


def pytest_collection_modifyitems(items):
    def rank(item):
        name = item.nodeid.partition("::")[0]
        return LONGEST_FIRST.index(name) if name in LONGEST_FIRST else len(LONGEST_FIRST)

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
    session = sy.session(
        "steelyard-tests",
        master="local[2]",
        config={
            "spark.sql.shuffle.partitions": "2",
            "spark.default.parallelism": "2",
            "spark.driver.memory": "2g",
            "spark.ui.enabled": "false",
            # tiny plans: compiling each would cost more than running it
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
            # nor does a tiny plan run long enough to be worth the second compiler, or to be read as text
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m",
            "spark.sql.ui.explainMode": "simple",
            "spark.sql.debug.maxToStringFields": "1",
        },
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
