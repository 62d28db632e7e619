"""The jars of Spark's Kafka connector, or of a stand-in that is named where the repository lacks this release's."""

from __future__ import annotations

from steelyard.spark.kafka import STAND_IN_PACKAGES, ArtifactError, kafka_jars, kafka_packages


def connector_jars() -> tuple[str, str]:
    """What `spark.jars` is to be, and a sentence where it is not this release's own; ArtifactError without either."""
    try:
        return ",".join(map(str, kafka_jars())), ""
    except ArtifactError:
        jars = kafka_jars(STAND_IN_PACKAGES)
    said = f"{kafka_packages()[0]} is not in the Maven repository: this ran with {', '.join(STAND_IN_PACKAGES)}."
    return ",".join(map(str, jars)), said
