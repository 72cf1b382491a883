"""Figures of a report: well-formed SVG whose shapes are at the numbers."""

import re
import xml.etree.ElementTree as tree

import pytest

from dana.report import figures
from dana.report.analysis import analyse
from dana.report.figures import forest, forest_rows
from dana.report.run import read_run
from dana.report.svg import Figure
from tests.report.conftest import write_results


def differences(run):
    return analyse(read_run(run)).tables["differences"].frame


def heights(svg, colour=""):
    """Heights of the markers of a figure, downwards."""
    return [float(y) for y in re.findall(rf'<use [^>]*?y="([\d.]+)"[^>]*{colour}', svg)]


def test_svg_is_well_formed_with_unique_ids_and_the_colours_of_the_page(tables):
    frame = {name: table.frame for name, table in tables.items()}
    charts = [
        figures.score_histogram(frame["score_histogram"]),
    ]
    charts += [figures.loss_curves(frame["evaluations"], text) for text in ("target", "pool")]
    charts += [figures.seed_dots(frame["seeds"], "toy"), figures.forest(frame["differences"])]
    charts += [
        Figure(
            "x",
            "a < b",
            (3, 2),
            lambda axes: axes.plot([0, 1], [1, 0], marker="o", color="#009e73"),
        )
    ]
    images = [figure.svg for figure in charts]
    for figure, image in zip(charts, images, strict=True):
        root = tree.fromstring(image)
        assert (root.get("role"), root.get("aria-label")) == ("img", figure.alt)
        assert "var(--ink, #1b1f24)" in image
        assert not re.search(r"(fill|stroke): #(?!000000)", image)
    assert images[-1] == charts[-1].svg, "the same numbers give the same bytes"
    page = "".join(images)
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    references = re.findall(r'(?:href="|url\()#([^")]+)', page)
    assert set(references) <= set(ids)
    assert references


def test_an_arm_has_one_style_in_all_figures():
    ours, others = ("base", "pool", "random", "dana"), ("auto", "lexical", "moore_lewis")
    styles = figures.arm_styles([*ours, *others])
    assert len(set(styles.values())) == 7
    assert len({colour for colour, _ in styles.values()}) == 7
    assert figures.arm_styles(["adapted"])["adapted"] == styles["dana"]
    assert figures.arm_styles([*reversed(others), *ours]) == styles
    assert len(set(figures.arm_styles(others).values())) == 3
    assert len(figures.arm_styles(map(str, range(20)))) == 20


def test_loss_curves_start_at_zero_fall_with_the_loss_and_share_their_limits(frames):
    frame = frames.evaluations
    higher = frame.assign(target_loss=frame["target_loss"] + 3)
    images = [figures.loss_curves(frame, text).svg for text in ("target", "pool")]
    assert heights(figures.loss_curves(higher, "target").svg) == pytest.approx(
        heights(images[0]), abs=1e-3
    )
    ticks = [re.findall(r">(−?0\.\d+)<", image) for image in images]
    assert ticks[0] == ticks[1] != []
    assert ["pool text, held out (up: forgotten)" in image for image in images] == [False, True]
    alone = figures.loss_curves(frame[frame["arm"] == "dana"], "target").svg
    markers = heights(alone, r"var\(--dana")[:5]  # of five evaluations
    assert markers == sorted(markers)  # SVG counts downwards
    assert len(set(markers)) == 5


def test_a_collapsed_seed_is_hollow(tables):
    svg = figures.seed_dots(tables["seeds"].frame, "toy").svg
    assert "hollow: collapsed" in svg
    hollow = {arm: svg.count(f"fill: none; stroke: var(--{arm}") for arm in ("pool", "dana")}
    assert hollow == {"pool": 2, "dana": 1}  # the mean's bar, and the seed


def test_forest_rows_are_every_arm_against_base_and_random(tmp_path):
    for task in ("one", "two"):
        write_results(tmp_path, task, arms={"base": 0.5, "random": 0.6, "dana": 0.7, "mine": 0.65})
    frame = differences(tmp_path)
    rows = forest_rows(frame)
    pairs = [
        ("dana", "base"),
        ("dana", "random"),
        ("mine", "base"),
        ("mine", "random"),
        ("random", "base"),
    ]
    triples = [(task, *pair) for task in ("one", "two") for pair in pairs]
    assert sorted(zip(rows["task"], rows["arm"], rows["other"], strict=True)) == triples
    labels = re.findall(r">([^<>]+)</text>", forest(frame).svg)
    assert [text for text in labels if text in ("one", "two")] == ["one", "two"]
    assert labels.count("adapted − not adapted, n = 8") == 2


@pytest.mark.parametrize(
    ("mean", "verdict", "width", "is_filled"),
    [(0.7, "better.", "3.6", True), (0.501, "undecided.", "1.2", False)],
)
def test_decided_rows_of_the_forest_are_thick_and_filled(tmp_path, mean, verdict, width, is_filled):
    write_results(tmp_path, arms={"base": 0.5, "dana": mean})
    figure = forest(differences(tmp_path))
    assert figure.alt.endswith(verdict)
    assert re.search(r"stroke: var\(--dana[^;]*; stroke-width: ([\d.]+)", figure.svg)[1] == width
    assert ("fill: var(--dana" in figure.svg) is is_filled


def test_the_forest_leaves_out_arms_that_are_not_compared(tmp_path):
    write_results(tmp_path, arms={"base": 0.5})
    write_results(tmp_path, arms={"dana": 0.7}, epochs=1)
    assert forest(differences(tmp_path)) is None
    write_results(tmp_path, arms={"random": 0.5})
    assert "dana" not in forest(differences(tmp_path)).svg


def test_forest_lines_are_left_of_zero_where_worse_and_as_long_as_the_intervals(tmp_path):
    write_results(tmp_path, arms={"base": 0.7, "random": 0.7, "dana": 0.5})
    frame = differences(tmp_path)
    row = frame[(frame["arm"] == "dana") & (frame["other"] == "base")].iloc[0]
    line = r'd="M ([\d.]+) ([\d.]+) \nL ([\d.]+) [\d.]+ \n" clip-path="[^"]*" style="fill: none; stroke: var\(--'
    svg = forest(frame).svg
    zero = float(re.search(line + "ink", svg)[1])
    low, _, high = map(float, re.search(line + "dana", svg).groups())
    assert low < high < zero
    assert (zero - low) / (zero - high) == pytest.approx(row.low / row.high, rel=1e-3)


def test_each_task_has_figures_of_its_own_name():
    tasks = ["a b", "a-b", "a_b", "a_20_b", "été"]
    assert len({figures._slug(task) for task in tasks}) == len(tasks)
    assert all(re.fullmatch(r"[\w-]+", figures._slug(task)) for task in tasks)
