"""Near-duplicates in a stream of short texts: every pair, within a minute of each other, that three edits explain."""

from pyspark.sql import functions as F

import steelyard as sy

spark = sy.session("near-duplicates", master="local[2]")
source = {"workload": "near_duplicates", "seed": 7}
posts = spark.readStream.format("steelyard").options(**source, rate=50, rows_per_batch=1_000, max_rows=3_000).load()
# Raw text: capitals, punctuation and spaces at the ends are no difference.
plain = posts.withColumn("text", F.trim(F.regexp_replace(F.lower("text"), "[^a-z0-9 ]", "")))

query = (
    sy.similarity_join(
        plain, on="text", id="id", metric="edit", threshold=3, time="event_time", window="1 minute", workers=4
    )
    .sink("memory", name="pairs")
    .trigger(available_now=True)
    .start()
)
query.await_termination()
for report in query.recent_progress:
    print(report)

# The same texts once more, as a table, to show what the pairs are.
spark.read.format("steelyard").options(**source, rows=3_000).load().createOrReplaceTempView("posts")
spark.sql(
    """select left_id, a.text as left_text, right_id, b.text as right_text, int(distance) as edits
       from pairs join posts a on a.id = left_id join posts b on b.id = right_id order by left_id, right_id limit 5"""
).show(truncate=False)
