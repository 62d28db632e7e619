"""One customer in a hundred costs forty times as much: which grouping bears it, on machines that I do not have?

Run it with `python examples/hot_customer.py`; it needs no Spark.
"""

from steelyard.sim import Machine, Network, Operator, PerItem, Scenario, Source, simulate
from steelyard.workloads import Zipf

CUSTOMERS = 2_000
# One customer in a hundred costs forty times as much as the others.
COSTS = [0.060 if customer % 100 == 37 else 0.0015 for customer in range(CUSTOMERS)]


def cluster(grouping: str) -> Scenario:
    return Scenario.chain(
        Source("orders", rate=9_000, parallelism=4, keys=Zipf(1.1, keys=CUSTOMERS, seed=7), arrivals="poisson"),
        Operator("enrich", PerItem(COSTS), parallelism=32, capacity=500),
        grouping=grouping,
        machines=8 * (Machine(cores=4),),
        network=Network(latency=0.0004, serialise=0.00002),
    )


def main() -> None:
    print(cluster("hash"))
    for grouping in ("hash", "pk2", "dalton", "shuffle", "osg", "tracking_osg", "shortest"):
        result = simulate(cluster(grouping), seconds=60, seed=1)
        done = result.total("enrich", after=10)
        latency = result.latency(after=10)
        lag = result.sources["lag"].to_numpy()[-4:].sum()
        print(
            f"{grouping:>12}: {done.throughput:7,.0f} tuples/s, {100 * done.utilisation:3.0f} % busy, "
            f"latency p50 {1000 * latency.percentiles[50]:8.1f} ms, p99 {1000 * latency.percentiles[99]:8.1f} ms, "
            f"lag {lag:9,.0f} rows"
        )


if __name__ == "__main__":
    main()
