"""Orders that take longer for some customers than for others: on workers that stay, and in micro-batches."""

import time

import pyarrow as pa

import steelyard as sy
from steelyard.grouping import TrackingOSG
from steelyard.resident import Flow, Generated, Memory
from steelyard.spark import resident
from steelyard.workloads import Zipf

SCHEMA = {"key": pa.int64(), "waited_ms": pa.int64()}


def looked_up(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Ask a service about every order; what it takes depends on the customer, `key`."""
    waited = [1 + key * 7 % 13 for key in batch["key"].to_pylist()]
    for milliseconds in waited:
        time.sleep(milliseconds / 1000)
    return pa.record_batch([batch["key"], waited], schema=pa.schema(SCHEMA))


spark = sy.session("costly rows", master="local[2]")
orders = Zipf(keys=50, exponent=1.0, seed=7)

for grouping in ("round_robin", TrackingOSG(cost_of="key", resync=4, window=16, keep=0.5)):
    flow = Flow("orders")
    rows = flow.source(Generated(orders, rows=600), batch_rows=20, name="orders")
    rows.shuffle(grouping).map(looked_up, SCHEMA, parallelism=4, name="look up").sink(Memory(), name="done")
    results = resident.run(spark, flow.dataflow(), workers=2)
    busy = [round(one["useful"], 2) for name, one in results.outcome.metrics.items() if name.startswith("look up")]
    name = grouping if isinstance(grouping, str) else grouping.name
    print(f"{name}: {results.table('done').num_rows} rows, seconds of each instance {sorted(busy)}")

stream = spark.readStream.format("steelyard").options(workload="zipf", keys=50, rows_per_batch=300, max_rows=900)
query = (
    sy.stream(stream.load())
    .map(looked_up, "key bigint, waited_ms bigint")
    .partition_by("osg?cost_of=key&epsilon=0.01", blocks=4)
    .sink("memory", name="waits")
    .trigger(available_now=True)
    .start()
)
query.await_termination()
for report in query.recent_progress:
    print(f"batch {report.batch}: seconds of each task {[round(task.seconds, 2) for task in report.tasks]}")
newest = "select key, count(*) as orders, sum(waited_ms) as waited_ms from waits group by key"
spark.sql(f"{newest} order by waited_ms desc limit 5").show()
spark.stop()
