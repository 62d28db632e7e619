"""The programs on the simulator's page run, in their order, as they stand."""

from __future__ import annotations

import json
import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "simulator.md"


def test_the_programs_on_the_page_run(capsys):
    programs = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(programs) == 4
    names: dict[str, object] = {}
    for program in programs:
        exec(compile(program, str(PAGE), "exec"), names)
        assert len(capsys.readouterr().out.splitlines()) >= 3


def test_the_table_of_theory_is_that_of_the_saved_run():
    saved = json.loads((PAGE.parent / "results" / "sim-theory.json").read_text())
    table = saved["tables"][0]
    rows = [" | ".join(row) for row in [table["columns"], *table["rows"]]]
    on_page = [line[2:-2] for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    assert [row for row in on_page if row in rows] == rows
    assert saved["metrics"]["figures_outside"] == 0
    assert f"further off than {100 * saved['metrics']['farthest_from_theory']:.1f} %" in PAGE.read_text()
