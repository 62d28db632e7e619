"""Kafka to Kafka, through a real broker."""

from __future__ import annotations

from collections import Counter
from math import isqrt

import pytest

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

COUNT = 3000


def expected_rows(count):
    return [[f"m{isqrt(trip % 400)}", trip % 37 * 0.25] for trip in range(count)]


def expected_totals(count):
    """What the fares of `count` trips come to, without Spark."""
    totals: Counter[str] = Counter()
    trips: Counter[str] = Counter()
    for medallion, fare in expected_rows(count):
        totals[medallion] += fare
        trips[medallion] += 1
    return sorted([medallion, totals[medallion], trips[medallion]] for medallion in trips)


def last_of_each_key(written):
    """The newest total of each key: what a consumer of updates ends up with."""
    return sorted({record[1]: record[1:] for record in sorted(written)}.values())


def repeats(written):
    """Keys that one batch wrote more than once."""
    counted = Counter((batch, medallion) for batch, medallion, *_ in written)
    return [record for record, times in counted.items() if times > 1]


def test_records_go_through_the_broker_and_back_with_key_value_and_batch_header(run_program):
    found = run_program("round_trip", count=COUNT)

    assert found["rows"] == sorted(expected_rows(COUNT))
    assert found["partitions_of_a_key"] == 1
    assert found["answer"] == expected_totals(COUNT)
    assert len({batch for batch, *_ in found["written"]}) > 1
    assert repeats(found["written"]) == []
    assert sum(trips for *_, trips in found["written"]) == COUNT
    assert found["record_with_a_null"] == ['{"medallion":"7A31"}', '{"medallion":"7A31","total":null}']


def test_steelyard_totals_a_topic_as_plain_spark_does_and_continues_after_a_restart(run_program, programs):
    first = run_program("steelyard_totals", first=0, last=COUNT)

    assert first["answer"] == expected_totals(COUNT)
    assert last_of_each_key(first["written"]) == first["answer"]
    assert repeats(first["written"]) == []

    # Another process, with the same checkpoint, more trips, and then a start that finds nothing new.
    programs.end()
    second = run_program("steelyard_totals", first=COUNT, last=2 * COUNT, again=True)

    assert second["answer"] == expected_totals(2 * COUNT)
    assert last_of_each_key(second["written"]) == second["answer"]
    assert repeats(second["written"]) == []
    before = [record for record in second["written"] if record in first["written"]]
    assert before == first["written"]
    oldest_batch_after_the_restart = min(
        batch for batch, *rest in second["written"] if [batch, *rest] not in first["written"]
    )
    assert oldest_batch_after_the_restart > max(batch for batch, *_ in first["written"])


def test_windows_over_a_topic_are_the_same_on_both_engines(run_program):
    found = run_program("either_engine", count=8000)
    windows = {row[0] for row in found["microbatch"]}
    assert len(windows) == 19  # of 800 seconds, of which the last 600 may still get rows
    assert found["resident"] == found["microbatch"]
    assert found["topic"] == found["microbatch"]


def test_groups_of_batches_go_from_topic_to_topic_over_several_starts(run_program):
    found = run_program("groups_of_a_topic", parts=[7000, 8000, 9000])
    assert len({row[0] for row in found["microbatch"]}) == 29  # of 900 seconds, of which the last 600 may get rows
    assert found["topic"] == found["microbatch"]
