"""VOTE and GREEDY: against every clustering of a small block, and what must hold of any."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.applications import CorrelationClustering, agreement
from steelyard.applications.clustering import AT_ONCE, attraction, best, greedy, vote
from steelyard.core import OptionError

BLOCK = CorrelationClustering()
# Few letters and short words: similarities of every kind, and many ties.
RECORDS = st.text("abc", max_size=6)


def added(*records):
    return BLOCK.add(BLOCK.zero(), pa.array(records, pa.string()))


def merged(*states):
    whole = BLOCK.zero()
    for state in states:
        whole = BLOCK.merge(whole, state)
    return whole


def edit_distance(left, right):
    """The textbook's table, row by row."""
    row = list(range(len(right) + 1))
    for i, a in enumerate(left, 1):
        above = row
        row = [i]
        for j, b in enumerate(right, 1):
            row.append(min(above[j] + 1, row[j - 1] + 1, above[j - 1] + (a != b)))
    return row[-1]


def clusterings(records):
    """Every way to put records into clusters."""
    if not records:
        yield []
        return
    for rest in clusterings(records[1:]):
        yield [[records[0]], *rest]
        for i, cluster in enumerate(rest):
            yield [*rest[:i], [records[0], *cluster], *rest[i + 1 :]]


def best_agreement(records):
    """The largest agreement of all clusterings, from one matrix of attractions."""
    pull = attraction(records)
    return max(
        sum(pull[np.ix_(cluster, cluster)].sum() / 2 for cluster in ways)
        for ways in clusterings(list(range(len(records))))
    )


@given(st.lists(RECORDS, min_size=2, max_size=4))
def test_attraction_is_twice_the_similarity_by_edit_distance_less_one(records):
    pull = attraction(records)
    for i, left in enumerate(records):
        for j, right in enumerate(records):
            longer = max(len(left), len(right))
            similarity = 1 - edit_distance(left, right) / longer if longer else 1.0
            assert pull[i, j] == pytest.approx(0 if i == j else 2 * similarity - 1)


@given(st.lists(RECORDS, max_size=7), st.data())
def test_neither_stage_scores_below_singletons_or_above_the_best(records, data):
    cut = data.draw(st.integers(0, len(records)))
    left, right = added(*records[:cut]), added(*records[cut:])
    whole = BLOCK.merge(left, right)
    scores = [agreement(BLOCK.finish(state)) for state in (left, right, whole)]
    assert min(scores) >= -1e-9
    assert scores[2] >= scores[0] + scores[1] - 1e-9
    assert scores[2] <= best_agreement(records) + 1e-9 if records else scores[2] == 0


@given(st.lists(RECORDS, min_size=1, max_size=3))
def test_of_up_to_three_records_greedy_finds_the_best_clustering(records):
    found = BLOCK.finish(merged(*(added(record) for record in records)))
    assert agreement(found) == pytest.approx(best_agreement(records))


@given(st.lists(RECORDS, min_size=1, max_size=7))
def test_greedy_ends_where_no_merge_and_no_move_of_a_record_scores_more(records):
    found = BLOCK.finish(merged(*(added(record) for record in records)))
    score = agreement(found)
    for i, cluster in enumerate(found):
        others = found[:i] + found[i + 1 :]
        for j, other in enumerate(others):
            assert agreement([*others[:j], *others[j + 1 :], cluster + other]) <= score + 1e-6
        for r, record in enumerate(cluster):
            rest = cluster[:r] + cluster[r + 1 :]
            for j, other in enumerate([*others, []]):
                moved = [rest, *others[:j], [*other, record], *others[j + 1 :]]
                assert agreement(part for part in moved if part) <= score + 1e-6


@given(st.lists(RECORDS, max_size=8), st.lists(RECORDS, max_size=8), st.randoms())
def test_neither_the_order_of_rows_nor_that_of_two_states_matters(left, right, random):
    one, two = added(*left), added(*right)
    random.shuffle(left)
    assert added(*left) == one
    assert BLOCK.merge(one, two) == BLOCK.merge(two, one)
    records, clusters = BLOCK.merge(one, two)
    assert sorted(records) == sorted([*left, *right])
    assert clusters == sorted(clusters)
    assert set(clusters) == set(range(len(set(clusters))))


def typos(record):
    """A record, and one with each of its first letters wrong."""
    return [record] + [record[:i] + "?" + record[i + 1 :] for i in range(6)]


PEOPLE = ["margaret hamilton 1 apollo street", "grace hopper 22 harvard mark road", "ada l. 3"]


@pytest.mark.parametrize("pieces", [1, 2, 3, 7])
def test_clear_clusters_are_found_however_the_records_are_spread(pieces):
    records = [record for person in PEOPLE for record in typos(person)]
    whole = merged(*(added(*records[piece::pieces]) for piece in range(pieces)))
    assert BLOCK.finish(whole) == sorted(sorted(typos(person)) for person in PEOPLE)


def test_vote_takes_the_cluster_that_attracts_most_in_sum():
    # The last word is nearest to the lone one, by 0.6; two that are 0.4 each pull more.
    assert vote(["cccaaaaaaa", "cdcaaaaaaa", "aaaaaaaabb", "aaaaaaaaaa"], [0, 0, 1]) == [0, 0, 1, 0]


def test_best_takes_the_cluster_of_the_record_that_attracts_most():
    # The same words as above: what counts is the one pull of 0.6.
    assert best(["cccaaaaaaa", "cdcaaaaaaa", "aaaaaaaabb", "aaaaaaaaaa"], [0, 0, 1]) == [0, 0, 1, 1]


@given(st.lists(RECORDS, min_size=1, max_size=12))
def test_best_joins_whoever_is_most_alike_or_nobody(records):
    pull, labels = attraction(records), best(records)
    for i, mine in enumerate(labels):
        before = pull[i, :i]
        if i == 0 or before.max() <= 1e-9:
            assert mine == max(labels[:i], default=-1) + 1
        else:
            assert mine in {labels[j] for j in np.flatnonzero(before >= before.max() - 1e-9)}


def test_the_first_stage_is_the_one_that_was_asked_for():
    words = ["bcabcc", "bcbbbc", "cabcac", "ccccab"]  # the third is like the first, and unlike the second
    found = {}
    for first in ("vote", "best"):
        block = CorrelationClustering(first)
        found[first] = block.finish(block.add(block.zero(), pa.array(words)))
    assert found == {"vote": [words[:2], words[2:3], words[3:]], "best": [words[:3], words[3:]]}


def test_an_unknown_first_stage_is_named_with_the_right_ones():
    with pytest.raises(OptionError, match="vote"):
        CorrelationClustering("vot")  # type: ignore[arg-type]


def test_vote_goes_on_over_the_slices_it_compares_at_once():
    words = [f"{'xyz'[i % 3] * 12}{i % 7}" for i in range(3 * AT_ONCE + 5)]
    assert vote(words) == [i % 3 for i in range(len(words))]


def test_greedy_splits_a_cluster_that_should_never_have_been():
    words = ["aaaa", "aaab", "aaac", "xxxx", "xxxy", "xxxz"]
    found = greedy(attraction(words), np.zeros(6, dtype=np.int64), [0])
    assert len(set(found[:3].tolist())) == len(set(found[3:].tolist())) == 1
    assert found[0] != found[3]


def test_greedy_moves_a_record_to_where_it_belongs():
    words = ["aaaa", "aaab", "aaax", "xxxx", "xxxy", "xxxz"]
    found = greedy(attraction(words), np.array([0, 0, 1, 1, 1, 1]), [1])
    assert found[0] == found[1] == found[2] != found[3] == found[4] == found[5]


def test_no_record_and_null_records_are_no_clusters():
    assert BLOCK.finish(BLOCK.zero()) == []
    assert added() == BLOCK.zero()
    assert BLOCK.finish(added(None, "a", None)) == [["a"]]
