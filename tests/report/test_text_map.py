"""The map of task, general and kept text: where units lie, what is counted, and when there is none."""

import shutil
import xml.etree.ElementTree as tree

import numpy as np
import pandas as pd
import pytest
import torch
import yaml

from dana.core.schemas import HELD_OUT_TASK
from dana.report.figures import map_figure
from dana.report.run import read_run
from dana.report.sections import map_finding
from dana.report.tables import nearness_table
from dana.report.unit_texts import TextMap, _placed
from dana.stages.report import report_stage
from tests.report.conftest import store_vectors


def around(*centre, count=40, seed=0):
    """Vectors of length 1 near a direction."""
    rows = np.array(centre, float) + np.random.default_rng(seed).normal(0, 0.1, (count, len(centre)))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_distances_are_cosines_to_the_centre_of_the_task_s_units():
    task = np.array([[1.0, 0, 0], [0, 1.0, 0]])
    drawn = _placed({"general": np.eye(3), "kept": np.array([[0.6, 0.8, 0]]), "task": task}, 1.0)
    found = {name: own["distance"].tolist() for name, own in drawn.distances.groupby("text")}
    near = 1 - np.sqrt(0.5)
    assert found["task"] == pytest.approx([near, near])
    assert found["general"] == pytest.approx([near, near, 1])
    assert found["kept"] == pytest.approx([1 - 1.4 * np.sqrt(0.5)])


@pytest.mark.parametrize("flip", [1, -1])
def test_task_text_lies_on_the_left_and_kept_text_decides_no_direction(flip):
    vectors = {"general": around(flip, 0, 0), "kept": around(0, 0, 9), "task": around(0, flip, 0, seed=1)}
    drawn = _placed(vectors, 1.0)
    means = drawn.points.groupby("text")["x"].mean()
    assert means["task"] < -0.5
    assert means["general"] > 0.5
    assert means.loc[["task", "general"]].sum() == pytest.approx(0)
    fewer = _placed({**vectors, "kept": vectors["kept"][:3]}, 1.0)
    of_others = [frame.points[frame.points["text"] != "kept"].reset_index(drop=True) for frame in (drawn, fewer)]
    pd.testing.assert_frame_equal(*of_others)
    assert drawn.variance == fewer.variance
    assert 1 > drawn.variance[0] > 0.8 > drawn.variance[1] > 0


def test_at_most_six_hundred_points_are_drawn_and_all_are_measured():
    drawn = _placed({name: around(1, 0, count=900) for name in ("general", "kept", "task")}, 1.0)
    assert drawn.points["text"].value_counts().to_dict() == {"general": 250, "kept": 200, "task": 150}
    assert len(drawn.distances) == 2700


def distances(**found):
    rows = [{"text": name, "distance": value} for name, values in found.items() for value in values]
    return TextMap(pd.DataFrame(columns=["text", "x", "y"]), (0.5, 0.2), pd.DataFrame(rows), 0.75)


def test_who_is_nearer_is_counted_against_the_median_general_unit():
    table = nearness_table(distances(general=[0.2, 0.4, 0.6, 3.0], kept=[0.1, 0.3, 0.45, 0.7, 0.5], task=[0.1, 0.9]))
    assert table.frame["share_nearer"].tolist() == [0.5, 0.6, 0.5]
    assert table.frame["median_distance"].tolist() == [0.5, 0.45, 0.5]
    assert table.frame["units"].tolist() == [4, 5, 2]
    assert "75.0" in table.caption
    said = map_finding(table).replace("\N{NO-BREAK SPACE}", " ")
    assert said.startswith("60.0 % of the kept units lie nearer")
    assert said.endswith("of that text itself 50.0 % do.")


def test_a_run_s_kept_text_lies_with_the_task(whole_run):
    drawn = read_run(whole_run).selected.map
    rows = nearness_table(drawn).frame.set_index("text")
    assert rows.loc["kept", "share_nearer"] > 0.95
    assert rows["units"].to_dict() == {"general": 960, "kept": 192, "task": 118}, "distinct texts"
    assert drawn.stored == 1
    points = drawn.points.groupby("text")["x"].median()
    assert points["task"] < points["general"]
    again = read_run(whole_run).selected.map
    pd.testing.assert_frame_equal(again.points, drawn.points)


def test_the_figure_has_every_point_the_page_s_colours_and_no_text_of_the_corpus(whole_run):
    drawn = read_run(whole_run).selected.map
    figure = map_figure(drawn)
    tree.fromstring(figure.svg)
    for colour in ("task", "general", "dana"):
        assert f"var(--{colour}" in figure.svg
    assert "118 task, held out" in figure.alt
    assert "Sentence" not in figure.svg
    share = f"{100 * drawn.variance[0]:.1f}"
    assert f"first component ({share}" in figure.svg


def test_without_vectors_the_page_says_which_command_stores_them(whole_run):
    shutil.move(whole_run / "embeddings", whole_run.parent / "elsewhere")
    assert read_run(whole_run).selected.map is None
    page = report_stage(whole_run).read_text()
    assert "--detector knn --out ANOTHER_DIR" in page.split("Where does the kept text lie?")[1].split("</section>")[0]
    (whole_run / "settings.yaml").write_text(yaml.safe_dump({"selection": {"store": f"{whole_run.parent}/elsewhere"}}))
    assert read_run(whole_run).selected.map is not None


@pytest.mark.parametrize("gone", ["corpus", "task", "weights", f"scores/{HELD_OUT_TASK}"])
def test_a_text_that_is_gone_has_no_map(whole_run, gone):
    shutil.move(whole_run / gone, whole_run.parent / "gone")
    assert read_run(whole_run).selected.map is None


def test_of_two_encoders_the_one_that_knows_most_is_taken(whole_run):
    store_vectors(whole_run / "embeddings" / "another", ["An unknown text."], torch.ones(1, 7))
    assert read_run(whole_run).selected.map is not None
    shutil.rmtree(whole_run / "embeddings" / "one")
    assert read_run(whole_run).selected.map is None
