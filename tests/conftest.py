"""What all tests share: patience, and one small Spark session."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

import steelyard as sy

# Machines that run this are busy: an example may take long without being wrong.
settings.register_profile("steelyard", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("steelyard")


@pytest.fixture(scope="session")
def spark():
    session = sy.session(
        "steelyard-tests",
        master="local[2]",
        config={
            "spark.sql.shuffle.partitions": "2",
            "spark.default.parallelism": "2",
            "spark.driver.memory": "2g",
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
