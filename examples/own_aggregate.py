"""An aggregate of your own, that combines in two stages: the geometric mean of each taxi's fares."""

import numpy as np

import steelyard as sy


class GeometricMean(sy.Aggregator):
    state = "n bigint, logs double"
    result = "double"

    def zero(self):
        return (0, 0.0)

    def add(self, state, values):
        return (state[0] + len(values), state[1] + float(np.log(values).sum()))

    def merge(self, left, right):
        return (left[0] + right[0], left[1] + right[1])

    def subtract(self, whole, part):
        return (whole[0] - part[0], whole[1] - part[1])

    def finish(self, state):
        return float(np.exp(state[1] / state[0]))


class FastGeometricMean(GeometricMean):
    """The same for all keys of a block at once: no Python call for a key, and compared with the above as it runs."""

    def add_block(self, columns, offsets):
        (values,) = columns
        return np.diff(offsets), np.add.reduceat(np.log(values), offsets[:-1])

    def merge_block(self, states, offsets):
        return tuple(np.add.reduceat(part, offsets[:-1]) for part in states)

    def finish_block(self, states):
        n, logs = states
        return np.exp(logs / n)


spark = sy.session("own-aggregate", master="local[8]")
trips = spark.read.format("steelyard").options(workload="taxi", rows=50_000).load()
means = (
    sy.stream(trips)
    .group_by("medallion")
    .agg(typical=GeometricMean().of("fare_amount"), fast=FastGeometricMean().of("fare_amount"), trips=sy.count())
    .to_df()
)
means.orderBy("trips", ascending=False).show(5)
