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

from steelyard.bench import charts
from steelyard.bench.demo import balance as demo_balance
from steelyard.bench.demo import page as demo_page
from steelyard.bench.demo import run as demo
from steelyard.bench.demo import stream as demo_stream
from steelyard.bench.demo.stream import BY_KEY, NEWCOMER, OURS, SALTED, SLOTS, SPREAD, WAYS, Measured, Scenario, Task
from steelyard.bench.demo.view import View, median
from steelyard.bench.demo.work import LookUp, Total
from steelyard.bench.prompt.planning import zipf_counts
from steelyard.partition import partitioner

SMALL = Scenario(LookUp(wait_us=5, fetch_us=50), rows=6_000, batches=1, keys=50, exponent=1.5)


def batch(way, number, seconds=1.0, sizes=(10, 10), counts=True):
    tasks = tuple(Task(size, size // 5, size / 100) for size in sizes)
    return Measured(way, number, seconds, tasks, counts, "auto (prompt)" if way == OURS else "")


def filled_view(console=None):
    view = View(SMALL, console or Console(file=io.StringIO(), width=200))
    for place, way in enumerate(WAYS):
        for number in range(SMALL.warm_ups):
            view.add(batch(way, number, counts=False))
        view.add(batch(way, SMALL.warm_ups, seconds=5.0 - place, sizes=(50 - 10 * place, *[10] * 7)))
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


@given(st.lists(st.lists(st.integers(0, 10**9), min_size=1), min_size=1), st.integers(0, 5))
def test_work_in_parts_gives_what_work_in_one_piece_gives(parts, fetch_us):
    for work in (Total(), LookUp(wait_us=0, fetch_us=fetch_us)):
        whole = work.add(work.zero(), np.array(list(chain(*parts))))
        merged = work.zero()
        for part in parts:
            merged = work.merge(merged, work.add(work.zero(), np.array(part)))
        assert work.finish(merged) == work.finish(whole)


@pytest.mark.spark
def test_all_ways_give_the_same_answers_and_leave_chart_page_and_figures(spark, tmp_path):
    console = Console(file=io.StringIO(), width=200)
    said = demo.demonstrate(spark, tmp_path, SMALL, console)
    assert re.search(r"All 5 gave the same \d+ answers", console.file.getvalue())
    assert re.search(r"times (faster|slower) \(.* than a newcomer's\)", said[-1])
    assert (tmp_path / "demo.png").read_bytes().startswith(b"\x89PNG")
    record = json.loads((tmp_path / "demo.json").read_text())
    counted = {one["way"]: one["tasks"] for one in record["batches"] if one["counts"]}
    assert set(counted) == set(WAYS)
    assert all(sum(task["rows"] for task in tasks) == SMALL.rows for tasks in counted.values())
    largest = {way: max(task["rows"] for task in tasks) for way, tasks in counted.items()}
    fetched = {way: sum(task["keys"] for task in tasks) for way, tasks in counted.items()}
    assert largest[SPREAD] < largest[SALTED] < min(largest[BY_KEY], largest[NEWCOMER])
    assert fetched[SPREAD] > fetched[SALTED] > fetched[BY_KEY] == fetched[NEWCOMER]


def test_a_wrong_answer_is_found_and_named():
    right = pa.table({"window_start": [0, 0], "key": [1, 2], "total": [10, 20]})
    wrong = pa.table({"window_start": [0, 0], "key": [1, 2], "total": [10, 21]})
    demo.compare({NEWCOMER: right, SPREAD: right})
    with pytest.raises(demo.WrongAnswerError, match=r"'Steelyard' and 'newcomer.*' differ .* \(0, 2, 20\)"):
        demo.compare({NEWCOMER: right, OURS: wrong})
    with pytest.raises(demo.WrongAnswerError):
        demo.compare({NEWCOMER: right, OURS: right.slice(0, 1)})


def test_a_missing_slot_counts_in_the_mean():
    assert batch(SPREAD, 0, sizes=(40, 40)).largest_over_mean == pytest.approx(SLOTS / 2)


def test_warm_ups_and_the_closing_row_do_not_count():
    view = filled_view()
    view.add(batch(OURS, SMALL.warm_ups + SMALL.batches, seconds=99.0, counts=False))
    assert [one.seconds for one in view.counted(OURS)] == [1.0]
    assert median(view.counted(NEWCOMER), "seconds") == 5.0


def test_without_a_terminal_every_batch_is_a_line():
    console = Console(file=io.StringIO(), width=200)
    filled_view(console)
    lines = console.file.getvalue().splitlines()
    assert len(lines) == len(WAYS) * (SMALL.warm_ups + 1)
    assert lines[SMALL.warm_ups].endswith("1 of 1, 5.00 s, 24 fetches, rows largest/mean 3.33, longest task 0.50 s")
    assert lines[-1].endswith("chose auto (prompt)")


def test_on_a_terminal_a_table_is_drawn():
    console = Console(file=io.StringIO(), width=200, force_terminal=True)
    with View(SMALL, console) as view:
        view.begin(NEWCOMER)
        view.add(batch(NEWCOMER, SMALL.warm_ups, seconds=2.0, sizes=(3, 1)))
    last = console.file.getvalue()
    assert "fetches" in last
    assert "6.00" in last  # largest over the mean of eight slots


def test_the_last_sentence_compares_with_the_best_of_the_others():
    why, last = demo.gains(filled_view())
    assert "which chose auto (prompt)" in why
    assert "took 1.00 s per batch, the best of the other ways (expert: salted) 2.00 s: 2.00 times faster" in last
    assert "5.00 times faster than a newcomer's" in last


def test_tasks_are_drawn_by_what_they_waited_for_and_empty_slots_too():
    parts = demo_page.parts_of(filled_view(), batch(OURS, 0, sizes=(10, 20)))
    assert parts[:2] == [(20 * 5e-6, 4 * 50e-6), (10 * 5e-6, 2 * 50e-6)]
    assert parts[2:] == [(0.0, 0.0)] * (SLOTS - 2)


def test_the_page_needs_no_network(tmp_path):
    page = demo_page.write_page(tmp_path / "index.html", filled_view(), ["a < b"]).read_text()
    assert "a &lt; b" in page
    assert not re.search(r"https?://|<script|<link|src=", page)
    assert all(way in page for way in WAYS)


def test_the_picture_shows_the_blocks_of_both_policies(tmp_path):
    assert charts.save(demo_balance.draw, tmp_path / "balance.png").stat().st_size > 10_000


@pytest.mark.parametrize("policy", ["hash", "prompt"])
def test_no_row_is_missing_in_the_picture(policy):
    counts = zipf_counts(200, 5_000, 1.3, seed=1)
    plan = partitioner(policy).plan(counts, 8)
    rows = demo_balance.hottest_rows(plan, 3)
    assert rows.sum(axis=0).tolist() == plan.sizes.tolist()
    assert rows[0].sum() == counts.rows.max()
