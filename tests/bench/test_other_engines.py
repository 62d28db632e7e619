"""The batch that programs of other engines read: every row in a block, blocks as even as Prompt's, right totals."""

from __future__ import annotations

import csv
import runpy
from collections import Counter
from pathlib import Path

BATCH = Path(__file__).parents[2] / "examples" / "engines" / "batch.py"


def test_the_files_hold_every_row_in_one_of_four_even_blocks(tmp_path, capsys):
    runpy.run_path(str(BATCH))["main"](tmp_path)
    rows = [(word, int(value), int(block)) for word, value, block in csv.reader((tmp_path / "rows.csv").open())]
    ends, words = rows[-4:], rows[:-4]
    assert ends == [("", 0, block) for block in range(4)]
    assert all(word for word, _, _ in words)
    sizes = Counter(block for _, _, block in words)
    assert len(words) == 20_000
    assert max(sizes.values()) - min(sizes.values()) <= 1
    totals = Counter()
    for word, value, _ in words:
        totals[word] += value
    assert dict(csv.reader((tmp_path / "expected.csv").open())) == {word: str(total) for word, total in totals.items()}
    assert "words that are cut: " in capsys.readouterr().out
