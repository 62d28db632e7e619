"""Fares of each taxi, by the minute, from a skewed stream: the program of the README."""

import steelyard as sy

spark = sy.session("fares", master="local[8]")
trips = spark.readStream.format("steelyard").options(workload="taxi", rows_per_batch=20_000, max_rows=100_000).load()

query = (
    sy.stream(trips)
    .with_watermark("dropoff_time", "10 seconds")
    .group_by("medallion")
    .window("1 minute", slide="10 seconds")
    .agg(total=sy.sum("fare_amount"), trips=sy.count())
    .partition_by("prompt", blocks=8, buckets=4)
    .sink("memory", name="fares")
    .trigger(available_now=True)
    .start()
)
query.await_termination()
print(query.last_progress)
spark.sql("select * from fares order by total desc limit 5").show(truncate=False)
