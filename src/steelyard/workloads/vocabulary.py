"""Made-up words: as many as are wanted, the frequent ones short, each different."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

CONSONANTS = "bdfghjklmnprstvwxyzc"
VOWELS = "aeiou"
MAX_WORDS = 1_000_000

MANDELBROT_EXPONENT = 1.05
"""Words of tweets follow Zipf-Mandelbrot with an exponent of 1.0 to 1.1."""
MANDELBROT_SHIFT = 2.7
"""Mandelbrot's q for English text."""


@lru_cache(maxsize=4)
def vocabulary(words: int) -> pa.Array:
    """The first `words` words, as an Arrow array of strings: 100 of one syllable, 10^4 of two, 10^6 of three.

    >>> vocabulary(10_300).take(pa.array([0, 1, 99, 100, 10_100])).to_pylist()
    ['ba', 'be', 'cu', 'baba', 'bababa']
    """
    syllables = pa.array([c + v for c in CONSONANTS for v in VOWELS])
    groups = []
    made, length = 0, 1
    while made < words:
        count = min(len(syllables) ** length, words - made)
        places = (np.arange(count) // len(syllables) ** (length - 1 - i) for i in range(length))
        spelled = [syllables.take(pa.array(place % len(syllables))) for place in places]
        groups.append(pc.binary_join_element_wise(*spelled, "") if length > 1 else spelled[0])
        made, length = made + count, length + 1
    return pa.concat_arrays(groups)
