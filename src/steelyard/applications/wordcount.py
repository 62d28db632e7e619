"""Word Count, as both papers have it: how often each word comes, and which words each key's texts have.

Words are what is between ASCII white space. A text is cut in the map step, by Arrow, all rows of a batch at once.
"""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from steelyard.applications.columns import require
from steelyard.core.aggregates import count
from steelyard.spark.aggregator import Aggregator
from steelyard.spark.stream import Stream, stream

WORD = "word"
WordState = tuple[list[str], list[int]]


def word_count(
    rows: DataFrame,
    column: str = WORD,
    time: str = "event_time",
    window: str = "30 seconds",
    slide: str = "5 seconds",
    delay: str = "10 seconds",
) -> Stream:
    """How often each word comes (`count`), where each row has one: WordCount of Abdelhamid 2021, section 2.6.1.

    Parameters
    ----------
    rows
        Streaming or static rows with a word each. It need not be text: any key is counted.
    column, time
        Columns of the word and of the event time.
    window, slide
        A window of 30 seconds is the paper's, which does not say how far it slides.
    delay
        How late rows may come.
    """
    windows = stream(rows).with_watermark(time, delay).group_by(column).window(window, slide=slide)
    return windows.agg(count=count())


def text_word_count(
    rows: DataFrame,
    column: str = "text",
    time: str = "event_time",
    window: str = "30 seconds",
    slide: str = "5 seconds",
    delay: str = "10 seconds",
) -> Stream:
    """How often each `word` comes (`count`) in the texts of the rows, such as tweets.

    Parameters
    ----------
    rows
        Streaming or static rows with a text each. A text that is null has no words.
    column, time
        Columns of the text and of the event time.
    window, slide, delay
        As in `word_count`.
    """
    require(rows, column, time)
    words = T.StructType([T.StructField(WORD, T.StringType()), T.StructField(time, rows.schema[time].dataType)])
    cut = stream(rows).map(partial(one_word_a_row, text=column, time=time), words)
    return cut.with_watermark(time, delay).group_by(WORD).window(window, slide=slide).agg(count=count())


def words_per_key(
    rows: DataFrame,
    key: str = "hashtag",
    text: str = "text",
    time: str = "event_time",
    window: str = "60 seconds",
    slide: str = "1 second",
    delay: str = "10 seconds",
) -> Stream:
    """Of each key the `words` of its texts and how often they come: Word Count of Zapridou et al. 2022.

    Parameters
    ----------
    rows
        Streaming or static rows with a key (in the paper, a hashtag) and a text.
    key, text, time
        Columns of these, and of the event time.
    window, slide
        The paper's by default.
    delay
        How late rows may come.
    """
    windows = stream(rows).with_watermark(time, delay).group_by(key).window(window, slide=slide)
    return windows.agg(words=WordCounts().of(text))


class WordCounts(Aggregator):
    """How often each word comes in some texts, as a map.

    Its state is the words in alphabetical order, and their counts. It has an exact inverse, so a window slides
    by merging one pane and taking one away.

    Examples
    --------
    >>> counts = WordCounts()
    >>> one = counts.add(counts.zero(), pa.array(["so it goes", None, "it is so"]))
    >>> two = counts.merge(one, counts.add(counts.zero(), pa.array(["it"])))
    >>> counts.finish(two)
    [('goes', 1), ('is', 1), ('it', 3), ('so', 2)]
    """

    state: ClassVar[str] = "words array<string>, counts array<bigint>"
    result: ClassVar[str] = "map<string, bigint>"

    def zero(self) -> WordState:
        """No words."""
        return ([], [])

    def add(self, state: WordState, *columns: Any) -> WordState:
        """Count the words of a slice of texts, an Arrow array, in one pass."""
        (texts,) = columns
        found = words_of(texts)[0].value_counts()
        return self.merge(state, (found.field("values").to_pylist(), found.field("counts").to_pylist()))

    def merge(self, left: WordState, right: WordState) -> WordState:
        """The counts of both."""
        totals = dict(zip(*left, strict=True))
        for word, times in zip(*right, strict=True):
            totals[word] = totals.get(word, 0) + times
        return _state(totals)

    def subtract(self, whole: WordState, part: WordState) -> WordState:
        """The counts of `whole` without those of `part`; words that are left 0 times are gone."""
        totals = dict(zip(*whole, strict=True))
        for word, times in zip(*part, strict=True):
            totals[word] -= times
        return _state({word: times for word, times in totals.items() if times})

    def finish(self, state: WordState) -> list[tuple[str, int]]:
        """The entries of the map, by word."""
        return list(zip(*state, strict=True))


def _state(totals: dict[str, int]) -> WordState:
    words = sorted(totals)
    return (words, [totals[word] for word in words])


def words_of(texts: pa.Array) -> tuple[pa.Array, pa.Array]:
    """All words of some texts in their order, and for each the position of its text.

    >>> words, position = words_of(pa.array(["it is ", "", None, "so"]))
    >>> words.to_pylist(), position.to_pylist()
    (['it', 'is', 'so'], [0, 0, 3])
    """
    cut = pc.ascii_split_whitespace(texts)
    words, position = pc.list_flatten(cut), pc.list_parent_indices(cut)
    is_word = pc.greater(pc.binary_length(words), 0)  # white space at an end leaves an empty one
    return words.filter(is_word), position.filter(is_word)


def one_word_a_row(rows: pa.RecordBatch, text: str, time: str) -> pa.RecordBatch:
    """The map step: a row for each word of each text, with the text's event time."""
    words, position = words_of(rows.column(text))
    return pa.RecordBatch.from_arrays([words, rows.column(time).take(position)], names=[WORD, time])
