"""What listeners hear, and that no listener harms who tells."""

import json
import threading
import time
import urllib.request

import pytest

from steelyard.control import Feed, Metrics, ProgressFile, feed, on_progress
from steelyard.core import OptionError, Progress
from steelyard.core.progress import BATCH, DECISION, EPOCH, FAILED, RECOVERED, STOPPED
from steelyard.spark.said import batch_progress


@pytest.fixture
def told():
    made = Feed()
    made.begin("counts", "the id", "the run")
    yield made
    made.close()


def asked(metrics):
    with urllib.request.urlopen(f"http://127.0.0.1:{metrics.port}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return dict(line.rsplit(" ", 1) for line in lines if line.startswith("steelyard_"))


def test_events_know_whose_they_are_and_come_in_order(told):
    heard = []
    told.listen(heard.append)
    for number in range(300):
        told.tell(Progress(number))
    told.tell(Progress(299, kind=DECISION, decision="more"))
    told.close()
    assert [one.batch for one in heard] == [*range(300), 299, 299]
    assert {(one.name, one.id, one.run_id) for one in heard} == {("counts", "the id", "the run")}
    assert [one.kind for one in heard[-3:]] == [BATCH, DECISION, STOPPED]
    assert sorted(one.time for one in heard) == [one.time for one in heard]
    assert [one.batch for one in told.progress] == list(range(200, 300)), "the last hundred batches"


def test_who_comes_late_hears_what_was_before_even_when_all_is_over(told):
    told.tell(Progress(0))
    told.tell(Progress(1))
    first, second = [], []
    told.listen(first.append)
    told.close()
    told.listen(second.append)
    deadline = time.monotonic() + 10
    while len(second) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert [one.batch for one in first] == [one.batch for one in second] == [0, 1, 1]


def test_a_listener_that_raises_is_told_of_once_and_the_others_hear_all(told, caplog):
    heard = []

    def wrong(progress):
        raise ValueError("no such table")

    told.listen(wrong)
    told.listen(heard.append)
    for number in range(5):
        told.tell(Progress(number))
    told.close()
    assert len(heard) == 6
    said = [record.getMessage() for record in caplog.records]
    assert said == ["a listener of counts raised ValueError: no such table; the query goes on"]


def test_a_listener_that_never_comes_back_holds_nobody_up(told, caplog, monkeypatch):
    monkeypatch.setattr(feed, "_LAST_SECONDS", 0.1)
    monkeypatch.setattr(feed, "WAITING", 10)
    stuck, heard = threading.Event(), []
    told.listen(lambda progress: stuck.wait(60))
    told.listen(heard.append)
    for number in range(8):
        told.tell(Progress(number))
    while len(heard) < 8:
        time.sleep(0.01)
    for number in range(8, 16):
        told.tell(Progress(number))
    told.close()
    assert [one.batch for one in heard] == [*range(16), 15]
    assert any("too slow, and misses events" in record.getMessage() for record in caplog.records)
    stuck.set()
    for listening in told._listeners:
        listening.wait(time.monotonic() + 10)
        assert not listening._thread.is_alive(), "the end comes to all"


def test_a_listener_may_end_what_it_listens_to(told, caplog):
    told.listen(lambda progress: told.close())
    told.tell(Progress(0))
    told.close()
    assert not caplog.records


def test_who_listens_everywhere_hears_queries_that_start_until_he_is_forgotten():
    heard = []
    forget = on_progress(heard.append)
    for name in ("a", "b"):
        one = Feed()
        one.begin(name)
        one.tell(Progress(0))
        one.close()
        forget()
    forget()
    assert [(one.name, one.kind) for one in heard] == [("a", BATCH), ("a", STOPPED)]


def test_a_file_has_a_line_of_json_for_each_event(told, tmp_path):
    path = tmp_path / "new" / "progress.jsonl"
    told.listen(ProgressFile(path))
    told.tell(batch_progress(0, blocks=2, buckets=1, policy="hash", rows=7, bad_rows={"null key": 1}))
    told.tell(Progress(1, kind=FAILED, decision="the disk is full"))
    told.close()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["kind"] for line in lines] == [BATCH, FAILED, STOPPED]
    assert (lines[0]["blocks"], lines[0]["rows"], lines[0]["name"]) == (2, 7, "counts")
    assert lines[1]["decision"] == "the disk is full"


def test_prometheus_is_answered_with_sums_of_batches_and_the_newest_of_epochs(told):
    metrics = Metrics()
    told.listen(metrics)
    for number in range(3):
        told.tell(
            batch_progress(
                number, blocks=4, buckets=2, policy="prompt", rows=10, late_rows=1, bad_rows={"null key": 2}, results=5
            ).more(seconds={"total": 0.5 + number}, state_rows=30)
        )
    told.tell(Progress(2, kind=DECISION))
    told.tell(Progress(2, kind=FAILED))
    told.tell(Progress(2, kind=RECOVERED))
    other = Feed()
    other.begin("epochs", run_id="1")
    other.listen(metrics)
    for epoch, rows in enumerate((100, 250, 250), 1):
        other.tell(Progress(epoch, rows=rows, kind=EPOCH))
    other.begin("epochs", run_id="2")
    other.tell(Progress(4, rows=40, kind=EPOCH))
    other.tell(Progress(5, rows=15, kind=EPOCH))  # of workers that began anew
    other.close()
    told.close()
    found = asked(metrics)
    metrics.close()
    assert found['steelyard_rows_total{query="counts"}'] == "30.0"
    assert found['steelyard_late_rows_total{query="counts"}'] == "3.0"
    assert found['steelyard_bad_rows_total{query="counts",reason="null key"}'] == "6.0"
    assert found['steelyard_results_total{query="counts"}'] == "15.0"
    assert found['steelyard_batch{query="counts"}'] == "2.0"
    assert found['steelyard_batch_seconds{phase="total",query="counts"}'] == "2.5"
    assert found['steelyard_tasks{of="blocks",query="counts"}'] == "4.0"
    assert found['steelyard_state{query="counts",unit="rows"}'] == "30.0"
    for name in ("decisions", "failures", "recoveries"):
        assert found[f'steelyard_{name}_total{{query="counts"}}'] == "1.0"
    assert found['steelyard_rows_total{query="epochs"}'] == "305.0"
    assert found['steelyard_batches_total{query="epochs"}'] == "5.0"


def test_metrics_of_one_query_end_with_it_and_a_port_that_is_taken_is_told(told):
    metrics = Metrics(one_query=True)
    with pytest.raises(OptionError, match=f"port={metrics.port}.*nothing can listen there"):
        Metrics(metrics.port)
    told.listen(metrics)
    told.tell(Progress(0, rows=3))
    told.close()
    with pytest.raises(OSError, match="refused"):
        asked(metrics)
