"""How objects show themselves, in a terminal and in a notebook."""

from __future__ import annotations

from html.parser import HTMLParser

import pyarrow as pa
import pytest

from steelyard import count
from steelyard.core import BlockPlan, BucketPlan, KeyCounts, Progress
from steelyard.partition import Prompt
from steelyard.resident import Flow, Memory, Rows, run
from steelyard.resident.groups import BatchProgram, Scheduling, run_batches
from steelyard.sim import Edge, Exactly, Operator, Scenario, Source, simulate
from steelyard.spark.said import join_progress


class Tags(HTMLParser):
    """Whether tags open and close in order, and which there are."""

    def __init__(self):
        super().__init__()
        self.open, self.seen = [], set()

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.seen.add(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def finished():
    flow = Flow("words")
    rows = flow.source(Rows(pa.table({"w": ["a", "b", "a"]})))
    rows.key_by("w").aggregate(n=count(), emit="end").sink(Memory(), name="<out>")
    return run(flow.dataflow(), workers=1)


def batches():
    program = BatchProgram(Rows(pa.table({"k": ["a", "b"]})), ("k",), {"n": count()})
    return run_batches(program, Scheduling(interval=0.01), workers=1)


COUNTS = KeyCounts.of({"a": 6, "b": 2})
SCENARIO = Scenario((Source("log", rate=100), Operator("<map>", Exactly(0.004))), (Edge("log", "<map>", "hash"),))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Prompt().plan(COUNTS, 2), "BlockPlan(prompt: 2 keys, 8 rows in 2 blocks"),
        (lambda: BlockPlan.of(KeyCounts.of({}), 2, key=[], block=[], rows=[], policy="<b>"), "BlockPlan(<b>: 0 keys"),
        (lambda: BucketPlan(pa.array([0, 1]).to_numpy(), pa.array([3, 4]).to_numpy(), 2), "BucketPlan(2 clusters in 2"),
        (lambda: Progress(3, rows=10, bad_rows={"<i>no</i>": 1}), "Progress(batch 3: 10 rows, 1 bad, 0 results"),
        (lambda: join_progress(3, rows=10), "Progress(batch 3: 10 rows with 0 comparisons"),
        (finished, "Results(dataflow words; sinks <out> 2 rows; epochs"),
        (lambda: finished().outcome, "Outcome(sinks 1; instances 3; epochs"),
        (batches, "GroupOutcome(batches "),
        (lambda: SCENARIO, "Scenario: 2 machines, 2 instances\n  log: Source"),
        (lambda: simulate(SCENARIO, 2), "2 s, "),
    ],
)
def test_an_object_shows_itself_in_a_few_words_and_as_small_escaped_html(make, said):
    made = make()
    assert repr(made).startswith(said)
    html = made._repr_html_()
    assert len(html) < 4000
    tags = Tags()
    tags.feed(html)
    assert not tags.open
    assert tags.seen <= {"table", "caption", "b", "tr", "th", "td", "pre"}, "what users name is escaped"
