"""NexMark's events and the changes of a graph: shares, ids, hot keys, and the same rows in every stream."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.core import OptionError
from steelyard.workloads import workload
from steelyard.workloads.nexmark import EVENTS, STREAMS

EVENTS_SEEN = 100_000


def rows(name="nexmark", first=0, count=EVENTS_SEEN, **parameters):
    return workload(name, **parameters).rows(first, count, np.arange(first, first + count) * 1000)


def numbers(batch, *columns):
    return [batch.column(name).to_numpy() for name in columns]


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**9), st.integers(0, 5), st.sampled_from([0.0, 0.3]))
def test_a_stream_alone_has_the_rows_that_it_has_among_all_events(block, seed, skew):
    whole = rows(first=block * EVENTS, count=2 * EVENTS, seed=seed, skew=skew)
    for stream, each in zip(STREAMS[1:], (1, 3, 46), strict=True):
        alone = rows(stream=stream, first=block * each, count=2 * each, seed=seed, skew=skew)
        among = whole.filter(pa.compute.equal(whole.column("kind"), stream[:-1])).select(alone.schema.names)
        without_times = [name for name in alone.schema.names if name not in ("event_time", "expires")]
        assert among.select(without_times).equals(alone.select(without_times))


def test_persons_auctions_and_bids_are_1_to_3_to_46_and_ids_follow_each_other():
    whole = rows()
    kinds = np.array(whole.column("kind").to_pylist())
    assert [(kinds == kind).sum() for kind in ("person", "auction", "bid")] == [2_000, 6_000, 92_000]
    for stream in ("persons", "auctions"):
        assert numbers(rows(stream=stream, count=500), "id")[0].tolist() == list(range(1000, 1500))


def test_references_are_to_active_ids_and_few_of_them_ahead():
    bids, auctions = rows(stream="bids"), rows(stream="auctions")
    block = np.arange(EVENTS_SEEN) // 46
    auction, bidder = numbers(bids, "auction", "bidder")
    newest = 1000 + 3 * block + 2
    assert ((auction <= newest + 10) & (auction >= np.maximum(newest - 100, 1000))).all()
    seller, newest_person = numbers(auctions, "seller")[0], 1000 + np.arange(EVENTS_SEEN) // 3
    for who, newest in ((bidder, 1000 + block), (seller, newest_person)):
        assert ((who <= newest + 10) & (who > np.maximum(newest - 1000, 999))).all()
    assert (auction > 1000 + 3 * block + 2).any(), "some bids are for auctions that are not there yet"


@pytest.mark.parametrize(
    ("parameters", "shares"),
    [
        ({}, (0.5, 0.75, 0.75)),
        ({"hot_auctions": 1, "hot_bidders": 1, "hot_sellers": 1}, (0, 0, 0)),
        ({"skew": 0.2}, (0.2, 0.2, 0.2)),
    ],
)
def test_keys_are_hot_as_often_as_the_ratios_or_the_skew_say(parameters, shares):
    bids, auctions = rows(stream="bids", **parameters), rows(stream="auctions", **parameters)
    auction, bidder, block = *numbers(bids, "auction", "bidder"), np.arange(EVENTS_SEEN) // 46
    seller = numbers(auctions, "seller")[0]
    newest = [3 * block + 2, block, np.arange(EVENTS_SEEN) // 3]
    hot = [1000 + at - at % 100 + place for at, place in zip(newest, (0, 1, 0), strict=True)]
    seen = [(key == ids).mean() for key, ids in zip((auction, bidder, seller), hot, strict=True)]
    assert seen == pytest.approx(shares, abs=0.02)


def test_prices_are_spread_evenly_over_six_powers_of_ten():
    price = numbers(rows(stream="bids"), "price")[0]
    assert price.min() >= 100
    assert price.max() <= 10**8
    assert np.histogram(np.log10(price), bins=6, range=(2, 8))[0] / EVENTS_SEEN == pytest.approx([1 / 6] * 6, abs=0.01)


def test_half_of_the_persons_live_where_query_3_looks_and_rows_have_the_published_sizes():
    for stream, size in (("persons", 200), ("auctions", 500), ("bids", 100)):
        batch = rows(stream=stream, count=20_000)
        words = [column for column in batch.columns if column.type == pa.string()]
        letters = sum(pa.compute.sum(pa.compute.binary_length(column)).as_py() for column in words)
        held = letters + 8 * 20_000 * (batch.num_columns - len(words))
        assert held / 20_000 == pytest.approx(size, rel=0.05)
        if stream == "persons":
            state = np.array(batch.column("state").to_pylist())
            assert np.isin(state, ["OR", "ID", "CA"]).mean() == pytest.approx(0.5, abs=0.02)
        if stream == "auctions":
            initial, reserve, expires, at = (
                batch.column(name).cast(pa.int64()).to_numpy()
                for name in ("initial_bid", "reserve", "expires", "event_time")
            )
            assert (reserve > initial).all()
            assert np.mean(expires - at) / 1e6 == pytest.approx(10, rel=0.02)
            assert set(batch.column("category").to_pylist()) == set(range(10, 15))


def test_an_unknown_stream_is_named_with_the_nearest():
    with pytest.raises(OptionError, match="did you mean 'bids'"):
        workload("nexmark", stream="bid")


@pytest.mark.parametrize("nodes", [2, 50, 1_000_000])
def test_a_deletion_names_an_earlier_link_or_source_as_it_was_made(nodes):
    batch = rows("links", count=20_000, nodes=nodes)
    made = {}
    counts = dict.fromkeys(("new link", "new source", "delete link", "delete source"), 0)
    for row in batch.to_pylist():
        counts[row["change"]] += 1
        assert 0 <= row["start"] < nodes
        assert 0 <= row["end"] < nodes
        verb, what = row["change"].split()
        assert (row["start"] == row["end"]) == (what == "source")
        if verb == "new":
            made[row["id"]] = (what, row["start"], row["end"])
        else:
            assert made[row["id"]] == (what, row["start"], row["end"])
    assert [count / 20_000 for count in counts.values()] == pytest.approx([0.6, 0.15, 0.2, 0.05], abs=0.02)


def test_new_links_begin_at_sources_and_behind_other_links():
    sources, ends, told = set(), set(), []
    for row in rows("links", count=20_000).to_pylist():
        if row["change"] == "new link":
            told.append((row["start"] in sources, row["start"] in ends))
            ends.add(row["end"])
        elif row["change"] == "new source":
            sources.add(row["start"])
    assert np.mean(told, axis=0).tolist() == pytest.approx([0.1, 0.2], abs=0.03)
