"""A dataflow has run on two workers. What would four do, or eight? Ask before paying for them."""

import time

import pyarrow as pa

import steelyard as sy
from steelyard.resident import Flow, Generated, Memory, run
from steelyard.workloads import Words


def look_up(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Asks some service about each word, which takes a millisecond."""
    time.sleep(0.001 * batch.num_rows)
    return batch


flow = Flow("lookups", parallelism=2)
words = flow.source(Generated(Words(words=100, seed=7), rows=4_000), batch_rows=50, name="words")
looked_up = words.shuffle().map(look_up, name="look up")
looked_up.key_by("word").aggregate(n=sy.count(), emit="end", name="count").sink(Memory(), name="counts")

results = run(flow.dataflow(), workers=2)
answers = sy.what_if(results, machines=[2, 4, 8], cores=2)
print(answers)
