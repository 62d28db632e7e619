"""What a newcomer writes by habit, or mistypes: every such program is answered with a sentence that helps."""

from __future__ import annotations

import traceback
import warnings

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import steelyard as sy
from steelyard.core import Moves, NoEffectWarning, OptionError
from steelyard.partition import Dalton, Hash
from steelyard.similarity import ImbalanceAbove
from steelyard.spark.classic import require_classic
from steelyard.spark.resident import require_barrier
from steelyard.spark.source import register
from tests.spark.cases import Mean


@pytest.fixture(scope="module")
def fares(spark):
    return spark.createDataFrame(
        [("a", 1.5, "x"), ("b", 2.5, "y"), ("a", 4.0, "z")], "user string, fare double, t string"
    )


def connected(kind):
    """An object of a class of Spark Connect, whose own packages need not be there."""
    made = type(kind.__name__, (kind,), {"__module__": "pyspark.sql.connect.dataframe", "__init__": lambda self: None})
    return object.__new__(made)


@pytest.mark.parametrize(
    "taker",
    [
        sy.stream,
        lambda rows: sy.similarity_join(rows, on="v", id="id", threshold=0.1),
        register,
        lambda rows: require_barrier(rows, 2),
    ],
)
def test_a_dataframe_of_spark_connect_is_refused_with_the_reason_and_the_remedy(taker):
    with pytest.raises(OptionError, match=r"Spark Connect DataFrame.*inside Spark's driver.*without SPARK_REMOTE"):
        taker(connected(DataFrame))
    require_classic(None, "nothing")


@pytest.mark.parametrize(
    ("variable", "value"),
    [("SPARK_REMOTE", "sc://there"), ("SPARK_API_MODE", "Connect"), ("SPARK_CONNECT_MODE", "1")],
)
def test_a_session_is_not_made_where_the_environment_asks_for_spark_connect(monkeypatch, variable, value):
    monkeypatch.setenv(variable, value)
    with pytest.raises(OptionError, match=f"{variable} asks for Spark Connect"):
        sy.session()


@pytest.mark.spark
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("groupBy", "did you mean 'group_by'"),
        ("groupby", "did you mean 'group_by'"),
        ("withWatermark", "did you mean 'with_watermark'"),
        ("outputMode", "did you mean 'output_mode'"),
        ("toDF", "did you mean 'to_df'"),
        ("writeStream", r"\.sink\(kind, \.\.\.\) says where"),
        ("where", "on the DataFrame, before it is given"),
        ("queryName", "did you mean 'name'"),
        ("repartition", "did you mean 'partition_by'"),
        ("sum", r"write \.agg\(name=sy\.sum\('column'\)\)"),
        ("option", r"\.checkpoint\(path\) where state lives"),
        ("frobnicate", "there are agg, checkpoint"),
    ],
)
def test_a_name_of_pyspark_is_answered_with_ours(fares, name, said):
    with pytest.raises(AttributeError, match=f"Stream has no '{name}': .*{said}"):
        getattr(sy.stream(fares), name)
    assert not hasattr(sy.stream(fares), "_ipython_canary_method_should_not_exist_")


@pytest.mark.parametrize(("name", "ours"), [("avg", "mean"), ("summ", "sum"), ("count_distinct", "approx_distinct")])
def test_an_aggregate_that_is_called_otherwise_here_is_named(name, ours):
    with pytest.raises(AttributeError, match=f"steelyard has no '{name}': did you mean '{ours}'") as raised:
        getattr(sy, name)
    assert "".join(traceback.format_exception(raised.value)).lower().count("did you mean") == 1


@pytest.mark.spark
def test_a_column_of_pyspark_in_agg_is_answered_with_what_to_write(fares):
    keyed = sy.stream(fares).group_by("user")
    for given, said in (
        (F.sum("fare"), r"write \.agg\(x=sy\.sum\('fare'\)\)"),
        (F.avg("fare"), r"write \.agg\(x=sy\.mean\('fare'\)\)"),
        (F.count("*"), r"write \.agg\(x=sy\.count\(\)\)"),
        (F.count_distinct("fare"), r"write \.agg\(x=sy\.approx_distinct\('fare'\)\)"),
        (F.skewness("fare"), r"there is no sy\.skewness; there are approx_distinct, .* and your own Aggregator"),
        (F.sum(F.col("fare") + 1), r"as in \.agg\(x=sy\.sum\('column'\)\)"),
    ):
        with pytest.raises(OptionError, match=f"aggregate 'x' is a Column of PySpark: {said}"):
            keyed.agg(x=given)
    with pytest.raises(OptionError, match=r"every aggregate has a name, write \.agg\(n=sy\.max\('fare'\)\)"):
        keyed.agg(F.max("fare").alias("n"))
    with pytest.raises(OptionError, match=r"every aggregate has a name, as in \.agg\(total=sy\.sum\('column'\)\)"):
        keyed.agg({"fare": "sum"})
    with pytest.raises(OptionError, match=r"say over which columns, with Mean\(\)\.of\('column'\)"):
        keyed.agg(m=Mean)
    with pytest.raises(OptionError, match=r"say over which columns, with Mean\(\)\.of\('column'\)"):
        keyed.agg(m=Mean().of)
    with pytest.raises(OptionError, match=r"say over which columns, with YourAggregator\(\)\.of\('column'\)"):
        keyed.agg(m=Mean.of)
    with pytest.raises(OptionError, match=r"on an object of your class: write YourAggregator\(\)\.of\('fare', 't'\)"):
        Mean.of("fare", "t")


@pytest.mark.spark
def test_names_that_are_mistyped_get_the_nearest(fares):
    keyed = sy.stream(fares).group_by("user")
    with pytest.raises(OptionError, match="unknown engine 'residnt': did you mean 'resident'"):
        keyed.engine("residnt", workers=2)
    with pytest.raises(OptionError, match=r"partition_by has no option 'block': did you mean 'blocks'\?"):
        keyed.partition_by("prompt", block=8)
    with pytest.raises(OptionError, match=r"unknown parameter of dalton 'epsilom': did you mean 'epsilon'\?"):
        keyed.partition_by("dalton", epsilom=0.1)
    with pytest.raises(OptionError, match=r"has its parameters, and epsilon=0.1 is given beside it"):
        keyed.partition_by(Dalton(), epsilon=0.1)
    asked = keyed.partition_by("dalton", epsilon=0.1, blocks=8)
    assert asked._partitioner == keyed.partition_by("dalton?epsilon=0.1")._partitioner
    join = sy.similarity_join(fares, on="user", id="user", metric="jaccard", similarity=0.9)
    with pytest.raises(OptionError, match=r"unknown trigger 'every_windw': did you mean 'every_window'\?"):
        join.balance("every_windw")
    assert join.balance("imbalance_above?limit=0.5", "greedy?migration=0.1").settings.policy.trigger == ImbalanceAbove(
        0.5
    )
    with pytest.raises(OptionError, match=r"sy.stream takes a Spark DataFrame, got a pandas.DataFrame"):
        sy.stream(fares.toPandas())
    with pytest.raises(OptionError, match=r"similarity must be a number, as in similarity=0.9, got '0.9'"):
        sy.similarity_join(fares, on="user", id="user", metric="jaccard", similarity="0.9")
    with pytest.raises(OptionError, match=r"unknown partitioner 'roundrobin': did you mean 'round_robin'\?"):
        keyed.partition_by("roundrobin")
    with pytest.raises(
        OptionError, match=r"the parquet sink needs path, where 'pth' was given: \.sink\('parquet', path"
    ):
        keyed.sink("parquet", pth="out")
    with pytest.raises(
        OptionError, match=r"trigger: there is no once=True here: write \.trigger\(available_now=True\)"
    ):
        keyed.trigger(once=True)
    with pytest.raises(
        OptionError, match=r"option of \.trigger\(\.\.\.\) 'avaliable_now': did you mean 'available_now'"
    ):
        keyed.trigger(avaliable_now=True)
    with pytest.raises(OptionError, match=r"as in \.group_by\('user', 'city'\), got \['user'\]"):
        sy.stream(fares).group_by(["user"])
    with pytest.raises(OptionError, match="column of aggregate 'n': 'fars': did you mean 'fare'"):
        keyed.agg(n=sy.sum("fars")).to_df()


@pytest.mark.spark
def test_a_column_that_a_metric_cannot_read_is_refused_before_anything_starts(fares):
    with pytest.raises(OptionError, match="column 't': metric 'angular' cannot work on a column of type string"):
        sy.similarity_join(fares, on="t", id="user", threshold=0.1)


@pytest.mark.spark
def test_a_wrong_option_of_the_source_is_in_the_first_line_of_sparks_error(spark):
    reader = spark.readStream.format("steelyard")
    with pytest.raises(AnalysisException) as refused:
        reader.options(workload="taxi", rowsperbatch=3).load()
    first = str(refused.value).splitlines()[0]
    assert "OptionError: unknown option of workload taxi 'rowsperbatch': did you mean 'rows_per_batch'?" in first
    assert "Traceback" not in str(refused.value)


def told(action):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        action()
    return [str(one.message) for one in caught if one.category is NoEffectWarning]


class Lazy(Hash):
    """A policy of one's own that says by itself when rows move for its sake."""

    name, moves = "lazy", Moves.NEVER


@pytest.mark.spark
def test_what_has_no_effect_in_batches_is_told_once_with_the_reason(fares):
    counted = sy.stream(fares).group_by("user").agg(n=sy.count())
    stays = "rows of built-in aggregates stay where they are read; name a policy that moves them, as in partition_by"
    (said,) = told(counted.elastic("zones?interval=1").to_df)
    assert f"has no effect: {stays}('prompt')" in said
    assert told(counted.partition_by("prompt").elastic("zones?interval=1").to_df) == []
    assert told(counted.partition_by("auto").to_df) == []
    assert told(counted.to_df) == []
    assert told(counted.partition_by("in_place").to_df) == []
    (said,) = told(counted.partition_by(Lazy()).elastic("zones?interval=1").to_df)
    assert said.endswith("has no effect: partition_by('lazy') leaves rows where they are read; leave it out")
    assert "repartition" not in counted.partition_by(Lazy(), blocks=7).to_df()._jdf.queryExecution().toString().lower()
    timed = sy.stream(fares.selectExpr("*", "timestamp_seconds(0) as at")).with_watermark("at", "1 second")
    (said,) = told(timed.group_by("user").agg(n=sy.count()).to_df)
    assert said == "with_watermark(...) has no effect: there is no window; it only refuses rows without a time"
    assert told(timed.group_by("user").agg(first=sy.collect("fare")).to_df) == []
    moved = counted.agg(mean=Mean().of("fare"))
    assert told(moved.partition_by("prompt", blocks=2).to_df) == []
    one = told(moved.partition_by("prompt", blocks=1).to_df)
    assert one == [
        "partition_by('prompt') has no effect: there is one block; give more, as in partition_by(..., blocks=4)"
    ]
    exact = told(moved.partition_by("hash", blocks=2).statistics("exact").to_df)
    assert exact == ["statistics('exact') has no effect: policy 'hash' looks at no counts"]
    listed = sy.stream(fares.withColumn("key", F.array("user"))).group_by("key").agg(mean=Mean().of("fare"))
    (said,) = told(listed.partition_by("prompt", blocks=2).to_df)
    assert "keys of such a type cannot be listed in a plan (key array<string>), and go by hash" in said


@pytest.mark.spark
def test_a_description_shows_its_verbs(fares):
    keyed = sy.stream(fares).group_by("user").agg(n=sy.count(), m=Mean().of("fare"))
    described = keyed.partition_by("prompt", blocks=3)
    shown = "Stream(rows user, fare, t; group by user; aggregates n = sy.count(), m = Mean().of('fare'); "
    assert repr(described) == shown + "partition by prompt; blocks 3; engine microbatch)"
    assert "<th>group by</th><td>user</td>" in described._repr_html_()
    vectors = fares.select("user", F.array("fare").alias("v"))
    assert repr(sy.similarity_join(vectors, on="v", id="user", threshold=0.1, workers=2)) == (
        "SimilarityJoin(metric angular; threshold 0.1; of one stream with itself; workers 2)"
    )
    assert "; similarity 0.9; " in repr(sy.similarity_join(vectors, on="v", id="user", similarity=0.9))


@pytest.mark.spark
def test_dead_letters_of_a_static_dataframe_are_refused_since_nobody_would_write_them(fares):
    described = sy.stream(fares).group_by("user").agg(n=sy.count()).on_bad_rows("dead_letter", "letters")
    vectors = fares.select("user", F.array("fare").alias("v"))
    join = sy.similarity_join(vectors, on="v", id="user", threshold=0.1).on_bad_rows("dead_letter", "letters")
    for one in (described, join):
        with pytest.raises(OptionError, match=r"to_df\(\) writes no dead letters: choose .*'drop'"):
            one.to_df()


@pytest.mark.spark
def test_a_checkpoint_of_another_engine_is_not_begun_anew(spark, tmp_path):
    rows = spark.readStream.format("rate").load()
    described = sy.stream(rows).with_watermark("timestamp", "1 second").group_by("value").window("1 second")
    described = described.agg(n=sy.count()).sink("memory", name="unused")
    for left, engine, other in (
        ("offsets", "microbatch", "plain Structured Streaming"),
        ("snapshots", "microbatch", "the resident engine"),
        ("steelyard", "resident", "the micro-batch engine"),
        ("metadata", "resident", "plain Structured Streaming"),
    ):
        (tmp_path / engine / left).mkdir(parents=True)
        with pytest.raises(OptionError, match=f"was begun by {other}, .*: use a new checkpoint"):
            described.engine(engine).checkpoint(tmp_path / engine).start()
        (tmp_path / engine / left).rmdir()


@pytest.mark.spark
def test_an_option_of_a_sink_needs_its_name(fares):
    with pytest.raises(OptionError, match=r"say what 'out' is, as in .sink\('parquet', path='out'\)"):
        sy.stream(fares).group_by("user").agg(n=sy.count()).sink("parquet", "out")
