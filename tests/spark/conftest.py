"""One small Spark session for all tests that need one."""

from __future__ import annotations

import pytest

import steelyard as sy


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
        },
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
