import re
import xml.etree.ElementTree as tree

import pytest

from dana.report import figures
from dana.report.figures import forest, forest_rows
from dana.report.run import read_run
from dana.report.sections import analyse
from dana.report.svg import Figure


@pytest.fixture
def drawn(whole_run):
    analysis = analyse(read_run(whole_run))
    return [
        figures.score_histogram(analysis.tables["score_histogram"].frame),
        figures.kept_bars(analysis.tables["kept_by_source"].frame),
        figures.loss_curves(analysis.tables["evaluations"].frame, "task"),
        figures.loss_curves(analysis.tables["evaluations"].frame, "general"),
        figures.seed_dots(analysis.tables["seeds"].frame, "toy"),
    ]


def test_every_figure_is_well_formed_and_says_what_it_shows(drawn):
    for figure in drawn:
        root = tree.fromstring(figure.svg)
        assert root.get("role") == "img"
        assert root.get("aria-label") == figure.alt


def test_ids_are_unique_on_the_page_and_all_references_resolve(drawn):
    page = "".join(figure.svg for figure in drawn)
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    references = set(re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', page))
    assert references
    assert {first or second for first, second in references} <= set(ids)


def test_colours_are_the_page_s_variables(drawn):
    for figure in drawn:
        assert "var(--ink, #1b1f24)" in figure.svg
        assert not re.search(r"(fill|stroke): #(?!000000)", figure.svg)


def test_an_arm_has_one_style_everywhere_and_no_other_arm_has_it():
    ours, others = ("base", "general", "random", "dana"), ("auto", "lexical", "moore_lewis")
    styles = figures.arm_styles([*ours, *others])
    assert len(set(styles.values())) == 7
    assert len({colour for colour, _ in styles.values()}) == 7
    assert figures.arm_styles(["adapted"])["adapted"] == styles["dana"]
    assert figures.arm_styles([*reversed(others), *ours]) == styles
    assert len(set(figures.arm_styles(others).values())) == 3
    assert len(figures.arm_styles(map(str, range(20)))) == 20, "with more arms than styles they come again"


def test_losses_are_drawn_from_where_they_began_and_both_texts_at_one_height(whole_run):
    frame = read_run(whole_run).evaluations
    raised = frame.assign(task_loss=frame["task_loss"] + 3)
    heights = [
        [float(y) for y in re.findall(r'<use [^>]*?y="([\d.]+)"', figures.loss_curves(rows, "task").svg)]
        for rows in (raised, frame)
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


def test_the_curve_goes_through_the_numbers(whole_run):
    """Five evaluations make five markers; their heights fall with the loss."""
    frame = read_run(whole_run).evaluations
    svg = figures.loss_curves(frame[frame["arm"] == "dana"], "task").svg
    heights = [float(y) for y in re.findall(r'<use [^>]*?y="([\d.]+)"[^>]*var\(--dana', svg)][:5]
    assert len(heights) == 5
    assert heights == sorted(heights)  # SVG counts downwards


def test_a_collapsed_seed_is_hollow(whole_run):
    svg = figures.seed_dots(analyse(read_run(whole_run)).tables["seeds"].frame, "toy").svg
    assert "hollow: collapsed" in svg
    unfilled = {arm: svg.count(f"fill: none; stroke: var(--{arm}") for arm in ("general", "dana")}
    assert unfilled == {"general": 2, "dana": 1}  # the mean's bar, and the seed


def differences(run):
    return analyse(read_run(run)).tables["differences"].frame


def test_the_forest_has_a_row_for_every_arm_against_base_and_random(tmp_path, write):
    for task in ("one", "two"):
        write["results"](tmp_path, task, arms={"base": 0.5, "random": 0.6, "dana": 0.7, "mine": 0.65}, collapsed="")
    rows = forest_rows(differences(tmp_path))
    expected = {("dana", "base"), ("dana", "random"), ("random", "base"), ("mine", "base"), ("mine", "random")}
    for task in ("one", "two"):
        own = rows[rows["task"] == task]
        assert len(own) == len(expected)
        assert set(zip(own["arm"], own["other"], strict=True)) == expected
    svg = forest(differences(tmp_path)).svg
    shown = re.findall(r">([^<>]+)</text>", svg)
    assert [text for text in shown if text in ("one", "two")] == ["one", "two"], "tasks in turn"
    assert shown.count("dana − base, n = 8") == 2


def test_what_is_decided_is_thick_and_filled_and_nothing_else_is(tmp_path, write):
    def drawn(**arms):
        folder = tmp_path / str(arms)
        write["results"](folder, arms=arms, collapsed="")
        figure = forest(differences(folder))
        widths = re.findall(r"stroke: var\(--dana[^;]*; stroke-width: ([\d.]+)", figure.svg)
        return figure.alt.split()[-1], widths[0], "fill: var(--dana" in figure.svg

    assert drawn(base=0.5, dana=0.7) == ("better.", "3.6", True)
    assert drawn(base=0.5, dana=0.501) == ("undecided.", "1.2", False)


def test_the_forest_is_well_formed_and_what_is_not_compared_is_not_drawn(tmp_path, write):
    write["results"](tmp_path, arms={"base": 0.5, "random": 0.5}, collapsed="")
    write["results"](tmp_path, arms={"dana": 0.7}, collapsed="", epochs=1)
    figure = forest(differences(tmp_path))
    assert tree.fromstring(figure.svg).get("aria-label") == figure.alt
    assert "dana" not in figure.svg
    write["results"](tmp_path / "alone", arms={"base": 0.5}, collapsed="")
    write["results"](tmp_path / "alone", arms={"dana": 0.7}, collapsed="", epochs=1)
    assert forest(differences(tmp_path / "alone")) is None


def test_the_forest_s_numbers_are_in_place(tmp_path, write):
    """Left of the zero line where worse, and as long as the interval."""
    write["results"](tmp_path, arms={"base": 0.7, "random": 0.7, "dana": 0.5}, collapsed="")
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
