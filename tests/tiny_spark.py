"""How tests set up Spark: their plans are tiny, and to compile one would take longer than to run it."""

from __future__ import annotations

import sys
from pathlib import Path

JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=256m -Xlog:disable"
"""A JVM of two cores: no second compiler, which a plan that runs once is not worth, no threads that collect, and
nothing said on standard output, which tests read."""
CLASSES = Path(sys.prefix) / "spark-classes.jsa"
"""Spark's classes as a JVM has loaded them, from which the next one starts in half the time. `tests.spark_classes`
makes it once for an environment; a JVM that is another one than made it leaves it alone."""


def java(*more: str) -> str:
    """Options of a JVM, and more of them."""
    known = [f"-XX:SharedArchiveFile={CLASSES}"] if CLASSES.exists() else []
    return " ".join([JAVA, *known, *more])


def tiny(*more: str) -> dict[str, str]:
    """Options of a session that shuffles in two parts, and more options of its JVM."""
    return {
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.driver.extraJavaOptions": java(*more),
        "spark.executor.extraJavaOptions": java(),  # of executors that have a JVM of their own
        # nor are plans read as text
        "spark.sql.ui.explainMode": "simple",
        "spark.sql.debug.maxToStringFields": "1",
    }
