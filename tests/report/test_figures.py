"""Figures of a report: well-formed SVG whose shapes are at the numbers."""

import re
import xml.etree.ElementTree as tree

import pytest

from dana.report import figures
from dana.report.figures import forest, forest_rows
from dana.report.run import read_run
from dana.report.sections import analyse
from dana.report.svg import Figure


def differences(run):
    return analyse(read_run(run)).tables["differences"].frame


def test_svg_is_well_formed_with_unique_ids_and_the_colours_of_the_page(whole_run):
    tables = analyse(read_run(whole_run)).tables
    charts = [
        figures.score_histogram(tables["score_histogram"].frame),
        figures.source_bars(tables["kept_by_source"].frame),
        figures.loss_curves(tables["evaluations"].frame, "task"),
        figures.loss_curves(tables["evaluations"].frame, "general"),
        figures.seed_dots(tables["seeds"].frame, "toy"),
        figures.forest(tables["differences"].frame),
    ]
    images = [figure.svg for figure in charts]
    for figure, image in zip(charts, images, strict=True):
        root = tree.fromstring(image)
        assert (root.get("role"), root.get("aria-label")) == ("img", figure.alt)
        assert "var(--ink, #1b1f24)" in image
        assert not re.search(r"(fill|stroke): #(?!000000)", image)
    page = "".join(images)
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    references = re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', page)
    assert {first or second for first, second in references} <= set(ids)
    assert references


def test_an_arm_has_one_style_in_all_figures():
    ours, others = ("base", "general", "random", "dana"), ("auto", "lexical", "moore_lewis")
    styles = figures.arm_styles([*ours, *others])
    assert len(set(styles.values())) == 7
    assert len({colour for colour, _ in styles.values()}) == 7
    assert figures.arm_styles(["adapted"])["adapted"] == styles["dana"]
    assert figures.arm_styles([*reversed(others), *ours]) == styles
    assert len(set(figures.arm_styles(others).values())) == 3
    assert len(figures.arm_styles(map(str, range(20)))) == 20


def test_loss_curves_start_at_zero_and_share_their_limits(whole_run):
    frame = read_run(whole_run).evaluations
    higher = frame.assign(task_loss=frame["task_loss"] + 3)
    heights = [
        [float(y) for y in re.findall(r'<use [^>]*?y="([\d.]+)"', figures.loss_curves(rows, "task").svg)]
        for rows in (higher, frame)
    ]
    assert heights[0] == pytest.approx(heights[1], abs=1e-3)
    ticks = [re.findall(r">(−?0\.\d+)<", figures.loss_curves(frame, text).svg) for text in ("task", "general")]
    assert ticks[0] == ticks[1] != []
    assert "general text, held out (up: forgotten)" in figures.loss_curves(frame, "general").svg
    assert "forgotten" not in figures.loss_curves(frame, "task").svg


def test_the_same_numbers_give_the_same_bytes():
    def paint(axes):
        axes.plot([0, 1], [1, 0], marker="o", color="#009e73")

    first, second = (Figure("x", "a < b", (3, 2), paint).svg for _ in range(2))
    assert first == second
    assert 'aria-label="a &lt; b"' in first


def test_loss_curves_fall_with_the_loss(whole_run):
    """Five evaluations make five markers; their heights fall with the loss."""
    frame = read_run(whole_run).evaluations
    svg = figures.loss_curves(frame[frame["arm"] == "dana"], "task").svg
    heights = [float(y) for y in re.findall(r'<use [^>]*?y="([\d.]+)"[^>]*var\(--dana', svg)][:5]
    assert len(heights) == 5
    assert heights == sorted(heights)  # SVG counts downwards


def test_a_collapsed_seed_is_hollow(whole_run):
    svg = figures.seed_dots(analyse(read_run(whole_run)).tables["seeds"].frame, "toy").svg
    assert "hollow: collapsed" in svg
    hollow = {arm: svg.count(f"fill: none; stroke: var(--{arm}") for arm in ("general", "dana")}
    assert hollow == {"general": 2, "dana": 1}  # the mean's bar, and the seed


def test_forest_rows_are_every_arm_against_base_and_random(tmp_path, write):
    for task in ("one", "two"):
        write["results"](tmp_path, task, arms={"base": 0.5, "random": 0.6, "dana": 0.7, "mine": 0.65})
    rows = forest_rows(differences(tmp_path))
    pairs = {("dana", "base"), ("dana", "random"), ("random", "base"), ("mine", "base"), ("mine", "random")}
    for task in ("one", "two"):
        task_rows = rows[rows["task"] == task]
        assert len(task_rows) == len(pairs)
        assert set(zip(task_rows["arm"], task_rows["other"], strict=True)) == pairs
    labels = re.findall(r">([^<>]+)</text>", forest(differences(tmp_path)).svg)
    assert [text for text in labels if text in ("one", "two")] == ["one", "two"]
    assert labels.count("dana − base, n = 8") == 2


def test_decided_rows_of_the_forest_are_thick_and_filled(tmp_path, write):
    def row_style(**arms):
        folder = tmp_path / str(arms)
        write["results"](folder, arms=arms)
        figure = forest(differences(folder))
        widths = re.findall(r"stroke: var\(--dana[^;]*; stroke-width: ([\d.]+)", figure.svg)
        return figure.alt.split()[-1], widths[0], "fill: var(--dana" in figure.svg

    assert row_style(base=0.5, dana=0.7) == ("better.", "3.6", True)
    assert row_style(base=0.5, dana=0.501) == ("undecided.", "1.2", False)


def test_the_forest_leaves_out_arms_that_are_not_compared(tmp_path, write):
    write["results"](tmp_path, arms={"base": 0.5, "random": 0.5})
    write["results"](tmp_path, arms={"dana": 0.7}, epochs=1)
    assert "dana" not in forest(differences(tmp_path)).svg
    write["results"](tmp_path / "alone", arms={"base": 0.5})
    write["results"](tmp_path / "alone", arms={"dana": 0.7}, epochs=1)
    assert forest(differences(tmp_path / "alone")) is None


def test_forest_lines_are_as_long_as_the_intervals(tmp_path, write):
    """Left of the zero line where worse, and as long as the interval."""
    write["results"](tmp_path, arms={"base": 0.7, "random": 0.7, "dana": 0.5})
    frame = differences(tmp_path)
    row = frame[(frame["arm"] == "dana") & (frame["other"] == "base")].iloc[0]
    svg = forest(frame).svg
    (zero,) = re.findall(
        r'd="M ([\d.]+) [\d.]+ \nL \1 [\d.]+ \n" clip-path="[^"]*" style="fill: none; stroke: var\(--ink', svg
    )
    ends = re.findall(
        r'd="M ([\d.]+) ([\d.]+) \nL ([\d.]+) \2 \n" clip-path="[^"]*" style="fill: none; stroke: var\(--dana', svg
    )
    low, _, high = map(float, ends[0])
    assert low < high < float(zero)
    assert (float(zero) - low) / (float(zero) - high) == pytest.approx(row.low / row.high, rel=1e-3)
