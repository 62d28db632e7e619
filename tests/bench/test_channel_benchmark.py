"""The benchmark of channels: its halves, its words and its figures."""

import numpy as np
import pyarrow as pa
import pytest

from steelyard.bench.engine import channel


@pytest.mark.parametrize(
    "halves",
    [
        (channel._through_channel, channel._sink_of_channel),
        (channel._through_socket, channel._sink_of_socket),
        (channel._ping_channel, channel._echo_of_channel),
        (channel._ping_socket, channel._echo_of_socket),
    ],
)
def test_both_halves_come_to_their_end(halves):
    assert channel.seconds_between(*halves, 40, 4096) > 0


def test_the_first_round_is_not_counted():
    halves = (channel._ping_socket, channel._echo_of_socket)
    pair = channel.compare(halves, halves, rounds=2, repetitions=3, size=16)
    assert len(pair.channel) == len(pair.bare) == 2


def test_a_table_is_read_again_from_its_beginning():
    reader = channel.Repeated(pa.table({"x": np.arange(3)}), rows=7)
    found, offset, ended = [], 0, False
    while not ended:
        batch, offset, ended = reader.read("0", offset, 2)
        found += batch["x"].to_pylist()
    assert found == [0, 1, 2, 0, 1, 2, 0]


@pytest.mark.parametrize("combine", [False, True])
def test_every_word_is_counted(combine, monkeypatch):
    monkeypatch.setattr(channel, "TABLE_ROWS", 1000)
    assert channel.count_words(4000, seed=1, combine=combine) > 0


def test_lost_words_stop_the_benchmark(monkeypatch):
    monkeypatch.setattr(channel, "TABLE_ROWS", 1000)
    monkeypatch.setattr(channel.Repeated, "splits", lambda self, parallelism: ["0"])
    with pytest.raises(channel.WrongCountError, match="1000 words were counted of 4000"):
        channel.count_words(4000, seed=1, combine=False)


def test_twenty_operators_are_deployed():
    assert channel.deploy_seconds() > 0


def test_the_figures_are_ratios_of_what_was_timed():
    through = channel.Pair([2.0, 4.0, 3.0], [1.0, 1.5, 2.0], repetitions=3)
    trips = channel.Pair([8.0], [2.0], repetitions=2)
    seconds = {"words": 2.0, "combined words": 1.0, "deployment": 0.5}
    result = channel.result_of(through, trips, 4_000_000, seconds)
    assert result.metrics["throughput_vs_bare_socket"] == pytest.approx(0.5)
    assert result.metrics["rtt_vs_bare_socket"] == pytest.approx(4.0)
    assert result.metrics["wordcount_mrps"] == pytest.approx(2.0)
    assert not result.missed
