"""Batches of a tenth of a second, scheduled in groups ahead of time on a worker inside one Spark job."""

import steelyard as sy


def main() -> None:
    """Count and sum by key, two seconds long, and see how batches went."""
    spark = sy.session("groups", master="local[2]")
    rows = spark.readStream.format("steelyard").options(workload="zipf", rate=50_000, max_rows=100_000).load()
    query = (
        sy.stream(rows)
        .with_watermark("event_time", "0 seconds")
        .group_by("key")
        .window("500 milliseconds")
        .agg(n=sy.count(), total=sy.sum("value"))
        .engine("groups", interval="100 ms", workers=1)
        .partition_by("prompt", blocks=2, buckets=2)
        .elastic("zones?most_blocks=4")
        .sink("memory", name="totals")
        .start()
    )
    query.await_termination()
    for batch in query.recent_progress:
        print(f"{batch}, W = {batch.load:.2f}")
    spark.sql("SELECT window_start, sum(n) AS n, sum(total) AS total FROM totals GROUP BY window_start").show()
    spark.stop()


if __name__ == "__main__":
    main()
