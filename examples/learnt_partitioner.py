"""How does a network cut a batch? Beside Prompt, whose measures it was trained for.

Run it with `python examples/learnt_partitioner.py`; it needs no Spark.
"""

import numpy as np
import pyarrow as pa

from steelyard.core import KeyCounts
from steelyard.partition import partitioner


def batch(keys: int, exponent: float) -> KeyCounts:
    weights = np.arange(1.0, keys + 1) ** -exponent
    rows = 1 + np.random.default_rng(7).multinomial(40 * keys, weights / weights.sum())
    return KeyCounts(pa.array(np.arange(keys)), rows)


def main() -> None:
    for keys, exponent in ((300, 0.7), (300, 1.3), (20_000, 1.0)):
        counts = batch(keys, exponent)
        print(f"{keys:,} keys, Zipf {exponent}, {counts.total:,} rows, 24 blocks")
        for name in ("hash", "prompt", "partly?net=false"):
            plan = partitioner(name).plan(counts, 24)
            print(
                f"  {name:<16} largest block {plan.largest_over_mean:5.3f} times the mean, "
                f"{plan.cardinalities.max():4} keys in one, {plan.split.sum():3} keys cut, MPI "
                f"{plan.mpi_normalised():.4f}"
            )


if __name__ == "__main__":
    main()
