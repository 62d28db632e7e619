"""Facts of the near-duplicate texts that a similarity join is tested with."""

import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rapidfuzz.distance import Levenshtein

from steelyard.core import OptionError
from steelyard.workloads import Arrivals, workload
from steelyard.workloads.near_duplicates import LONGEST, SHORTEST
from steelyard.workloads.vocabulary import vocabulary

ROWS = 20_000
TIMES = Arrivals().times(0, ROWS)


def texts(**parameters: object) -> tuple[list[str], np.ndarray]:
    batch = workload("near_duplicates", **parameters).rows(0, ROWS, TIMES)
    return batch["text"].to_pylist(), batch["original"].to_numpy()


@settings(deadline=None, max_examples=30)
@given(
    first=st.integers(0, 10**10),
    counts=st.lists(st.integers(0, 70), min_size=1, max_size=4),
    edit=st.sampled_from(["letters", "words"]),
    copies=st.sampled_from([0.0, 0.5, 0.9]),
    edits=st.integers(0, 4),
)
def test_texts_do_not_depend_on_how_the_stream_is_cut(
    first: int, counts: list[int], edit: str, copies: float, edits: int
) -> None:
    made = workload("near_duplicates", edit=edit, copies=copies, edits=edits, reach=50, seed=3)
    cuts = np.cumsum([first, *counts]).tolist()
    times = Arrivals()
    parts = [made.rows(a, b - a, times.times(a, b - a)) for a, b in itertools.pairwise(cuts)]
    whole = made.rows(first, cuts[-1] - first, times.times(first, cuts[-1] - first))
    assert pa.Table.from_batches(parts).combine_chunks().equals(pa.Table.from_batches([whole]))


@pytest.mark.parametrize("copies", [0.0, 0.1, 0.5, 0.9])
def test_the_share_of_copies_is_as_wanted(copies: float) -> None:
    _, original = texts(copies=copies, seed=1)
    assert (original != np.arange(ROWS)).mean() == pytest.approx(copies, abs=0.015)


def test_an_original_comes_before_its_copies_and_is_no_copy() -> None:
    _, original = texts(copies=0.7, seed=1)
    assert np.all(original <= np.arange(ROWS))
    assert np.array_equal(original[original], original)


def test_a_copy_of_an_original_is_within_reach() -> None:
    _, original = texts(copies=0.05, reach=100, seed=1)
    distance = (np.arange(ROWS) - original)[original != np.arange(ROWS)]
    assert distance.min() >= 1
    assert np.quantile(distance, 0.9) <= 100  # the others are copies of copies


@pytest.mark.parametrize("edits", [1, 2, 4])
def test_letter_edits_bound_the_edit_distance_and_reach_the_bound(edits: int) -> None:
    made, original = texts(copies=0.5, edits=edits, seed=2)
    distances = [Levenshtein.distance(made[i], made[o]) for i, o in enumerate(original.tolist()) if i != o]
    assert max(distances) == edits
    assert np.mean(np.array(distances) > 0) > 0.95  # a letter may be replaced by itself


def test_word_edits_change_at_most_so_many_words() -> None:
    made, original = texts(copies=0.5, edits=2, edit="words", seed=2)
    seen = set()
    for i, o in enumerate(original.tolist()):
        if i != o:
            copy, first = set(made[i].split(" ")), set(made[o].split(" "))
            assert len(first - copy) <= 2
            assert len(copy - first) <= 2
            seen.add(len(first - copy))
    assert seen == {0, 1, 2}


@pytest.mark.parametrize("edit", ["letters", "words"])
def test_without_edits_copies_are_exact(edit: str) -> None:
    made, original = texts(copies=0.5, edits=0, edit=edit)
    assert all(made[i] == made[o] for i, o in enumerate(original.tolist()))


def test_originals_have_six_to_twelve_words_of_the_vocabulary() -> None:
    made, original = texts(words=300)
    words = [made[i].split(" ") for i in range(ROWS) if original[i] == i]
    assert {len(each) for each in words} == set(range(SHORTEST, LONGEST + 1))
    assert {word for each in words for word in each} <= set(vocabulary(300).to_pylist())


def test_word_edits_leave_words_of_the_vocabulary_with_one_space_between_them() -> None:
    made, _ = texts(words=300, copies=0.9, edits=4, edit="words")
    known = set(vocabulary(300).to_pylist())
    assert all(word in known for text in made for word in text.split(" "))


def test_some_originals_have_many_copies() -> None:
    _, original = texts(copies=0.5)
    counts = np.bincount(original)
    assert counts.max() > 10 * counts[counts > 0].mean()


@pytest.mark.parametrize(
    ("parameters", "complaint"),
    [
        ({"copies": 1.0}, "option 'copies' must be between 0 and 0.9, got 1.0"),
        ({"edits": 5}, "option 'edits'"),
        ({"edit": "letter"}, "did you mean 'letters'"),
        ({"reach": 0}, "option 'reach'"),
    ],
)
def test_a_wrong_parameter_is_named(parameters: dict[str, object], complaint: str) -> None:
    with pytest.raises(OptionError, match=complaint):
        workload("near_duplicates", **parameters)
