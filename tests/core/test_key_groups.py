"""Key groups: every group has one owner, shares are as equal as can be, and a key keeps its group."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard import count
from steelyard.core.key_groups import KeyGroups
from steelyard.core.topology import DataflowError
from steelyard.resident import Flow, Memory, Rows
from tests.resident.test_control import ROWS

hashes = st.lists(st.integers(-(1 << 63), (1 << 63) - 1), max_size=30).map(lambda some: np.array(some, np.int64))
shared = st.integers(1, 40).flatmap(lambda groups: st.builds(KeyGroups, st.just(groups), st.integers(1, groups)))


@given(shared)
def test_owners_have_equally_many_groups_but_for_one(shares):
    owner = shares.owner.tolist()
    owned = [owner.count(number) for number in range(shares.parallelism)]
    assert sum(owned) == shares.groups
    assert max(owned) - min(owned) <= 1


two_numbers = st.integers(3, 200).flatmap(
    lambda groups: st.tuples(st.just(groups), st.sets(st.integers(1, groups - 1), min_size=2, max_size=2))
)


@given(two_numbers)
def test_only_groups_that_must_go_to_other_instances(drawn):
    groups, numbers = drawn
    few, many = (KeyGroups(groups, number) for number in sorted(numbers))
    moved = few.owner != many.owner
    assert set(many.owner[moved].tolist()) == set(range(few.parallelism, many.parallelism)), "to those that are new"
    given_away = groups - sum(np.bincount(many.owner)[: few.parallelism])
    assert moved.sum() == given_away


@given(hashes, shared)
def test_a_key_is_with_the_owner_of_its_hash_modulo_the_groups(found, shares):
    assert shares.of(found).tolist() == [one % shares.groups for one in found.tolist()]
    assert shares.owners(found).tolist() == [shares.owner[one % shares.groups] for one in found.tolist()]


@given(hashes, st.integers(1, 9))
def test_with_as_many_groups_as_instances_a_key_is_where_its_hash_says(found, parallelism):
    assert KeyGroups(parallelism, parallelism).owners(found).tolist() == [one % parallelism for one in found.tolist()]


def test_more_instances_than_groups_are_refused():
    with pytest.raises(ValueError, match="3 instances cannot share 2 key groups"):
        KeyGroups(2, 3)
    flow = Flow("few", groups=2)
    flow.source(Rows(ROWS)).key_by("k").aggregate(n=count(), name="count", parallelism=3).sink(Memory())
    words = "operator 'count' has parallelism 3, and keys are of 2 groups, .*: give Flow\\(groups=3\\) or more"
    with pytest.raises(DataflowError, match=words):
        flow.dataflow()
    none = Flow("none", groups=0)
    none.source(Rows(ROWS)).sink(Memory())
    with pytest.raises(DataflowError, match="groups must be a whole number, 1 or more, got 0"):
        none.dataflow()
