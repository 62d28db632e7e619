"""The join of one worker: who meets whom, what is counted, what is kept, what moves."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.core.errors import OptionError, SteelyardError
from steelyard.similarity import blocks
from steelyard.similarity.members import INNER, LEFT, OUTER, OUTLIER, RIGHT, SELF, Members, Rows
from steelyard.similarity.metrics import metric
from steelyard.similarity.splitting import Splits, part_of
from steelyard.similarity.window_join import WindowJoin, Windows

EUCLIDEAN = metric("euclidean")


def members(roles, sides=SELF, worksets=1, windows=(0, 0), first_id=0, values=0.0, dimension=1):
    count = len(roles)
    return Members(
        np.broadcast_to(np.asarray(worksets, dtype=np.int64), count).copy(),
        np.array(roles, dtype=np.int8),
        Rows(
            np.arange(first_id, first_id + count),
            np.broadcast_to(np.asarray(sides, dtype=np.int8), count).copy(),
            np.broadcast_to(np.asarray(windows, dtype=np.int64), (count, 2)).copy(),
            np.broadcast_to(np.asarray(values, dtype=float).reshape(-1, 1), (count, dimension)).copy(),
        ),
    )


def drawn(rng, count, self_join=True, first_id=0, dimension=2):
    """Members that are inner only where they are near to the centroid (the origin), so that free pairs are right."""
    spans = rng.integers(0, 4, count)
    return Members(
        rng.integers(1, 4, count),
        np.zeros(count, np.int8),
        Rows(
            np.arange(first_id, first_id + count),
            np.zeros(count, np.int8) if self_join else rng.integers(1, 3, count).astype(np.int8),
            np.column_stack([spans, spans + rng.integers(0, 3, count)]),
            rng.uniform(-1, 1, (count, dimension)),
        ),
    )


def with_roles(part, t, rng):
    near = np.linalg.norm(part.rows.records, axis=1) <= 0.49 * t
    return Members(part.worksets, np.where(near, INNER, rng.integers(1, 3, len(part))).astype(np.int8), part.rows)


def rows_of(pairs):
    return sorted(zip(pairs.left.tolist(), pairs.right.tolist(), pairs.window.tolist(), strict=True))


def expected(parts, t, self_join, last_closed=-100):
    """What should be found, by a loop over all pairs."""
    every = Members.join(EUCLIDEAN, parts)
    rows, found = every.rows, []
    distance = EUCLIDEAN.pairwise(rows.records, rows.records)
    for i in range(len(every)):
        for j in range(len(every)):
            ordered = rows.ids[i] < rows.ids[j] if self_join else (rows.sides[i], rows.sides[j]) == (LEFT, RIGHT)
            both_outer = every.roles[i] == OUTER and every.roles[j] == OUTER
            if ordered and every.worksets[i] == every.worksets[j] and not both_outer and distance[i, j] <= t:
                first, last = max(rows.windows[i, 0], rows.windows[j, 0]), min(rows.windows[i, 1], rows.windows[j, 1])
                span = range(max(int(first), last_closed + 1), int(last) + 1)
                found += [(int(rows.ids[i]), int(rows.ids[j]), w) for w in span]
    return sorted(found)


def test_outer_members_meet_others_but_not_one_another():
    join = WindowJoin(EUCLIDEAN, 1.0, self_join=True)
    found = join.add(members([INNER, OUTLIER, OUTER, OUTER]))
    assert rows_of(found) == [(0, 1, 0), (0, 2, 0), (0, 3, 0), (1, 2, 0), (1, 3, 0)]


def test_inner_members_match_without_a_comparison():
    join = WindowJoin(EUCLIDEAN, 1.0, self_join=True, distances=False)
    found = join.add(members([INNER, INNER, OUTLIER]))
    free = found.free
    assert rows_of(found) == [(0, 1, 0), (0, 2, 0), (1, 2, 0)]
    assert free.sum() == 1
    assert np.isnan(found.distance[free]).all()
    assert (found.distance[~free] == 0).all()
    loads = join.loads()
    assert (loads.comparisons.tolist(), loads.free.tolist()) == ([2], [1])


def test_only_opposite_sides_of_two_streams_meet_and_left_stays_left():
    join = WindowJoin(EUCLIDEAN, 1.0)
    join.add(members([INNER, OUTLIER], sides=[RIGHT, LEFT]))
    found = join.add(members([INNER, OUTLIER], sides=[LEFT, RIGHT], first_id=2))
    assert rows_of(found) == [(1, 3, 0), (2, 0, 0), (2, 3, 0)]


def test_members_of_different_worksets_or_windows_do_not_meet():
    join = WindowJoin(EUCLIDEAN, 1.0, self_join=True)
    assert len(join.add(members([INNER, INNER], worksets=[1, 2]))) == 0
    assert len(join.add(members([INNER], worksets=3, windows=(0, 0)))) == 0
    assert len(join.add(members([INNER], worksets=3, windows=(1, 1)))) == 0


def test_a_pair_in_sliding_windows_is_compared_once_and_shown_for_each_common_window():
    join = WindowJoin(EUCLIDEAN, 1.0, self_join=True)
    join.add(members([OUTLIER], windows=(0, 4)))
    found = join.add(members([OUTLIER], windows=(2, 6), first_id=1))
    assert rows_of(found) == [(0, 1, 2), (0, 1, 3), (0, 1, 4)]
    assert join.loads().comparisons.tolist() == [1]


@given(st.integers(0, 2**32 - 1), st.booleans(), st.sampled_from([0.0, 0.3, 1.0]), st.integers(1, 5))
@settings(deadline=None)
def test_any_batches_give_the_pairs_of_a_plain_loop(seed, self_join, t, batches):
    rng = np.random.default_rng(seed)
    parts = [with_roles(drawn(rng, 25, self_join, 25 * k), t, rng) for k in range(batches)]
    join = WindowJoin(EUCLIDEAN, t, self_join=self_join)
    found = [row for part in parts for row in rows_of(join.add(part))]
    assert len(set(found)) == len(found)
    assert sorted(found) == expected(parts, t, self_join)


@pytest.mark.parametrize("limits", [(0, 1, 3, 5), (1 << 14, 7, 1024, 9), (5, 1 << 21, 4, 2)])
@pytest.mark.parametrize("self_join", [True, False])
def test_large_and_small_blocks_find_the_same(monkeypatch, limits, self_join):
    for name, limit in zip(("SMALL_CELLS", "FLAT_CELLS", "TILE_ROWS", "TILE_COLUMNS"), limits, strict=True):
        monkeypatch.setattr(blocks, name, limit)
    rng = np.random.default_rng(3)
    parts = [with_roles(drawn(rng, 60, self_join, 60 * k), 0.5, rng) for k in range(3)]
    join = WindowJoin(EUCLIDEAN, 0.5, self_join=self_join)
    found = sorted(row for part in parts for row in rows_of(join.add(part)))
    assert found == expected(parts, 0.5, self_join)


def test_portions_are_what_add_gives_and_store_what_it_stores(monkeypatch):
    monkeypatch.setattr(blocks, "FLAT_CELLS", 40)
    rng = np.random.default_rng(5)
    parts = [with_roles(drawn(rng, 60, True, 60 * k), 0.5, rng) for k in range(2)]
    whole, bit_by_bit = (WindowJoin(EUCLIDEAN, 0.5, self_join=True) for _ in range(2))
    for part in parts:
        portions = list(bit_by_bit.portions(part))
        assert len(portions) > 3
        assert sorted(row for portion in portions for row in rows_of(portion)) == rows_of(whole.add(part))
    assert bit_by_bit.records == whole.records == 120
    assert bit_by_bit.loads().comparisons.tolist() == whole.loads().comparisons.tolist()


@pytest.mark.parametrize("role", [INNER, OUTLIER])
def test_no_portion_is_large_however_much_matches_in_however_many_windows(monkeypatch, role):
    limits = {"FLAT_CELLS": 300, "SMALL_CELLS": 10, "TILE_ROWS": 16, "TILE_COLUMNS": 16}
    for name, limit in limits.items():
        monkeypatch.setattr(blocks, name, limit)
    join = WindowJoin(EUCLIDEAN, 1.0, self_join=True)
    portions = list(join.portions(members([role] * 60, windows=(0, 9))))
    assert sum(map(len, portions)) == 60 * 59 // 2 * 10
    assert max(map(len, portions)) <= 2 * 300
    assert len({row for portion in portions for row in rows_of(portion)}) == 60 * 59 // 2 * 10


def test_what_a_record_carries_turns_with_its_id():
    rng = np.random.default_rng(1)
    parts = [with_roles(drawn(rng, 40, True, 40 * k), 0.5, rng) for k in range(2)]
    join = WindowJoin(EUCLIDEAN, 0.5, self_join=True)
    for part in parts:
        rows = part.rows
        names = pa.table({"name": pa.array([f"r{number}" for number in rows.ids])})
        carrying = Rows(rows.ids[::-1], rows.sides, rows.windows, rows.records, names.take(pa.array(range(40))[::-1]))
        found = join.add(Members(part.worksets, part.roles, carrying))
        assert len(found)
        assert found.left_carried is not None
        assert found.right_carried is not None
        assert found.left_carried["name"].to_pylist() == [f"r{number}" for number in found.left]
        assert found.right_carried["name"].to_pylist() == [f"r{number}" for number in found.right]
        assert (found.left < found.right).all()


@given(st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=30)
def test_the_load_of_a_workset_is_its_closed_form(seed):
    """load = (I + X + O)_L (I + X + O)_R - I_L I_R - O_L O_R, and I_L I_R pairs are free (one window, two streams)."""
    rng = np.random.default_rng(seed)
    join = WindowJoin(EUCLIDEAN, 0.1)
    roles, sides = rng.integers(0, 3, 60), rng.integers(1, 3, 60)
    for batch in np.array_split(np.arange(60), 4):
        join.add(members(roles[batch], sides[batch], first_id=int(batch[0]), values=np.zeros(len(batch))))
    left, right = (np.bincount(roles[sides == side], minlength=3) for side in (LEFT, RIGHT))
    loads = join.loads()
    assert loads.comparisons.sum() == left.sum() * right.sum() - left[INNER] * right[INNER] - left[OUTER] * right[OUTER]
    assert loads.free.sum() == left[INNER] * right[INNER]


def test_comparisons_can_be_counted_without_being_done():
    rng = np.random.default_rng(8)
    parts = [with_roles(drawn(rng, 40, first_id=40 * k), 0.6, rng) for k in range(3)]
    one, other = (WindowJoin(EUCLIDEAN, 0.6, self_join=True) for _ in range(2))
    for part in parts:
        one.add(part)
        assert len(other.add(part, find=False)) == 0
    for name, column in vars(one.loads()).items():
        assert (getattr(other.loads(), name) == column).all()


def test_loads_tell_what_a_workset_holds_and_start_again_after_a_reset():
    join = WindowJoin(EUCLIDEAN, 1.0, self_join=True)
    join.add(members([OUTLIER] * 3, worksets=[7, 7, 9], dimension=4))
    loads = join.loads(reset=True)
    assert loads.worksets.tolist() == [7, 9]
    assert loads.comparisons.tolist() == [1, 0]
    assert loads.records.tolist() == [2, 1]
    assert loads.bytes.tolist() == [2 * (34 + 32), 34 + 32]
    assert loads.bytes.sum() == join.bytes
    assert join.loads().comparisons.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("name", "column"), [("edit", ["abc", "ü"]), ("jaccard", ["a b", "c"]), ("hamming", ["ab", "cd"])]
)
def test_bytes_are_counted_for_every_kind_of_record(name, column):
    kind = metric(name)
    part = members([OUTLIER, OUTLIER], worksets=[1, 2])
    rows = Rows(part.rows.ids, part.rows.sides, part.rows.windows, kind.records(pa.array(column))[0])
    join = WindowJoin(kind, 1.0, self_join=True)
    join.add(Members(part.worksets, part.roles, rows))
    assert (join.loads().bytes > 34).all()


def test_a_closed_window_is_forgotten_and_late_members_are_counted():
    join = WindowJoin(EUCLIDEAN, 1.0, self_join=True)
    join.add(members([INNER] * 3, windows=[(0, 0), (0, 1), (1, 1)]))
    join.close(0)
    assert join.records == 2
    found = join.add(members([INNER] * 2, windows=[(0, 0), (0, 1)], first_id=3))
    assert rows_of(found) == [(1, 4, 1), (2, 4, 1)]
    assert join.late == 1


def test_what_is_taken_out_goes_on_elsewhere_and_no_pair_is_found_twice():
    rng = np.random.default_rng(5)
    parts = [with_roles(drawn(rng, 40, first_id=40 * k), 0.6, rng) for k in range(4)]
    one, other = (WindowJoin(EUCLIDEAN, 0.6, self_join=True) for _ in range(2))
    found = rows_of(one.add(parts[0])) + rows_of(one.add(parts[1]))
    moved = one.take_out(np.array([2, 3]))
    assert set(moved.worksets.tolist()) == {2, 3}
    assert set(one.loads().worksets[one.loads().records > 0].tolist()) == {1}
    other.put_in(moved)
    for part in parts[2:]:
        here = part.worksets == 1
        found += rows_of(one.add(part.take(EUCLIDEAN, np.flatnonzero(here))))
        found += rows_of(other.add(part.take(EUCLIDEAN, np.flatnonzero(~here))))
    assert sorted(found) == expected(parts, 0.6, True)


def test_a_workset_that_holds_nothing_moves_as_nothing():
    assert WindowJoin(EUCLIDEAN, 1.0).take_out(np.array([4])) is None


def test_put_in_leaves_out_what_is_closed_here():
    join = WindowJoin(EUCLIDEAN, 1.0, self_join=True)
    join.close(3)
    join.put_in(members([INNER, INNER], windows=[(3, 3), (3, 4)]))
    assert join.records == 1


def test_state_goes_round_and_the_join_goes_on():
    rng = np.random.default_rng(6)
    parts = [with_roles(drawn(rng, 30, first_id=30 * k), 0.6, rng) for k in range(3)]
    join = WindowJoin(EUCLIDEAN, 0.6, self_join=True)
    found = rows_of(join.add(parts[0])) + rows_of(join.add(parts[1]))
    again = WindowJoin(EUCLIDEAN, 0.6, self_join=True)
    again.restore(join.state())
    assert all(
        np.array_equal(a, b) for a, b in zip(vars(join.loads()).values(), vars(again.loads()).values(), strict=True)
    )
    assert (again.closed, again.late, again.bytes) == (join.closed, join.late, join.bytes)
    assert sorted(found + rows_of(again.add(parts[2]))) == expected(parts, 0.6, True)


def test_an_empty_join_goes_round_too():
    again = WindowJoin(EUCLIDEAN, 1.0)
    again.restore(WindowJoin(EUCLIDEAN, 1.0).state())
    assert again.records == 0


def test_more_than_max_bytes_is_refused_with_the_bound_and_the_remedy_and_changes_nothing():
    join = WindowJoin(EUCLIDEAN, 1.0, self_join=True, max_bytes=300)
    join.add(members([OUTER] * 4))
    with pytest.raises(SteelyardError, match=r"max_bytes=300\. Raise max_bytes, use more workers"):
        join.add(members([OUTER] * 4, first_id=4))
    with pytest.raises(SteelyardError, match="max_bytes=300"):
        join.put_in(members([OUTER] * 4, first_id=4))
    assert join.records == 4


@pytest.mark.parametrize("role", [INNER, OUTLIER])
def test_the_pairs_of_a_batch_count_towards_max_bytes(role):
    join = WindowJoin(EUCLIDEAN, 1.0, self_join=True, max_bytes=10_000)
    with pytest.raises(SteelyardError, match="max_bytes=10000"):
        join.add(members([role] * 50))
    assert join.records == 0


def test_windows_that_leave_gaps_are_refused():
    with pytest.raises(OptionError, match="slide=11"):
        Windows(10, slide=11)


@given(st.integers(1, 50), st.integers(0, 50), st.integers(-200, 200))
def test_a_record_is_in_the_windows_whose_bounds_hold_its_time(length, slide, time):
    windows = Windows(length, min(slide, length))
    (first, last) = windows.of(np.array([time]))[0]
    for window in range(int(first) - 2, int(last) + 3):
        start, end = windows.bounds(np.array(window))
        assert (start <= time < end) == (first <= window <= last)


@pytest.mark.parametrize("self_join", [True, False])
@pytest.mark.parametrize("parts", [2, 3, 5])
def test_two_members_of_a_workset_that_is_cut_meet_in_one_piece(self_join, parts):
    splits = Splits(self_join=self_join)
    splits.cut(1, parts)
    sides = SELF if self_join else np.arange(40) % 2 + 1
    whole = members([OUTLIER] * 40, sides=sides)
    pieces = splits.apply(EUCLIDEAN, whole)
    assert len(pieces) == 40 * parts
    assert len(np.unique(pieces.worksets)) == (parts * (parts + 1) // 2 if self_join else parts**2)
    join = WindowJoin(EUCLIDEAN, 1.0, self_join=self_join)
    assert rows_of(join.add(pieces)) == expected([whole], 1.0, self_join)
    assert join.loads().comparisons.max() < 0.75 * (780 if self_join else 400)


def test_worksets_that_are_not_cut_stay_whole_and_splits_go_round():
    splits = Splits(self_join=False)
    splits.cut(1, 2)
    again = Splits(self_join=False)
    again.restore(splits.state())
    part = again.apply(EUCLIDEAN, members([INNER] * 4, sides=LEFT, worksets=[1, 2, 2, 3]))
    assert sorted(part.worksets.tolist())[:3] == [2, 2, 3]
    assert 1 in again
    assert 2 not in again


@pytest.mark.parametrize("parts", [1, 256])
def test_a_cut_that_cannot_be_is_refused(parts):
    with pytest.raises(OptionError, match=f"parts={parts}"):
        Splits(self_join=True).cut(1, parts)


def test_a_workset_is_cut_once():
    splits = Splits(self_join=True)
    splits.cut(1, 2)
    with pytest.raises(OptionError, match="cut already"):
        splits.cut(1, 3)


def test_ids_are_dealt_evenly():
    counts = np.bincount(part_of(np.arange(10_000), np.full(10_000, 7)))
    assert counts.min() > 1300
