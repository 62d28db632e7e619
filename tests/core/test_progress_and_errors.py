"""Progress as text and JSON, observations, actions, and errors that name the remedy."""

from __future__ import annotations

import copy
import json
import pickle

import pytest

from steelyard.core import Action, BatchObservation, OptionError, Progress, SteelyardError, TaskObservation
from steelyard.core.progress import FAILED
from steelyard.spark.said import batch_progress, join_progress


def test_progress_goes_to_json_and_back():
    progress = Progress(3, rows=10, bad_rows={"null key": 2}, seconds={"total": 1.5}).more(
        tasks=(TaskObservation(0, 10, 4, 0.5, 0.25),)
    )
    read = json.loads(progress.to_json())
    assert read == json.loads(json.dumps(progress.to_dict()))
    assert (read["batch"], read["bad_rows"], read["tasks"][0]["clusters"]) == (3, {"null key": 2}, 4)


def test_details_are_asked_for_like_fields_and_a_typo_is_told():
    progress = batch_progress(1, blocks=4, buckets=2, policy="hash", keys=7)
    assert (progress.blocks, progress.keys, progress.placement) == (4, 7, "blocks")
    assert progress.more(keys=8, rows=1).keys == 8
    assert copy.deepcopy(progress) == pickle.loads(pickle.dumps(progress)) == progress
    with pytest.raises(AttributeError, match="did you mean 'blocks'"):
        _ = progress.block
    with pytest.raises(AttributeError):
        _ = progress.comparisons


def test_a_batch_says_what_went_wrong_only_where_something_did():
    fine = str(batch_progress(1, rows=5, blocks=4, buckets=2, policy="hash", seconds={"total": 1.25}))
    assert fine == "batch 1: 5 rows in 4 blocks by hash, largest/mean 1.00, 2 buckets, 0 results, 1.25 s"
    bad = batch_progress(1, rows=5, late_rows=2, bad_rows={"a": 1, "b": 2}, blocks=1, buckets=1, policy="")
    assert str(bad).startswith("batch 1: 5 rows, 3 bad, 2 late in the source's partitions, 1 bucket")
    assert str(Progress(3, kind=FAILED, decision="no disk")) == "failed: no disk"


def test_the_imbalance_of_a_join_is_that_of_its_workers():
    assert join_progress(0, loads=(8.0, 1.0, 0.0)).imbalance == pytest.approx((5 + 2 + 3) / 3)
    assert join_progress(0).imbalance == 0.0


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
