"""The program on the loop's page runs as it stands."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "control.md"


def test_the_program_on_the_page_runs_and_shows_its_changes(capsys):
    (program,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    exec(compile(program, str(PAGE), "exec"), {})
    assert "what the true rates ask for" in capsys.readouterr().out
