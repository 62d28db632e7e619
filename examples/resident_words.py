"""Words counted every ten seconds by workers that stay: a resident dataflow in the tasks of one Spark job."""

import steelyard as sy
from steelyard.resident import Flow, Generated, Memory, mermaid
from steelyard.spark import resident
from steelyard.workloads import Words

flow = Flow("words", parallelism=2)
words = flow.source(Generated(Words(words=1000, seed=7), rows=50_000), time="event_time", name="words")
counts = words.key_by("word").aggregate(n=sy.count(), window="10 seconds", name="count")
counts.sink(Memory(), name="counts")
dataflow = flow.dataflow()
print(mermaid(dataflow))

spark = sy.session("resident words", master="local[2]")
results = resident.run(spark, dataflow, workers=2)
top = results.table("counts").sort_by([("n", "descending")]).slice(0, 5)
for row in top.to_pylist():
    print(f"{row['window_start']:%H:%M:%S}  {row['word']:<6} {row['n']}")
for instance, metrics in sorted(results.outcome.metrics.items()):
    print(f"{instance:<9} {metrics['rows_in']:>6} rows in, {metrics['rows_out']:>6} out, {metrics['busy']:.2f} s busy")
spark.stop()
