"""The pipeline on Spark gives, row by row, what plain pandas makes of the same records."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from steelyard.core import OptionError
from steelyard.placement import features as plain
from steelyard.placement.collecting import watched
from steelyard.placement.draws import drawn
from steelyard.placement.learnt import training_rows
from steelyard.placement.records import Collected, together
from steelyard.placement.regression import Parameters, cross_validated
from steelyard.spark.placement_pipeline import Pipeline, samples
from tests.placement.made import Formula, chain

pytestmark = pytest.mark.spark


def shuffled(records, seed):
    """Fragments in another order, some of them twice, one half of some tuples lost."""
    rng = np.random.default_rng(seed)

    def mixed(table):
        rows = rng.permutation(np.concatenate([np.arange(table.num_rows), rng.integers(0, table.num_rows, 50)]))
        return table.take(pa.array(rows[rows % 97 != 5]))

    made = dict(records.tables())
    return Collected(**(made | {name: mixed(made[name]) for name in ("transfer", "process")}), share=records.share)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    cluster = Formula(chain(machines=3, threads=(2, 3, 2)), rate=60.0)
    each = [watched(cluster, one, 60.0, 0.5).records for one in drawn(cluster.setup, 4, seed=3)]
    path = tmp_path_factory.mktemp("records")
    shuffled(together(each[:2]), 1).write(path, batch=0)
    shuffled(together(each[2:]), 2).write(path, batch=1)
    return path


def same(found, expected):
    keys = [name for name in expected.columns if not pd.api.types.is_float_dtype(expected[name])]
    left, right = (one.sort_values(keys).reset_index(drop=True)[list(expected.columns)] for one in (found, expected))
    pd.testing.assert_frame_equal(left, right, check_dtype=False, rtol=1e-9)


def test_spark_makes_the_same_features_and_weights_as_pandas(spark, folder):
    pipeline, records = Pipeline(spark, str(folder)), Collected.read(folder)
    tuples = plain.per_tuple(records)
    assert pipeline.per_tuple().count() == len(tuples)
    expected = plain.features(records)
    processing, transfer = pipeline.features()
    same(processing.toPandas(), expected.processing)
    same(transfer.toPandas(), expected.transfer)
    instance, pair = pipeline.weights()
    known = plain.weights(records)
    same(instance.toPandas(), known.instance)
    same(pair.toPandas(), known.pair)


def test_cross_validation_in_tasks_gives_the_same_scores(spark, folder):
    tried = [Parameters("rbf"), Parameters("linear", C=1.0)]
    scores = Pipeline(spark, str(folder)).scores(tried, folds=3)
    assert sorted(set(scores["name"])) == ["file", "query", "query -> file", "spout -> query"]
    assert len(scores) == 8
    table = plain.features(Collected.read(folder)).transfer
    rows, seconds, groups = training_rows(table[table["edge"] == "query -> file"], "transfer")
    expected = cross_validated(rows, seconds, groups, tried[1], 3)
    found = scores[(scores["name"] == "query -> file") & (scores["kernel"] == "linear")]["accuracy"]
    assert found.tolist() == [pytest.approx(expected, rel=1e-6)]


class Sampler:
    def __init__(self, setup):
        self.setup = setup

    def __call__(self, seed):
        assignments = drawn(self.setup, 5, seed)
        return assignments, assignments.sum(axis=1, dtype=float)[:, None]


def test_samples_are_those_of_their_seeds_wherever_they_are_drawn(spark):
    sampler = Sampler(chain())
    for tasks in (1, 3):
        found = samples(spark, sampler, range(4), tasks).toPandas()
        assert len(found) == 20
        for seed, rows in found.groupby("seed"):
            assert np.array_equal(np.stack(rows["assignment"].tolist()), sampler(seed)[0])
            assert np.array_equal(np.stack(rows["times"].tolist()), sampler(seed)[1])


def test_a_folder_without_records_says_so(spark, tmp_path):
    with pytest.raises(OptionError, match="has no records"):
        Pipeline(spark, str(tmp_path))
