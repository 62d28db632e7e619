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


spark = sy.session("own-aggregate", master="local[8]")
trips = spark.read.format("steelyard").options(workload="taxi", rows=50_000).load()
means = sy.stream(trips).group_by("medallion").agg(typical=GeometricMean().of("fare_amount"), trips=sy.count()).to_df()
means.orderBy("trips", ascending=False).show(5)
