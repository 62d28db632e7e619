"""Every saved result can be drawn again from its JSON, and its picture can be read: by what matplotlib laid out."""

import itertools
import json
import shutil
from functools import partial
from pathlib import Path

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.container import BarContainer

from steelyard.bench import Experiment, Result, Series, charts
from steelyard.bench.registry import experiments
from steelyard.bench.report import redraw

RESULTS = Path(__file__).parents[2] / "docs" / "results"
SAVED = sorted(path.stem for path in RESULTS.glob("*.json"))
SLACK = 1.0
"""Pixels: edges that touch do not overlap."""


def picture_of(name):
    saved = Result.from_dict(json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8")))
    return lambda figure: experiments()[name].draw(figure, saved)


def drawn(draw):
    """The figure as it is laid out."""
    figure = charts.new_figure()
    figure.set_dpi(charts.DOTS_PER_INCH)
    FigureCanvasAgg(figure)
    draw(figure)
    figure.draw_without_rendering()
    return figure


def faults(figure):
    """What a reader of the figure would not like, in words."""
    return [*_unnamed(figure), *_logarithmic_bars(figure), *_covering_legends(figure), *_bad_texts(figure)]


def _unnamed(figure):
    for number, axes in enumerate(figure.axes):
        parts = {"title": axes.get_title("left"), "x": axes.get_xlabel(), "y": axes.get_ylabel()}
        yield from (f"panel {number} has no name for its {part}" for part, text in parts.items() if not text.strip())


def _logarithmic_bars(figure):
    for number, axes in enumerate(figure.axes):
        if any(isinstance(one, BarContainer) for one in axes.containers):
            scales = {"vertical": axes.get_yscale(), "horizontal": axes.get_xscale()}
            for one in axes.containers:
                if isinstance(one, BarContainer) and scales[one.orientation] == "log":
                    yield f"panel {number} has bars on a logarithmic scale"


def _covering_legends(figure):
    legends = [*figure.legends, *(axes.get_legend() for axes in figure.axes if axes.get_legend())]
    for legend, (number, axes) in itertools.product(legends, enumerate(figure.axes)):
        if _overlap(legend.get_window_extent(), axes.get_window_extent()):
            yield f"a legend covers panel {number}"


def _bad_texts(figure):
    texts = [one for axes in figure.axes for one in _texts(axes)]
    texts += [one for legend in figure.legends for one in legend.get_texts()]
    texts += [figure._suptitle] if figure._suptitle else []
    page = figure.bbox.padded(SLACK)
    for text in texts:
        box = text.get_window_extent()
        if text.get_text() and not (page.contains(box.x0, box.y0) and page.contains(box.x1, box.y1)):
            yield f"{text.get_text()!r} is cut off"
    titles = [text for axes in figure.axes for text in (axes._left_title, axes.xaxis.label, axes.yaxis.label)]
    ticks = [text for axes in figure.axes for text in (*_ticks(axes.xaxis), *_ticks(axes.yaxis))]
    boxes = [(text.get_text(), text.get_window_extent()) for text in (*titles, *ticks)]
    for (first, one), (second, other) in itertools.combinations(boxes, 2):
        if _overlap(one, other):
            yield f"{first!r} lies over {second!r}"


def _texts(axes):
    legend = axes.get_legend().get_texts() if axes.get_legend() else []
    return [axes._left_title, axes.xaxis.label, axes.yaxis.label, *axes.texts, *legend, *_ticks(axes.xaxis)]


def _ticks(axis):
    low, high = sorted(axis.get_view_interval())
    shown = [tick for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks()) if low <= tick.get_loc() <= high]
    return [tick.label1 for tick in shown if tick.label1.get_text()]


def _overlap(first, second):
    return (
        min(first.x1, second.x1) - max(first.x0, second.x0) > SLACK
        and min(first.y1, second.y1) - max(first.y0, second.y0) > SLACK
    )


def test_every_saved_result_is_of_a_benchmark_that_has_a_drawing_of_its_own():
    assert set(SAVED) <= set(experiments())
    assert all(one.drawing for one in experiments().values())


@pytest.mark.parametrize("name", SAVED)
def test_a_saved_result_is_drawn_from_its_json_and_its_picture_can_be_read(name):
    assert faults(drawn(picture_of(name))) == []


@pytest.mark.parametrize(
    ("name", "panels"),
    [
        ("osg-timeseries", {"Completion time, mean and range": 4, "Slowest minus fastest instance": 4}),
        ("promptplus-groups", {"Rates that are sustained": 9, "Rates over one Spark job a batch": 7}),
    ],
)
def test_every_panel_is_drawn_from_the_series_that_were_saved_for_it(name, panels):
    figure = drawn(picture_of(name))
    lines = {axes.get_title("left"): [one for one in axes.lines if _over_time(one)] for axes in figure.axes}
    for panel, count in panels.items():
        (found,) = (of for title, of in lines.items() if title.startswith(panel))
        assert len(found) == count


def _over_time(line):
    """Whether it is no bound."""
    return len(set(line.get_xdata())) > 2


@pytest.mark.parametrize(
    ("draw", "fault"),
    [
        (lambda figure: figure.add_subplot().plot([1, 2]), "panel 0 has no name for its title"),
        (lambda figure: figure.add_subplot().bar([1, 2], [1, 10], log=True), "panel 0 has bars on a logarithmic scale"),
        (lambda figure: figure.add_subplot().plot([1, 2], label="a")[0].axes.legend(), "a legend covers panel 0"),
        (lambda figure: figure.add_subplot().set_title("long " * 60, loc="left"), "is cut off"),
        (lambda figure: [axes.set_title("long " * 16, loc="left") for axes in figure.subplots(1, 2)], "lies over"),
    ],
)
def test_a_picture_that_cannot_be_read_is_noticed(draw, fault):
    assert any(fault in one for one in faults(drawn(draw)))


def test_a_result_without_a_drawing_of_its_own_can_be_read_too():
    lines = Result({}, {"a": 1.0}, series=[Series("s", [1, 10], [1, 2]), Series("t", [1], [2])])
    for result in (lines, Result({}, {"a": 1.0, "b": 2000})):
        own = Experiment("of a user", "", print)
        assert faults(drawn(partial(own.draw, result=result))) == []


def test_pictures_are_drawn_again_without_a_measurement(tmp_path):
    shutil.copy(RESULTS / "planning.json", tmp_path)
    (picture,) = redraw(tmp_path)
    assert picture == tmp_path / "planning.png"
    assert picture.read_bytes().startswith(b"\x89PNG")
