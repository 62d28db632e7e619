"""The words of each hashtag, over generated tweets: `python examples/hashtags.py hash` and see the largest block."""

import sys

from pyspark.sql import functions as F

import steelyard as sy
from steelyard import applications

policy = sys.argv[1] if len(sys.argv) > 1 else "prompt"

spark = sy.session("hashtags", master="local[8]")
tweets = spark.readStream.format("steelyard").options(workload="tweets", words=5_000, exponent=1.5, rate=100)
rows = tweets.options(rows_per_batch=3_000, max_rows=9_000).load()
# Generated tweets have no hashtags: the first word stands for one.
tagged = rows.withColumn("hashtag", F.substring_index("text", " ", 1))

query = (
    applications.words_per_key(tagged, key="hashtag", slide="20 seconds")
    .partition_by(policy, blocks=8, buckets=4)
    .sink("memory", name="hashtags")
    .trigger(available_now=True)
    .start()
)
query.await_termination()
for report in query.recent_progress:
    print(report)
spark.sql(
    """select window_end, hashtag, size(words) as different, aggregate(map_values(words), 0L, (a, b) -> a + b) as words
       from hashtags order by words desc, window_end limit 5"""
).show(truncate=False)
