"""Reports as text and JSON, observations, decisions, and errors that name the remedy."""

from __future__ import annotations

import json

import pytest

from steelyard.core import Action, BatchObservation, BatchReport, OptionError, SteelyardError, TaskReport


def test_a_report_goes_to_json_and_back():
    report = BatchReport(
        3, rows=10, bad_rows={"null key": 2}, tasks=(TaskReport(0, 10, 4, 0.5, 0.25),), seconds={"total": 1.5}
    )
    read = json.loads(report.to_json())
    assert read == json.loads(json.dumps(report.to_dict()))
    assert (read["batch"], read["bad_rows"], read["tasks"][0]["clusters"]) == (3, {"null key": 2}, 4)


def test_a_report_says_what_went_wrong_only_where_something_did():
    fine = str(BatchReport(1, rows=5, policy="hash", seconds={"total": 1.25}))
    assert fine.startswith("batch 1: 5 rows in ")
    assert "by hash" in fine
    assert fine.endswith("0 results, 1.25 s")
    assert "bad" not in fine
    assert "late" not in fine
    assert "partitions, 3 bad, 2 late" in str(BatchReport(1, rows=5, late_rows=2, bad_rows={"a": 1, "b": 2}))


def test_load_is_processing_time_over_the_interval():
    assert BatchObservation(0, 10, 3, 8, 4, processing_seconds=1.5, interval_seconds=2.0).load == 0.75
    assert BatchObservation(0, 10, 3, 8, 4, processing_seconds=1.5, interval_seconds=0.0).load == 0.0


@pytest.mark.parametrize(("blocks", "buckets"), [(0, 1), (1, 0), (-1, 4)])
def test_a_decision_for_no_task_is_refused(blocks, buckets):
    with pytest.raises(ValueError, match="at least 1"):
        Action({"blocks": blocks, "buckets": buckets})


def test_an_unknown_name_is_answered_with_the_nearest_and_all_others():
    error = OptionError.unknown("mode", "apend", ["update", "append"])
    assert str(error) == "unknown mode 'apend': did you mean 'append'? There are: append, update"
    assert str(OptionError.unknown("mode", "xyz", [])) == "unknown mode 'xyz': There are: none"
    assert isinstance(error, SteelyardError)
    assert isinstance(error, ValueError)
