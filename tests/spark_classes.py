"""Keeps the classes that Spark loads for later JVMs: python -m tests.spark_classes; `make test` does it once.

A JVM spends most of its start on reading and checking some ten thousand classes. Tests start about fifty.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import steelyard as sy
from tests.cluster import equal_answers
from tests.crash import driver
from tests.tiny_spark import CLASSES, JAVA, tiny

BATCHES, DATAFLOW = 2, 1
END_SECONDS = 120


def main() -> None:
    """Run a few batches and a dataflow, and have the JVM write down at its end what it has loaded."""
    made = CLASSES.with_suffix(".new")
    options = f"{JAVA} -XX:ArchiveClassesAtExit={made}"
    config = {**tiny(), "spark.driver.extraJavaOptions": options}
    spark = sy.session("classes", master="local[2]", config=config)
    spark.sparkContext.setLogLevel("OFF")
    with tempfile.TemporaryDirectory() as place:
        source = Path(place, "in")
        driver.write_input(source, BATCHES)
        driver.start(spark, Path(place), source).await_termination()
    equal_answers.compared(spark, DATAFLOW, 2)
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    java = gateway.proc
    spark.stop()
    java.stdin.close()  # at which it ends
    java.wait(END_SECONDS)
    if made.exists():
        made.replace(CLASSES)  # whole, also for who starts a JVM at this moment
    else:
        print("This Java keeps no classes: each JVM of the tests loads them anew.", file=sys.stderr)


if __name__ == "__main__":
    main()
