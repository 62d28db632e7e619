"""The page that puts every result of a directory side by side."""

import io
from html.parser import HTMLParser
from pathlib import Path

import pytest
from rich.console import Console

from steelyard.bench import Experiment, Published, Result, Run, Table, Target
from steelyard.bench.claims import HOLDS
from steelyard.bench.progress import Reporter
from steelyard.bench.report import read_results, write_report
from steelyard.bench.runner import run_experiment
from steelyard.core import OptionError

EMPTY_ELEMENTS = {"meta", "img", "br"}


class Balance(HTMLParser):
    """Checks that elements close in the order in which they opened, and collects what they refer to."""

    def __init__(self):
        super().__init__()
        self.open, self.addresses = [], []

    def handle_starttag(self, tag, attributes):
        self.addresses += [value for name, value in attributes if name in ("src", "href")]
        if tag not in EMPTY_ELEMENTS:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture
def results(tmp_path):
    result = Result(
        {"keys": 5},
        {"plan_ms": 80.0, "guess": 2},
        tables=[
            Table("<sizes>", ("blocks", "policy"), [(8, "hash"), (None, "prompt")]),
            Table("claims", ("claim", "verdict"), [("faster", "holds"), ("flat", "does not hold"), ("x", "undecided")]),
        ],
        published=[Published("2x & more", "a <paper>", "guess"), Published(7, "of the whole")],
        targets=[Target("plan_ms", at_most=50, explanation="a <busy> machine"), Target("guess", at_least=1)],
        kinds={"guess": "simulated"},
        notes=["A note."],
    )
    run = Run(out=tmp_path, progress=Reporter(Console(quiet=True)))
    console = Console(file=io.StringIO())
    run_experiment(Experiment("first", "The <first>", lambda run: result, "Fig 1"), run, console)
    run_experiment(Experiment("second", "The second", lambda run: Result({}, {"x": 1})), run, console)
    return tmp_path


def test_the_page_is_well_formed_and_needs_no_network(results):
    page, _ = write_report(results)
    balance = Balance()
    balance.feed(page.read_text())
    assert balance.open == []
    linked = [address for address in balance.addresses if not address.startswith("#")]
    assert linked == ["first.png", "second.png"], "pictures lie beside the page"
    assert "http" not in page.read_text()


def test_the_first_screen_says_what_holds_and_what_does_not(results):
    text = write_report(results)[0].read_text()
    head = text[: text.index("<section")]
    assert "2 experiments with 2 targets: " in head
    assert '<span class="met">1 hold</span>, <span class="missed">1 do not</span>.' in head
    assert 'Of 3 claims about published experiments <span class="met">1 hold here</span>' in head
    assert '<span class="soft">1/3 claims</span>' in head
    assert '<a href="#first">first</a>: <code>plan_ms</code> 80, at most 50 was asked' in head


def test_the_page_of_the_saved_results_is_small():
    page = Path(__file__).parents[2] / "docs" / "results" / "report.html"
    assert page.stat().st_size < 1_000_000


def test_every_figure_target_source_and_label_is_on_the_page(results):
    page, found = write_report(results)
    text = page.read_text()
    assert [record["name"] for record in found.records] == ["first", "second"]
    for words in (
        "plan_ms",
        "2x &amp; more",
        "a &lt;paper&gt;",
        'at most 50 <span class="missed">missed</span>',
        'at least 1 <span class="met">met</span>',
        "a &lt;busy&gt; machine",
        '<span class="tag">simulated</span>',
        "steelyard bench run first --seed 7",
        "cores",
        "A note.",
        "of the whole",
        "&lt;sizes&gt;",
    ):
        assert words in text, words


def test_a_phone_and_a_dark_room_are_thought_of(results):
    text = write_report(results)[0].read_text()
    assert "width=device-width" in text
    assert "prefers-color-scheme: dark" in text


def test_json_that_is_no_result_is_named_and_left_out(results):
    (results / "demo.json").write_text('{"rows": 1}')
    (results / "broken.json").write_text("{")
    (results / "list.json").write_text("[]")
    assert read_results(results).skipped == ["broken.json", "demo.json", "list.json"]


def test_a_record_cannot_reach_for_a_file_outside_the_directory(results, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside") / "secret.png"
    outside.write_bytes(b"secret")
    path = results / "first.json"
    path.write_text(path.read_text().replace('"first.png"', f'"{outside}"'))
    assert "The picture secret.png is missing." in write_report(results)[0].read_text()


def test_a_directory_without_results_gets_the_command_that_makes_some(tmp_path):
    with pytest.raises(OptionError, match="steelyard bench run --all"):
        write_report(tmp_path)


def test_every_saved_claim_that_does_not_hold_says_why():
    records = read_results(Path(__file__).parents[2] / "docs" / "results").records
    tables = [
        (one["name"], Table(**table)) for one in records for table in one["tables"] if "verdict" in table["columns"]
    ]
    assert len({name for name, _ in tables}) > 20
    silent = [
        f"{name}: {row['claim']}"
        for name, table in tables
        for row in table.records()
        if row["verdict"] != HOLDS and len(row["reason"].split()) < 6
    ]
    assert not silent
