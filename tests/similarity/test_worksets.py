"""Workset formulation: who becomes a centroid, who is a member of what, what is kept."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.core.errors import OptionError, SteelyardError
from steelyard.similarity.members import INNER, OUTER, OUTLIER, SELF, Members, Rows, from_column, split_key, to_column
from steelyard.similarity.metrics import metric
from steelyard.similarity.partitions import routes
from steelyard.similarity.worksets import Formulation

EUCLIDEAN = metric("euclidean")


def rows(values, window=0, first_id=0):
    records = np.atleast_2d(np.asarray(values, dtype=float).T).T
    count = len(records)
    windows = np.full((count, 2), window)
    return Rows(np.arange(first_id, first_id + count), np.full(count, SELF, np.int8), windows, records)


def add(formulation, values, outer=None, window=0, first_id=0):
    """Place values on a line; returns (id, workset, role) of every member, sorted, and the rest of the answer."""
    batch = rows(values, window, first_id)
    outer = np.zeros(len(batch), dtype=bool) if outer is None else np.array(outer, dtype=bool)
    placed = formulation.add(batch, outer)
    _, workset, _ = split_key(placed.members.worksets)
    members = zip(placed.members.rows.ids.tolist(), workset.tolist(), placed.members.roles.tolist(), strict=True)
    return sorted(members), placed


def test_records_are_inner_within_half_the_threshold_outliers_within_it_and_centroids_beyond():
    members, placed = add(Formulation(EUCLIDEAN, 1.0, partition=3), [0.0, 0.4, 0.8, 10.0])
    assert members == [(0, 1, INNER), (1, 1, INNER), (2, 1, OUTLIER), (3, 2, INNER)]
    assert split_key(placed.created)[0].tolist() == [3, 3]


def test_a_record_is_copied_to_worksets_with_smaller_ids_within_twice_the_threshold():
    members, _ = add(Formulation(EUCLIDEAN, 1.0, 0), [0.0, 1.5, 3.0, 0.2])
    assert members == [(0, 1, INNER), (1, 1, OUTER), (1, 2, INNER), (2, 2, OUTER), (2, 3, INNER), (3, 1, INNER)]


def test_a_guest_is_a_member_of_every_workset_within_twice_the_threshold_however_near():
    members, _ = add(Formulation(EUCLIDEAN, 1.0, 0), [0.0, 1.5, 0.1], outer=[False, False, True])
    assert [member for member in members if member[0] == 2] == [(2, 1, OUTER), (2, 2, OUTER)]
    literal, _ = add(Formulation(EUCLIDEAN, 1.0, 0, literal=True), [0.0, 1.5, 0.1], outer=[False, False, True])
    assert [member for member in literal if member[0] == 2] == [(2, 2, OUTER)]


def test_a_new_workset_adopts_stored_guests_of_open_windows():
    formulation = Formulation(EUCLIDEAN, 1.0, 0)
    add(formulation, [5.0], outer=[True], window=0)
    add(formulation, [5.0], outer=[True], window=1, first_id=1)
    formulation.close(0)
    assert formulation.kept == 1
    members, placed = add(formulation, [4.0], window=1, first_id=2)
    assert members == [(1, 1, OUTER), (2, 1, INNER)]
    assert placed.replayed == 1


def test_geometry_outlives_windows():
    formulation = Formulation(EUCLIDEAN, 1.0, 0)
    add(formulation, [0.0, 5.0])
    formulation.close(0)
    members, placed = add(formulation, [0.1, 5.1], window=1, first_id=2)
    assert members == [(2, 1, INNER), (3, 2, INNER)]
    assert len(placed.created) == 0


def test_an_idle_centroid_retires_and_its_id_is_never_used_again():
    formulation = Formulation(EUCLIDEAN, 1.0, 0, retire_after=1)
    add(formulation, [0.0, 5.0], window=0)
    add(formulation, [5.0], window=1, first_id=2)
    assert len(formulation.close(0)) == 0
    assert split_key(formulation.close(1))[1].tolist() == [1]
    members, _ = add(formulation, [0.0, 5.0], window=2, first_id=3)
    assert members == [(3, 3, INNER), (4, 2, INNER)]


def test_a_centroid_with_records_in_an_open_window_does_not_retire():
    formulation = Formulation(EUCLIDEAN, 1.0, 0, retire_after=0)
    add(formulation, [0.0], window=5)
    assert len(formulation.close(4)) == 0
    assert len(formulation.close(5)) == 1


def test_distances_to_centroids_are_counted_as_the_algorithm_asks_for_them():
    formulation = Formulation(EUCLIDEAN, 1.0, 0)
    _, first = add(formulation, [9.0, 0.0, 5.0, 0.1, 9.0], outer=[True, False, False, False, False])
    # record 0 is stored, records 1 to 4 see 0, 1, 2 and 2 centroids; the three new ones look at the stored guest
    assert first.distances == 0 + 0 + 1 + 2 + 2 + 3
    _, second = add(formulation, [0.0, 5.0], first_id=5)
    assert second.distances == 2 * 3


def test_with_balanced_ids_the_parity_rule_says_who_hosts():
    formulation = Formulation(EUCLIDEAN, 1.0, 0, balanced_ids=True)
    values = [0.0, 1.5, 3.0, 4.5]
    members = []
    for k, value in enumerate(values):  # in batches of one: copies to later worksets are replayed
        members += add(formulation, [value], first_id=k)[0]
    visits = {(home + 1, workset) for home, workset, role in members if role == OUTER}
    neighbours = [(1, 2), (2, 3), (3, 4)]
    assert visits == {pair if routes(*map(np.array, pair)) else pair[::-1] for pair in neighbours}


def test_a_crowded_record_is_an_outlier_of_the_rest_and_everybody_visits_it():
    formulation = Formulation(EUCLIDEAN, 1.0, 0, crowd=0)
    first, _ = add(formulation, [0.0, 5.0, 9.0], outer=[False, False, True])
    assert first == [(0, 1, INNER), (1, 2, INNER)]
    second, placed = add(formulation, [1.5], first_id=3)
    assert second == [(0, 0, OUTER), (1, 0, OUTER), (2, 0, OUTER), (3, 0, OUTLIER)]
    assert placed.replayed == 3
    third, _ = add(formulation, [0.0], first_id=4)
    assert third == [(4, 0, OUTER), (4, 1, INNER)]


@given(st.integers(0, 2**32 - 1), st.booleans(), st.sampled_from([None, 3]), st.lists(st.integers(0, 80), max_size=5))
@settings(deadline=None)
def test_worksets_do_not_depend_on_how_records_come_in_batches(seed, balanced_ids, crowd, cuts):
    rng = np.random.default_rng(seed)
    values = np.round(rng.uniform(-1, 1, (80, 2)), 1)
    outer = rng.random(80) < 0.3
    whole, parts = (Formulation(EUCLIDEAN, 0.3, 0, balanced_ids=balanced_ids, crowd=crowd) for _ in range(2))
    expected, once = add(whole, values, outer)
    members, distances = [], 0
    for batch in np.split(np.arange(80), sorted(cuts)):
        if len(batch):
            found, placed = add(parts, values[batch], outer[batch], first_id=int(batch[0]))
            members += found
            distances += placed.distances
    assert sorted(members) == expected
    assert distances == once.distances
    whole.check()
    parts.check()


def test_many_new_centroids_are_found_a_block_at_a_time(monkeypatch):
    values = np.random.default_rng(1).uniform(-1, 1, (300, 2))
    expected, _ = add(Formulation(EUCLIDEAN, 0.05, 0), values)
    monkeypatch.setattr("steelyard.similarity.worksets.CANDIDATES", 7)
    assert add(Formulation(EUCLIDEAN, 0.05, 0), values)[0] == expected


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("euclidean", pa.array([[1.0, 2.0], [3.0, 0.1]])),
        ("angular", pa.array([[1.0, 2.0], [3.0, 0.1]], pa.list_(pa.float32()))),
        ("edit", pa.array(["ab", "", "ünï"])),
        ("hamming", pa.array(["ab", "", "ünï"])),
        ("hamming", pa.array([[1, 2], [], [3]])),
        ("hamming", pa.array([[1.5, 2.0], [], [3.0]])),
        ("jaccard", pa.array(["a b", "", "c a"])),
        ("jaccard", pa.array([[1, 2], [], [3]])),
        (lambda a, b: float(np.abs(a - b).max()), pa.array([[1.0, 2.0], [3.0, 0.1]], pa.list_(pa.float32()))),
        (lambda a, b: abs(a - b), pa.array([1, 5, 7])),
    ],
)
def test_state_goes_round_without_a_change_for_every_metric(name, column):
    kind = metric(name)
    records, _ = kind.records(column)
    count = len(records)
    formulation = Formulation(kind, 0.5, 2, retire_after=3, crowd=1)
    windows, carried = np.tile([4, 6], (count, 1)), pa.table({"user": column})
    batch = Rows(np.arange(count), np.zeros(count, np.int8), windows, records, carried)
    outer = np.arange(count) % 2 == 1
    placed = formulation.add(batch, outer)
    again = Formulation(kind, 0.5, 2, retire_after=3, crowd=1)
    again.restore(formulation.state())
    assert all(again.state()[name].equals(table) for name, table in formulation.state().items())
    one, other = formulation.add(batch, outer), again.add(batch, outer)
    assert one.members.to_table(kind).equals(other.members.to_table(kind))
    table = placed.members.to_table(kind)
    assert Members.from_table(kind, table).to_table(kind).equals(table)
    back = from_column(kind, pa.chunked_array([to_column(kind, records)]))
    assert (kind.pairwise(back, records) == kind.pairwise(records, records)).all()


@pytest.mark.parametrize(("option", "value"), [("retire_after", -1), ("crowd", -1)])
def test_options_that_cannot_be_are_refused(option, value):
    with pytest.raises(OptionError, match=f"{option}={value}"):
        Formulation(EUCLIDEAN, 1.0, 0, **{option: value})


def test_a_negative_threshold_is_refused():
    with pytest.raises(OptionError, match=r"threshold distance -0\.5"):
        Formulation(EUCLIDEAN, -0.5, 0)


def test_bytes_tell_what_is_kept_for_worksets_to_come():
    formulation = Formulation(EUCLIDEAN, 1.0, 0)
    assert formulation.bytes == 0
    add(formulation, [0.0, 5.0], outer=[False, True])
    assert formulation.bytes == 34 + 8


def test_batches_that_carry_columns_do_not_mix_with_batches_that_do_not():
    plain = rows([1.0])
    carrying = Rows(plain.ids, plain.sides, plain.windows, plain.records, pa.table({"user": ["a"]}))
    with pytest.raises(SteelyardError, match="carry columns"):
        Rows.join(EUCLIDEAN, [plain, carrying])
