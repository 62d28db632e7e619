"""Watch the hot keys of a generated stream change: five batches, and the three hottest keys of each.

python examples/generated_stream.py
"""

from __future__ import annotations

import tempfile

from pyspark.sql import DataFrame

import steelyard as sy


def show_hottest(batch: DataFrame, number: int) -> None:
    counts = batch.groupBy("key").count().orderBy("count", ascending=False).limit(3).collect()
    hottest = ", ".join(f"key {row['key']} with {row['count']} rows" for row in counts)
    print(f"batch {number}: {hottest}")


def main() -> None:
    spark = sy.session("generated stream", master="local[2]")
    rows = (
        spark.readStream.format("steelyard")
        .option("workload", "zipf")
        .option("exponent", 1.4)
        .option("keys", 10_000)
        .option("drift_every", 20_000)  # other keys are hot after every 20,000 rows
        .option("rows_per_batch", 20_000)
        .option("max_rows", 100_000)
        .option("partitions", 2)
        .load()
    )
    with tempfile.TemporaryDirectory() as checkpoint:
        query = (
            rows.writeStream.foreachBatch(show_hottest)
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
