"""The programs on the simulator's page run, in their order, as they stand."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "simulator.md"


def test_the_programs_on_the_page_run(capsys):
    programs = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(programs) == 3
    names: dict[str, object] = {}
    for program in programs:
        exec(compile(program, str(PAGE), "exec"), names)
        assert len(capsys.readouterr().out.splitlines()) >= 3
