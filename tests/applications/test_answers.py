"""Each application gives what plain Spark's query gives over the same generated rows, whatever the policy."""

from __future__ import annotations

import re
from datetime import date, timedelta

import pytest
from pyspark.sql import functions as F

from steelyard import applications
from steelyard.core import OptionError
from tests.spark.cases import same

pytestmark = pytest.mark.spark
POLICIES = ("hash", "prompt")


@pytest.fixture(scope="module")
def generated(spark):
    """Static rows of a workload, made once."""
    made = {}

    def rows(workload, **options):
        name = f"{workload} {sorted(options.items())}"
        if name not in made:
            read = spark.read.format("steelyard").options(workload=workload, partitions=2, seed=5, **options)
            made[name] = read.load().cache()
        return made[name]

    yield rows
    for frame in made.values():
        frame.unpersist()


def plain(rows, time, size, slide, key, *aggregates):
    """Spark's own sliding aggregation, with the columns that ours has."""
    spans = [F.col("window.start").alias("window_start"), F.col("window.end").alias("window_end")]
    grouped = rows.groupBy(F.window(time, size, slide), key).agg(*aggregates)
    return grouped.select(*spans, *grouped.columns[1:])


def listed(results):
    return results.toArrow().to_pylist()


def check(application, expected, key):
    """Compare an application's answers, with each policy, to rows that were expected."""
    assert expected
    for policy in POLICIES:
        got = listed(application.partition_by(policy, blocks=3, buckets=2).to_df())
        same(got, expected, ["window_start", key])


WORDS = {"words": 60, "rate": 20}


def test_words_are_counted(generated):
    words = generated("words", rows=1500, **WORDS)
    expected = plain(words, "event_time", "30 seconds", "5 seconds", "word", F.count("*").alias("count"))
    check(applications.word_count(words), listed(expected), "word")


def cut_by_spark(texts):
    """One row for each word of each text, as plain Spark cuts them."""
    return texts.withColumn("word", F.explode(F.split("text", r"\s+"))).where("word <> ''")


def test_words_of_texts_are_counted_whatever_white_space_is_around_them(generated):
    tweets = generated("tweets", rows=300, users=20, **WORDS)
    tweets = tweets.withColumn(
        "text",
        F.expr("""case tweet_id % 7 when 0 then concat(' \t', text, '\n') when 1 then null when 2 then ''
                  when 3 then concat(replace(text, ' ', '  '), ' \u00fcber') else text end"""),
    )
    cut = cut_by_spark(tweets)
    expected = plain(cut, "event_time", "30 seconds", "5 seconds", "word", F.count("*").alias("count"))
    check(applications.text_word_count(tweets), listed(expected), "word")


def words_by_spark(tweets, size):
    """Of each user and window a map from word to count, as plain Spark makes it."""
    spans = [F.window("event_time", size, "10 seconds").alias("window"), "user_id"]
    counts = cut_by_spark(tweets).groupBy(*spans, "word").count()
    maps = counts.groupBy("window", "user_id").agg(
        F.map_from_entries(F.array_sort(F.collect_list(F.struct("word", "count")))).alias("words")
    )
    return maps.selectExpr("window.start window_start", "window.end window_end", "user_id", "words")


def test_each_key_has_all_the_words_of_its_texts(generated):
    tweets = generated("tweets", rows=300, users=20, **WORDS)
    application = applications.words_per_key(tweets, key="user_id", slide="10 seconds")
    check(application, listed(words_by_spark(tweets, "60 seconds")), "user_id")


def test_the_top_of_each_window_is_what_plain_spark_ranks_first(generated):
    words = generated("words", rows=1500, **WORDS)
    counts = plain(words, "event_time", "30 seconds", "5 seconds", "word", F.count("*").alias("count"))
    counts.createOrReplaceTempView("counts")
    expected = words.sparkSession.sql(
        """select * from (select *, row_number() over (partition by window_start order by count desc, word) as rank
           from counts) where rank <= 10"""
    )
    got = applications.word_count(words).partition_by("prompt", blocks=3).to_df()
    same(listed(applications.top(got)), listed(expected), ["window_start", "rank"])


def test_top_refuses_what_it_cannot_rank(generated):
    words = generated("words", rows=1500, **WORDS)
    with pytest.raises(OptionError, match=r"column.*'cuont'"):
        applications.top(words.withColumn("count", F.lit(1)), by="cuont")
    with pytest.raises(OptionError, match="k must be a whole number"):
        applications.top(words, k=0, by="word")
    with pytest.raises(OptionError, match="rename it"):
        applications.top(words.withColumn("rank", F.lit(1)), by="word")


TRIPS = {"rows": 600, "medallions": 15, "rate": 0.05}  # 3 hours and 20 minutes


def test_fares_and_distances_are_summed_for_each_taxi(generated):
    trips = generated("taxi", **TRIPS)
    fares = F.sum("fare_amount").alias("total_fare")
    expected = plain(trips, "dropoff_time", "2 hours", "5 minutes", "medallion", fares)
    check(applications.fare_per_taxi(trips), listed(expected), "medallion")
    miles = F.sum("trip_distance").alias("total_distance")
    expected = plain(trips, "dropoff_time", "45 minutes", "1 minute", "medallion", miles)
    check(applications.distance_per_taxi(trips), listed(expected), "medallion")


def test_cpu_is_summed_for_each_class_and_averaged_for_each_job(generated):
    events = generated("cluster", rows=600, jobs=12, rate=0.1)
    total = F.sum("cpu").alias("total_cpu")
    expected = plain(events, "event_time", "60 minutes", "1 minute", "scheduling_class", total)
    check(applications.cpu_per_class(events), listed(expected), "scheduling_class")
    mean = F.avg("cpu").alias("mean_cpu")
    scheduled = events.where("event_type = 'SCHEDULE'")
    expected = plain(scheduled, "event_time", "60 minutes", "1 minute", "job_id", mean)
    check(applications.cpu_per_job(events), listed(expected), "job_id")


def test_quantities_are_summed_for_each_part(generated):
    lines = generated("lineitem", rows=600, scale=0.0002, exponent=1.0, rate=0.1)
    quantity = F.sum("l_quantity").alias("quantity")
    expected = plain(lines, "event_time", "1 hour", "1 minute", "l_partkey", quantity)
    check(applications.quantity_per_part(lines), listed(expected), "l_partkey")


def test_revenue_changes_by_the_standard_filter_of_tpch(generated):
    lines = generated("lineitem", rows=3000, rate=0.5)
    chosen = lines.where(
        """l_shipdate >= date'1994-01-01' and l_shipdate < date'1995-01-01'
           and l_quantity < 24 and cast(l_discount as decimal(12, 2)) between 0.05 and 0.07"""
    ).withColumn("report", F.lit("revenue change"))
    assert {row.l_discount for row in chosen.select("l_discount").distinct().collect()} == {0.05, 0.06, 0.07}
    revenue = F.sum(F.col("l_extendedprice") * F.col("l_discount")).alias("revenue")
    expected = plain(chosen, "event_time", "1 hour", "1 minute", "report", revenue)
    check(applications.revenue_change(lines), listed(expected), "report")
    with pytest.raises(OptionError, match="first_day must be a date"):
        applications.revenue_change(lines, first_day="1994-01-01")
    with pytest.raises(OptionError, match=re.escape("'l_discount'")):
        applications.revenue_change(lines.drop("l_discount"), first_day=date(1994, 1, 1))


PEOPLE = ("margaret hamilton, apollo road", "grace hopper, harvard mark lane", "ada b. lovelace")


def people(generated):
    """Records of three people in four blocks, most with a letter wrong among the first eight."""
    tweets = generated("tweets", rows=240, users=20, **WORDS)
    names = ", ".join(f"'{person}'" for person in PEOPLE)
    return tweets.selectExpr(
        "event_time",
        "tweet_id % 16 div 5 as block",
        f"element_at(array({names}), 1 + cast(user_id % 3 as int)) as person",
        "overlay(person placing '?' from 1 + cast(tweet_id % 8 as int)) as record",
    )


def test_records_of_one_person_are_one_cluster_of_their_block(generated):
    rows = people(generated)
    # The three people's names end in three ways, which is what plain Spark can go by.
    records = F.array_sort(F.collect_list("record")).alias("records")
    each = rows.groupBy(F.window("event_time", "60 seconds", "20 seconds"), "block", F.right("record", F.lit(4)))
    clusters = F.array_sort(F.collect_list("records")).alias("clusters")
    expected = each.agg(records).groupBy("window", "block").agg(clusters)
    expected = expected.selectExpr("window.start window_start", "window.end window_end", "block", "clusters")
    check(applications.correlation_clusters(rows), listed(expected), "block")


def closed(results, newest, delay):
    """Results of windows that the watermark has passed."""
    return [row for row in results if row["window_end"] <= newest - delay]


def run(application, name, policy, tmp_path):
    query = (
        application.partition_by(policy, blocks=3, buckets=2)
        .sink("memory", name=name)
        .checkpoint(str(tmp_path / policy))
        .trigger(available_now=True)
        .start()
    )
    assert query.await_termination(300)
    assert query.exception() is None
    return listed(application.rows.sparkSession.table(name))


@pytest.mark.parametrize("policy", POLICIES)
def test_a_stream_of_words_is_counted_as_the_table_is(spark, generated, tmp_path, policy):
    words = generated("words", rows=1500, **WORDS)
    read = spark.readStream.format("steelyard").options(workload="words", partitions=2, seed=5, **WORDS)
    arriving = read.options(rows_per_batch=500, max_rows=1500).load()
    expected = plain(words, "event_time", "30 seconds", "5 seconds", "word", F.count("*").alias("count"))
    newest = listed(words.agg(F.max("event_time").alias("at")))[0]["at"]
    got = run(applications.word_count(arriving), f"words_{policy}", policy, tmp_path)
    same(got, closed(listed(expected), newest, timedelta(seconds=10)), ["window_start", "word"])
    assert len(got) > 100


def test_a_stream_of_texts_has_each_keys_words_as_the_table_has(spark, generated, tmp_path):
    """Windows of eight panes, one closing a batch: made from the one before by adding a pane and taking one away."""
    tweets = generated("tweets", rows=200, users=20, words=60, rate=2)
    read = spark.readStream.format("steelyard").options(workload="tweets", partitions=2, seed=5, users=20, words=60)
    arriving = read.options(rate=2, rows_per_batch=20, max_rows=200).load()
    newest = listed(tweets.agg(F.max("event_time").alias("at")))[0]["at"]
    application = applications.words_per_key(
        arriving, key="user_id", window="80 seconds", slide="10 seconds", delay="0 seconds"
    )
    got = run(application, "hashtags", "prompt", tmp_path)
    expected = listed(words_by_spark(tweets, "80 seconds"))
    same(got, closed(expected, newest, timedelta(0)), ["window_start", "user_id"])
    assert len(got) > 100


@pytest.mark.parametrize("policy", POLICIES)
def test_a_stream_of_trips_is_summed_as_the_table_is(spark, generated, tmp_path, policy):
    options = {name: value for name, value in TRIPS.items() if name != "rows"}
    trips = generated("taxi", **TRIPS)
    read = spark.readStream.format("steelyard").options(workload="taxi", partitions=2, seed=5, **options)
    arriving = read.options(rows_per_batch=200, max_rows=600).load()
    fares = F.sum("fare_amount").alias("total_fare")
    expected = plain(trips, "dropoff_time", "2 hours", "5 minutes", "medallion", fares)
    newest = listed(trips.agg(F.max("dropoff_time").alias("at")))[0]["at"]
    got = run(applications.fare_per_taxi(arriving), f"fares_{policy}", policy, tmp_path)
    same(got, closed(listed(expected), newest, timedelta(seconds=10)), ["window_start", "medallion"])
    assert len(got) > 100


def test_the_top_of_a_stream_comes_with_each_batch(spark, generated):
    words = generated("words", rows=1500, **WORDS)
    read = spark.readStream.format("steelyard").options(workload="words", partitions=2, seed=5, **WORDS)
    arriving = read.options(rows_per_batch=500, max_rows=1500).load()
    kept = []
    each = applications.top_of_each_batch(lambda best, batch: kept.extend(listed(best)), k=3)
    counting = applications.word_count(arriving).sink("foreach_batch", function=each)
    query = counting.trigger(available_now=True).start()
    assert query.await_termination(300)
    assert query.exception() is None
    newest = listed(words.agg(F.max("event_time").alias("at")))[0]["at"]
    whole = listed(applications.top(applications.word_count(words).to_df(), k=3))
    same(kept, closed(whole, newest, timedelta(seconds=10)), ["window_start", "rank"])
