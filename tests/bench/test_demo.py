"""The demonstration: its input, its answers, its balance and what it leaves behind."""

import io
import json
import re
from dataclasses import replace
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from steelyard.bench import charts, demo, demo_balance, demo_page, demo_stream
from steelyard.bench.demo_stream import ENGINES, HASH, PLAIN, PROMPT, SLOTS, Measured, Scenario
from steelyard.bench.demo_view import View, median
from steelyard.bench.demo_work import LookUp, Score, Total
from steelyard.bench.planning import zipf_counts
from steelyard.partition import partitioner

SMALL = Scenario("small", "a story", Total(), rows=6_000, batches=1, interval=1.0, waits=True, keys=50, exponent=1.5)


def batch(engine, number, seconds=1.0, sizes=(10, 10), counts=True):
    return Measured(engine, number, seconds, sizes, tuple(size / 100 for size in sizes), counts)


def filled_view(scenario=SMALL, console=None):
    view = View(scenario, console or Console(file=io.StringIO(), width=120))
    for place, engine in enumerate(ENGINES):
        for number in range(SMALL.warm_ups):
            view.add(batch(engine, number, counts=False))
        view.add(batch(engine, SMALL.warm_ups, seconds=3.0 - place, sizes=(40 - 15 * place, *[10] * 7)))
    return view


def test_the_input_has_small_warm_ups_then_full_batches_then_one_row(tmp_path):
    demo_stream.write_input(tmp_path / "input", replace(SMALL, batches=2))
    rows = [pq.read_metadata(path).num_rows for path in sorted((tmp_path / "input").iterdir())]
    assert rows == [*[demo_stream.WARM_UP_ROWS] * SMALL.warm_ups, SMALL.rows, SMALL.rows, 1]


def test_every_batch_is_one_window_of_its_own(tmp_path):
    demo_stream.write_input(tmp_path / "input", SMALL)
    for number, path in enumerate(sorted((tmp_path / "input").iterdir())):
        micros = pq.read_table(path).column("event_time").cast(pa.int64()).to_numpy()
        assert set(micros // (demo_stream.WINDOW_SECONDS * demo_stream.MICROS)) == {number}


def test_one_seed_gives_the_same_input(tmp_path):
    for name in ("first", "again"):
        demo_stream.write_input(tmp_path / name, SMALL)
    first, again = (
        [pq.read_table(path) for path in sorted((tmp_path / name).iterdir())] for name in ("first", "again")
    )
    assert first == again


@given(st.lists(st.lists(st.integers(0, 10**9), min_size=1), min_size=1), st.integers(1, 5))
def test_work_in_parts_gives_what_work_in_one_piece_gives(parts, rounds):
    for work in (Total(), LookUp(wait_us=0), Score(rounds)):
        whole = work.add(work.zero(), np.array(list(chain(*parts))))
        merged = work.zero()
        for part in parts:
            merged = work.merge(merged, work.add(work.zero(), np.array(part)))
        assert work.finish(merged) == work.finish(whole)


@pytest.mark.spark
def test_three_engines_give_the_same_answers_and_leave_chart_page_and_figures(spark, tmp_path):
    console = Console(file=io.StringIO(), width=120)
    demo.demonstrate(spark, tmp_path, [SMALL], console)
    said = console.file.getvalue()
    assert re.search(r"All three gave the same \d+ answers", said)
    assert "Balance: the largest of 8 tasks" in said
    assert (tmp_path / "demo.png").read_bytes().startswith(b"\x89PNG")
    (record,) = json.loads((tmp_path / "demo.json").read_text())
    counted = {one["engine"]: one for one in record["batches"] if one["counts"]}
    assert set(counted) == set(ENGINES)
    assert all(sum(one["sizes"]) == SMALL.rows for one in counted.values())
    largest = {engine: max(one["sizes"]) for engine, one in counted.items()}
    assert largest[PROMPT] < largest[HASH]


def test_a_wrong_answer_is_found_and_named():
    right = pa.table({"window_start": [0, 0], "key": [1, 2], "total": [10, 20]})
    wrong = pa.table({"window_start": [0, 0], "key": [1, 2], "total": [10, 21]})
    demo.compare({PLAIN: right, HASH: right}, SMALL)
    with pytest.raises(demo.WrongAnswerError, match=r"Steelyard, Prompt and plain Spark differ .* \(0, 2, 20\)"):
        demo.compare({PLAIN: right, PROMPT: wrong}, SMALL)
    with pytest.raises(demo.WrongAnswerError):
        demo.compare({PLAIN: right, PROMPT: right.slice(0, 1)}, SMALL)


def test_a_missing_slot_counts_in_the_mean():
    assert batch(HASH, 0, sizes=(40, 40)).largest_over_mean == pytest.approx(SLOTS / 2)


def test_warm_ups_and_the_closing_row_do_not_count():
    view = filled_view()
    view.add(batch(PROMPT, SMALL.warm_ups + SMALL.batches, seconds=99.0, counts=False))
    assert [one.seconds for one in view.counted(PROMPT)] == [1.0]
    assert median(view.counted(PLAIN), "seconds") == 3.0


def test_without_a_terminal_every_batch_is_a_line():
    console = Console(file=io.StringIO(), width=120)
    filled_view(console=console)
    lines = console.file.getvalue().splitlines()
    assert len(lines) == len(ENGINES) * (SMALL.warm_ups + 1)
    assert lines[SMALL.warm_ups].endswith("3.00 s, 3.00 of the interval, largest/mean 2.91, 8 tasks")


def test_on_a_terminal_a_table_is_drawn():
    console = Console(file=io.StringIO(), width=120, force_terminal=True)
    with View(SMALL, console) as view:
        view.begin(PLAIN)
        view.add(batch(PLAIN, SMALL.warm_ups, seconds=2.0, sizes=(3, 1)))
    last = console.file.getvalue()
    assert "of interval" in last
    assert "6.00" in last  # largest over the mean of eight slots


def test_the_sentences_compare_what_was_measured():
    said = demo.gains([filled_view(), filled_view(replace(SMALL, waits=False))])
    assert [sentence.split(":")[0] for sentence in said] == ["Balance", "Waiting", "Computing"]
    assert "1.00 s by Prompt, 2.00 s by hash and 3.00 s in plain Spark: 2.0 and 3.0 times as long" in said[1]


def test_the_page_needs_no_network(tmp_path):
    page = demo_page.write_page(tmp_path / "index.html", [filled_view()], ["a < b"]).read_text()
    assert "a &lt; b" in page
    assert not re.search(r"https?://|<script|<link|src=", page)
    assert all(engine in page for engine in ENGINES)


def test_the_picture_shows_the_blocks_of_both_policies(tmp_path):
    assert charts.save(demo_balance.draw, tmp_path / "balance.png").stat().st_size > 10_000


@pytest.mark.parametrize("policy", ["hash", "prompt"])
def test_no_row_is_missing_in_the_picture(policy):
    counts = zipf_counts(200, 5_000, 1.3, seed=1)
    plan = partitioner(policy).plan(counts, 8)
    rows = demo_balance.hottest_rows(plan, 3)
    assert rows.sum(axis=0).tolist() == plan.sizes.tolist()
    assert rows[0].sum() == counts.rows.max()
