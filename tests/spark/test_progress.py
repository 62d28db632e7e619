"""What queries tell on both engines: the same events, with the same ids, to whoever listens."""

import json
import urllib.request
import uuid

import pytest

import steelyard as sy
from steelyard.core import Action, BatchError, OptionError

pytestmark = pytest.mark.spark
TIMES = [f"2024-05-01 00:00:{second:02d}" for second in range(60)]


@pytest.fixture
def rows(spark, tmp_path):
    """A stream of files: two with rows, and room for more."""
    folder = tmp_path / "in"
    folder.mkdir()
    for number in range(2):
        write(folder, number)
    schema = "k string, v long, at timestamp"
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(str(folder)), folder


def write(folder, number):
    lines = [json.dumps({"k": f"k{n % 3}", "v": n, "at": TIMES[n + 20 * number]}) for n in range(20)]
    part = folder / f".{number}"
    part.write_text("\n".join(lines))
    part.rename(folder / f"{number}.json")


def described(rows, engine, folder, **more):
    stream = sy.stream(rows).with_watermark("at", "1 second").group_by("k").window("10 seconds")
    stream = stream.agg(total=sy.sum("v")).engine(engine).sink("parquet", path=str(folder / "out"))
    return stream.checkpoint(str(folder / "checkpoint")).trigger(available_now=True).name(f"by {engine}")


@pytest.mark.parametrize("engine", ["microbatch", "resident"])
def test_every_engine_tells_the_same_kind_of_events_with_ids_as_sparks(rows, engine, tmp_path):
    stream, folder = rows
    heard, everywhere = [], []
    forget = sy.on_progress(everywhere.append)
    runs = []
    for run in range(2):
        query = described(stream, engine, tmp_path).start().on_progress(heard.append)
        assert query.await_termination(120)
        query.stop()
        runs.append((query.id, query.run_id))
        if not run:
            write(folder, 2)
    forget()
    (first_id, first_run), (second_id, second_run) = runs
    assert first_id == second_id
    assert first_run != second_run
    assert [str(uuid.UUID(one)) for one in (first_id, first_run)] == [first_id, first_run]
    assert [one.kind for one in heard if one.run_id == first_run][-1] == "stopped"
    done = [one for one in heard if one.kind in ("batch", "epoch")]
    assert {one.kind for one in done} == {"batch" if engine == "microbatch" else "epoch"}
    assert {(one.name, one.id) for one in heard} == {(f"by {engine}", first_id)}
    of_first = [one for one in done if one.run_id == first_run]
    rows_read = sum(one.rows for one in of_first) if engine == "microbatch" else of_first[-1].rows
    assert rows_read == 40
    assert [one.to_json() for one in everywhere] == [one.to_json() for one in heard]
    assert query.last_progress == done[-1]


def test_decisions_and_what_they_brought_are_told_and_metrics_answer_while_it_runs(rows, tmp_path):
    class OneMore:
        """A block more after the first batch."""

        def decide(self, observation):
            first = observation.batch.number == 0
            return Action({"blocks": observation.batch.blocks + 1}, "one more") if first else Action()

    answers = []

    def asking(event):
        if event.kind == "brought":
            with urllib.request.urlopen("http://127.0.0.1:19464/metrics", timeout=10) as answer:
                answers.append(answer.read().decode())

    stream, _ = rows
    heard = []
    query = described(stream, "microbatch", tmp_path).partition_by("hash", blocks=2).elastic(OneMore())
    query = query.metrics(port=19464).start().on_progress(heard.append).on_progress(asking)
    assert query.await_termination(120)
    query.stop()
    changes = [(one.kind, one.done) for one in heard if one.kind in ("decision", "brought")]
    assert changes == [("decision", {"blocks": 3}), ("brought", {"blocks": 3})]
    assert next(one.decision for one in heard if one.kind == "batch") == "one more"
    assert [one.blocks for one in heard if one.kind == "batch"][:2] == [2, 3]
    assert 'steelyard_decisions_total{query="by microbatch"} 1.0' in answers[0]


@pytest.mark.parametrize("engine", ["microbatch", "resident"])
def test_a_failure_is_told_in_its_sentence(rows, engine, tmp_path):
    def wrong(batch):
        raise ValueError("no model")

    stream, _ = rows
    heard = []
    broken = described(sy.stream(stream).rows, engine, tmp_path)
    broken = broken.map(wrong, schema=stream.schema).on_bad_rows("fail")
    query = broken.start().on_progress(heard.append)
    with pytest.raises(sy.SteelyardError, match="no model") as raised:
        query.await_termination(120)
    query.stop()
    assert isinstance(raised.value, (BatchError, sy.BadRowError))
    failed = [one for one in heard if one.kind == "failed"]
    assert [one.decision for one in failed] == [str(raised.value)]


def test_a_wrong_port_and_one_that_is_taken_are_told_before_anything_starts(rows, tmp_path):
    stream, _ = rows
    with pytest.raises(OptionError, match="port is a whole number"):
        described(stream, "microbatch", tmp_path).metrics(port="9464")
    taken = sy.Metrics()
    with pytest.raises(OptionError, match="nothing can listen there"):
        described(stream, "microbatch", tmp_path).metrics(port=taken.port).start()
    taken.close()
