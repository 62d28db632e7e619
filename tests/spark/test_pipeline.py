"""Pipelines in TOML: mistakes have a line, and what is right becomes a query."""

import json
import signal
import subprocess
import sys
import tomllib
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.cli import main
from steelyard.core import Progress
from steelyard.spark.pipeline import build, control_c, end_batch, follow
from steelyard.spark.pipeline_file import GENERATED, PipelineError, parse_pipeline, read_pipeline, schema_columns
from steelyard.spark.toml_lines import key_lines
from tests.tiny_spark import tiny

EXAMPLE = Path(__file__).parents[2] / "examples" / "fares.toml"
GOOD = """\
name = "fares"
key = ["medallion"]
checkpoint = "out/fares"

[source]
format = "steelyard"
workload = "taxi"
rate = 1000

[watermark]
column = "dropoff_time"
delay = "10 seconds"

[window]
size = "1 minute"
slide = "10 seconds"

[aggregates]
total = { sum = "fare_amount" }
trips = { count = "*" }
best = { top_k = "fare_amount", k = 3 }

[policy]
name = "prompt"
blocks = 4
buckets = 2
statistics = "exact"
# a comment

[bad_rows]
action = "dead_letter"
path = "out/bad"

[sink]
format = "parquet"
path = "out/totals"

[trigger]
processing_time = "1 second"

[elastic]
name = "zones?patience=2"
"""


def mistakes(text):
    with pytest.raises(PipelineError) as raised:
        parse_pipeline(text, "f.toml")
    return str(raised.value).splitlines()


def test_lines_are_found_in_every_way_to_write_a_key():
    text = '''\
# a = comment
a = 1  # b = comment
"quoted key" = 2
dotted.inner."deep est" = 3
inline = { first = 1, nested = { second = "x, third = 3" } }
text = """
[not.a.table]
not_a_key = 1
"""
raw = \'\'\'
also_not = 1\'\'\'
array = [
    1,  # c = comment
    { inside = 2 },
    ["]", '}'],
]

[table] # comment
a = 1
  [table.sub]
  b = 2

[[many]]
n = 1
[[many]]
n = 2
[many.below]
m = 3
[[many.again]]
q = 4
'''
    lines = key_lines(text)
    assert lines["a",] == 2
    assert lines["quoted key",] == 3
    assert lines["dotted", "inner", "deep est"] == 4
    assert lines["inline", "first"] == 5
    assert lines["inline", "nested", "second"] == 5
    assert ("third",) not in lines
    assert lines["text",] == 6
    assert lines["raw",] == 10
    assert not {("not",), ("not_a_key",), ("also_not",), ("b",), ("c",)} & set(lines)
    assert lines["array", 0] == 13
    assert lines["array", 1, "inside"] == 14
    assert lines["array", 2, 1] == 15
    assert lines["table",] == 18
    assert lines["table", "a"] == 19
    assert lines["table", "sub", "b"] == 21
    assert lines["many", 0, "n"] == 24
    assert lines["many", 1, "n"] == 26
    assert lines["many", 1, "below", "m"] == 28
    assert lines["many", 1, "again", 0, "q"] == 30


def paths(value, prefix=()):
    """Every path of a parsed document."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*prefix, key)
        yield from paths(item, (*prefix, key))


names = st.text("abc_-1", min_size=1, max_size=4)
scalars = st.one_of(
    st.integers(-9, 9).map(str),
    st.sampled_from(
        ['"a # b"', "'c = [d'", '"""e\n[f]\ng = 1"""', "'''h\"\n'''", "true", "1.5e3", '"\\"]}"', '"""x\\""""""']
    ),
    st.just("1979-05-27T07:32:00Z"),
)
literals = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: "[\n" + ", # z = 1\n".join(items) + "\n]"),
        st.dictionaries(names, inner.filter(lambda text: "\n" not in text), max_size=3).map(
            lambda pairs: "{ " + ", ".join(f"{key} = {value}" for key, value in pairs.items()) + " }"
        ),
    ),
    max_leaves=6,
)
sections = st.lists(st.tuples(names, st.booleans(), st.dictionaries(names, literals, max_size=3)), max_size=4)


@settings(deadline=None)
@given(st.dictionaries(names, literals, max_size=3), sections)
def test_every_key_of_every_document_has_a_line_and_nothing_else_has_one(top, tables):
    text = "".join(f"{key} = {value} # end\n\n" for key, value in top.items())
    used = set(top)
    arrays = set()
    for name, is_array, pairs in tables:
        if name in used or (name in arrays and not is_array):
            continue
        if is_array:
            arrays.add(name)
        else:
            used.add(name)
        text += f"[[ {name} ]]\n" if is_array else f"[{name}]\n"
        text += "".join(f"{key} = {value}\n" for key, value in pairs.items())
    lines = key_lines(text)
    assert set(lines) == set(paths(tomllib.loads(text)))
    for path, line in lines.items():
        if isinstance(path[-1], str):
            assert path[-1] in text.splitlines()[line - 1]


def test_a_right_file_becomes_a_description():
    pipeline = parse_pipeline(GOOD, "f.toml")
    assert pipeline.key == ("medallion",)
    assert pipeline.window == {"size": "1 minute", "slide": "10 seconds"}
    steps = dict(pipeline.steps())
    assert steps["aggregate"] == "total = sum(fare_amount), trips = count(*), best = top_k(fare_amount), k(3)"


def test_the_name_defaults_to_the_files():
    assert parse_pipeline(GOOD.replace('name = "fares"\n', "", 1), "some/where.toml").name == "where"


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ('delay = "10', 'dely = "10', 12, "unknown field in [watermark] 'dely': did you mean 'delay'?"),
        ("[watermark]", "[watermrak]", 10, "unknown field 'watermrak': did you mean 'watermark'?"),
        ('"prompt"', '"promt"', 24, "name in [policy]: unknown partitioner 'promt': did you mean 'prompt'?"),
        ('"zones?', '"zone?', 42, "name in [elastic]: unknown elasticity policy 'zone': did you mean 'zones'?"),
        ("patience=2", "patience=0", 42, "name in [elastic]: patience of zones must be at least 1 batch, got 0"),
        ('"prompt"', '"prompt?residual=x"', 24, "unknown parameter of prompt 'residual'"),
        ("blocks = 4", 'blocks = "four"', 25, "blocks in [policy] must be a whole number of at least 1, got 'four'"),
        ("buckets = 2", "buckets = 0", 26, "buckets in [policy] must be a whole number of at least 1, got 0"),
        ('"1 minute"', '"1 fortnight"', 15, "size in [window] must be a time such as"),
        ('"10 seconds"\n\n[agg', '"0 seconds"\n\n[agg', 16, "slide in [window] must be a time such as"),
        ("{ sum =", "{ sun =", 19, "unknown field in [aggregates.total] 'sun': did you mean 'sum'?"),
        ("k = 3", "k = true", 21, "k in [aggregates.best] must be a whole number"),
        ('{ count = "*" }', '"count"', 20, 'trips in [aggregates] must be as { sum = "column" }'),
        ('{ count = "*" }', '{ count = "*", min = "a" }', 20, "more than one function: count, min"),
        ('{ count = "*" }', "{ k = 3 }", 20, "unknown field in [aggregates.trips] 'k'"),
        ('"exact"', '"exakt"', 27, "unknown statistics 'exakt': did you mean 'exact'?"),
        ('path = "out/bad"\n', "", 30, "path in [bad_rows] is missing"),
        ('path = "out/totals"\n', "", 34, "path in [sink] is missing"),
        ('"parquet"', '"parket"', 35, "unknown format 'parket': did you mean 'parquet'?"),
        ('"1 second"', '"1 second"\navailable_now = true', 38, "keep one"),
        ('key = ["medallion"]', "key = []", 2, "key must be a column name or a list of them, got []"),
        ('key = ["medallion"]\n', "", 1, "key is missing"),
        ('workload = "taxi"\n', "", 5, "workload in [source] is missing"),
        ('"taxi"', '"tax"', 7, "workload in [source]: unknown workload 'tax': did you mean 'taxi'?"),
        ("rate = 1000", 'rate = "sinus:1"', 8, "rate in [source]: unknown rate 'sinus': did you mean 'sinusoid'?"),
        ("rate = 1000", "medallion = 1", 8, "unknown field in [source] 'medallion': did you mean 'medallions'?"),
        ("rate = 1000", "medallions = 0", 8, "medallions in [source]: option 'medallions' must be between"),
        ("rate = 1000", "jitter = -1", 8, "jitter in [source] must be a number that is not negative, got -1"),
        ("rate = 1000", "rate = ", 8, "not TOML: Invalid value"),
        ('slide = "10 seconds"', 'slide = "2 minutes"', 16, "slide in [window] must not be longer than size"),
        ('slide = "10 seconds"', 'gap = "10 seconds"', 16, "gap in [window] is for sessions"),
        ('["medallion"]', '["medalion"]', 2, "unknown column of [source] 'medalion': did you mean 'medallion'?"),
        ('"dropoff_time"', '"drop_time"', 11, "unknown column of [source] 'drop_time': did you mean 'dropoff_time'?"),
        ('sum = "fare_amount"', 'sum = "fare"', 19, "unknown column of [source] 'fare'"),
    ],
)
def test_a_mistake_is_named_with_its_line_and_the_remedy(old, new, line, words):
    assert old in GOOD
    said = mistakes(GOOD.replace(old, new, 1))
    assert any(one.startswith(f"f.toml:{line}: ") and words in one for one in said), said


def test_sessions_have_a_gap_alone_and_columns_are_those_of_the_stream_that_is_named():
    text = GOOD.replace('size = "1 minute"\nslide = "10 seconds"', 'gap = "10 seconds"')
    assert parse_pipeline(text).window == {"gap": "10 seconds"}
    assert mistakes(text.replace('workload = "taxi"', 'workload = "nexmark"\nstream = "bids"'))[0].endswith(
        "unknown column of [source] 'medallion': There are: auction, bidder, channel, event_time, extra, price, url"
    )


def test_a_mistyped_field_is_one_mistake_and_not_two():
    (said,) = mistakes(GOOD.replace("size =", "sise ="))
    assert "did you mean 'size'?" in said


def test_columns_of_a_written_schema_are_checked_as_spark_would(tmp_path):
    start, end = GOOD.index("[source]"), GOOD.index("[watermark]")
    schema = "Medallion string, dropoff_time timestamp, fare_amount decimal(9, 2), place struct<x: int, y: int>"
    files = f'[source]\nformat = "json"\npath = "{tmp_path}"\nschema = "{schema}"\n\n'
    text = GOOD[:start] + files + GOOD[end:]
    parse_pipeline(text.replace("{ sum =", '{ sum = "place.x" } # {'))
    (said,) = mistakes(text.replace("decimal(9, 2)", "double").replace("fare_amount double", "fare double"))[:1]
    assert "unknown column of [source] 'fare_amount'" in said
    (tmp_path / "fare_amount=1").mkdir()  # a column that only the folders have
    parse_pipeline(text.replace("fare_amount decimal(9, 2)", "fare double"))


@pytest.mark.parametrize("wrong", ["Medallion strin, fare_amount int", "a struct<x: itn>, b int"])
def test_a_misspelt_type_of_a_schema_is_told_with_the_line(wrong, tmp_path):
    start, end = GOOD.index("[source]"), GOOD.index("[watermark]")
    files = f'[source]\nformat = "json"\npath = "{tmp_path}"\nschema = "{wrong}"\n\n'
    assert any("schema in [source]: unknown type" in said for said in mistakes(GOOD[:start] + files + GOOD[end:]))
    commented = files.replace(wrong, "Medallion string comment 'a, big strin', dropoff_time timestamp, fare_amount int")
    parse_pipeline(GOOD[:start] + commented + GOOD[end:])


@pytest.mark.parametrize("schema", ["id", "", "id bigint,", '{"type": "struct"}', 'a int comment "b, c"'])
def test_a_schema_that_only_spark_can_read_is_left_to_it(schema):
    assert schema_columns(schema) is None


def test_every_option_of_generated_rows_can_be_written():
    from steelyard.spark.source import SourceOptions

    own = {field.name for field in fields(SourceOptions)} - {"workload", "rate", "rows"}
    assert set(GENERATED) == own


def test_a_window_needs_a_watermark():
    start, end = GOOD.index("[watermark]"), GOOD.index("[window]")
    (said,) = mistakes(GOOD[:start] + GOOD[end:])
    assert said.startswith("f.toml:10: [window] needs [watermark]")


def test_mistakes_come_in_the_order_of_the_file():
    said = mistakes(GOOD.replace("rate =", "rat =").replace("size =", "siz =").replace("blocks =", "block ="))
    lines = [int(one.split(":")[1]) for one in said]
    assert lines == sorted(lines)
    assert len(said) >= 3


def test_a_file_that_is_not_text_is_refused(tmp_path):
    file = tmp_path / "f.toml"
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(PipelineError, match="not UTF-8"):
        read_pipeline(file)


def test_the_example_is_right():
    assert read_pipeline(EXAMPLE).name == "fares"


class ThreeLooks:
    """A query that ends after three looks, with two more batches at each."""

    looks = 0

    @property
    def is_active(self):
        self.looks += 1
        return self.looks < 3

    @property
    def recent_progress(self):
        return [Progress(batch) for batch in range(self.looks, 2 * self.looks)]


def test_every_batch_is_reported_once_and_in_order():
    said = []
    follow(ThreeLooks(), said.append, asked=lambda: False)
    assert [line.split(":")[0] for line in said] == [f"batch {batch}" for batch in (1, 2, 3, 4, 5)]


class BusyQuery:
    """A query whose batch ends at the fourth look, unless something else ends first."""

    is_active = True

    def __init__(self, busy=True):
        self.status = {"isTriggerActive": busy}
        self.reports = [Progress(0), Progress(1)]
        self.looks = 0

    @property
    def last_progress(self):
        self.looks += 1
        return self.reports[self.looks > 3]


@pytest.mark.parametrize(("busy", "looks"), [(True, 4), (False, 2)])
def test_a_stop_waits_for_the_batch_under_way_and_for_nothing_else(busy, looks):
    query = BusyQuery(busy)
    end_batch(query)
    assert query.looks == looks


def test_the_first_control_c_is_noted_and_the_second_is_as_before():
    others = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with control_c() as asked:
            assert not asked()
            signal.raise_signal(signal.SIGINT)
            assert asked()
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, others)


FILES = """\
key = "taxi"
checkpoint = "{folder}/checkpoint"
source = {{ format = "json", path = "{folder}/in", schema = "taxi string, fare double" }}
aggregates = {{ total = {{ sum = "fare" }}, trips = {{ count = "*" }}, two = {{ top_k = "fare", k = 2 }} }}
policy = {{ name = "prompt", blocks = 2, buckets = 2, statistics = "exact" }}
elastic = {{ name = "zones?interval=10" }}
bad_rows = {{ action = "drop" }}
sink = {{ format = "parquet", path = "{folder}/out" }}
trigger = {{ available_now = true }}
"""


@pytest.mark.spark
def test_a_file_and_plain_spark_give_the_same_result(spark, tmp_path):
    from pyspark.sql import functions as sf

    rows = [(f"taxi {number % 7 % 5}", float(number)) for number in range(200)]
    frame = spark.createDataFrame(rows, "taxi string, fare double")
    frame.write.json(str(tmp_path / "in"))
    query = build(parse_pipeline(FILES.format(folder=tmp_path)), spark).start()
    try:
        query.await_termination(120)
    finally:
        query.stop()
    assert query.exception() is None
    found = spark.read.parquet(str(tmp_path / "out")).select("taxi", "total", "trips")
    expected = frame.groupBy("taxi").agg(sf.sum("fare").alias("total"), sf.count("*").alias("trips"))
    assert sorted(map(tuple, found.collect())) == sorted(map(tuple, expected.collect()))


GENERATED_ROWS = """\
key = "medallion"
checkpoint = "{folder}/checkpoint"
source = {{ format = "steelyard", workload = "taxi", rows_per_batch = 500, {end} }}
aggregates = {{ trips = {{ count = "*" }} }}
policy = {{ name = "prompt", blocks = 2, buckets = 2 }}
sink = {{ format = "parquet", path = "{folder}/out" }}
trigger = {{ {trigger} }}
session = {{ master = "local[2]", config = {{ {config} }} }}
"""


def file_of(folder, **parts):
    file = folder / "trips.toml"
    config = ", ".join(f"{json.dumps(name)} = {json.dumps(value)}" for name, value in tiny().items())
    file.write_text(GENERATED_ROWS.format(folder=folder, config=config, **parts))
    return str(file)


@pytest.mark.spark
def test_a_query_runs_from_the_command_line_to_its_end(spark, tmp_path, monkeypatch, capsys):
    import pyarrow.parquet as pq

    stopped = []

    def note(session):  # and do not stop it: other tests need it
        stopped.append(session)

    monkeypatch.setattr(type(spark), "stop", note)
    assert main(["run", file_of(tmp_path, end="max_rows = 1000", trigger="available_now = true")]) == 0
    reported = [line for line in capsys.readouterr().out.splitlines() if line.startswith("batch ")]
    assert sum(int(line.split()[2]) for line in reported) == 1000
    assert pq.read_table(tmp_path / "out").num_rows > 0
    assert stopped == [spark]


@pytest.mark.spark
def test_control_c_stops_a_running_query_cleanly(tmp_path):
    file = file_of(tmp_path, end='start = "2025-01-01"', trigger='processing_time = "100 milliseconds"')
    command = [sys.executable, "-m", "steelyard.cli", "run", file]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        for line in process.stdout:
            if line.startswith("batch "):
                break
        process.send_signal(signal.SIGINT)
        _, problems = process.communicate(timeout=120)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 130, problems
    assert problems.splitlines()[-1] == "stopped"
    assert "Traceback" not in problems
