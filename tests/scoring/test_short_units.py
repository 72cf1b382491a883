"""Units of fewer than two words stay in the table, come last, and count in no mean."""

import json

import numpy as np
import pyarrow as pa
import pytest
from sklearn.metrics import roc_auc_score

import dana
from dana.core.artifacts import read_manifest
from dana.core.errors import DataError
from dana.core.schemas import DOCUMENTS, HELD_OUT_TARGET, SCORES, read_table, write_parts
from dana.corpus.text import has_words
from dana.scoring.inputs import PoolText, TargetText
from dana.scoring.saved_selector import load_selector
from dana.scoring.scoring import Scoring, build_selector
from dana.scoring.settings import Selection
from dana.selectors.base import fill_short, largest_score
from dana.stages.texts import pool_stage, target_stage
from dana.stages.weigh import weigh_stage
from dana.weighting.in_domain import ranking_values
from dana.weighting.selection import Pool, cut_segments, weigh_pool, write_selected_text
from dana.weighting.settings import WeighSettings
from tests.stages.two_topics import CELLS, COURTS, one_document

JUNK = ["* * *", "-----", "12", "…", "Introduction", "😀", "— 3 —", "中"]
SELECTOR = "dsir:background=200"


def documents(random, count, junk=True):
    """Documents of courts and, every tenth, of cells; every third has a unit of hardly a word."""
    rows = []
    for number in range(count):
        words = CELLS if number % 10 == 0 else COURTS
        parts = [one_document(words, random, 1) for _ in range(4)]
        if junk and number % 3 == 0:
            parts.insert(number % 4, JUNK[number % len(JUNK)])
        source = "cells" if words is CELLS else "courts"
        rows.append({"id": f"d{number}", "source": source, "text": "\n\n".join(parts)})
    rows.append({"id": "nothing else", "source": "junk", "text": "* * *\n\n12\n\n-----"})
    return rows


def score(folder, rows, selector=SELECTOR, **settings):
    """Score documents; the run's folder."""
    random = np.random.default_rng(0)
    target = "\n".join(one_document(CELLS, random, 1) for _ in range(60))
    folder.mkdir(exist_ok=True)
    (folder / "cells.txt").write_text(target)
    (folder / "pool.jsonl").write_text("\n".join(map(json.dumps, rows)))
    selection = Selection(encoder="hashing:dims=64,words=1", **settings)
    task = TargetText(target_stage(str(folder / "cells.txt"), folder / "target"))
    pool = PoolText(pool_stage([str(folder / "pool.jsonl")], folder / "pool"))
    made = build_selector(selector, "knn", selection)
    Scoring(task, pool, selection, made, folder / "scores", spec=selector).run()
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    rows = documents(np.random.default_rng(1), 1200)  # of two shards
    return score(tmp_path_factory.mktemp("short") / "run", rows)


@pytest.fixture(scope="module")
def table(run):
    return read_table(run / "scores").to_pandas()


def weigh(run, folder, **settings):
    """Weigh scores; the table of weights with the scores beside."""
    artifact = weigh_stage(run / "scores", run / "pool", WeighSettings(**settings), folder)
    weights = read_table(artifact.path).to_pandas()
    return weights.merge(read_table(run / "scores").to_pandas())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", 0),
        ("* * *", 0),
        ("_____", 1),
        ("12", 1),
        ("No.", 1),
        ("p. 4", 2),
        ("don't", 2),
        ("中", 1),
        ("中文", 2),
        ("ที่", 1),
        ("ที่นี่", 2),
        ("क्या है", 2),
        ("a_b", 1),
        ("①②", 1),
        ("\u200d", 0),
    ],
)
def test_words_are_those_of_the_segmenter(text, words):
    least = next(count for count in range(5) if not has_words(text, count + 1))
    assert min(least, 2) == words


def test_short_units_stay_in_the_table_with_its_largest_score_and_are_counted(run, table):
    ordinary = table[~table.short]
    manifest = read_manifest(run / "scores")
    assert table.short.sum() == manifest["counts"]["short_units"] == 400 + 3
    assert set(table[table.short].score) == {ordinary.score.max()}
    assert manifest["mean"] == pytest.approx(ordinary.score.mean(), abs=1e-12)
    assert manifest["std"] == pytest.approx(ordinary.score.std(ddof=0), abs=1e-12)


def test_ordinary_units_have_the_scores_of_the_selector_to_the_bit(run, table, tmp_path):
    rows = documents(np.random.default_rng(1), 1200)
    published = read_table(score(tmp_path / "run", rows, min_words=0) / "scores").to_pandas()
    assert not published.short.any()
    ordinary = ~table.short
    assert (published.score[ordinary] == table.score[ordinary]).all()
    assert published.score[table.short].max() < table.score.max(), "dsir puts them before others"


@pytest.mark.parametrize("policy", ["segments", "sampled", "sigmoid"])
def test_a_segment_of_short_units_alone_is_last(run, tmp_path, policy):
    weights = weigh(run, tmp_path / "weights", policy=policy, beta=0.9, gamma=2)
    junk = weights[weights.doc_id == "nothing else"]
    assert junk.weight.max() <= weights[~weights.short].weight.min() + 1e-12


def test_short_units_change_no_mean_of_a_segment(tmp_path):
    with_junk = score(tmp_path / "with", documents(np.random.default_rng(1), 300), "random")
    table = read_table(with_junk / "scores")
    ordinary = table.filter(pa.array(~table["short"].to_numpy()))
    settings = WeighSettings(gamma=1000)
    one = cut_segments(Pool.from_tables([table], table.num_rows), settings)
    other = cut_segments(Pool.from_tables([ordinary], ordinary.num_rows), settings)
    assert one.means[:-1].tolist() == other.means.tolist()
    assert np.isinf(one.means[-1])
    assert np.isinf(one.ranked_means[-1])
    assert one.ranked_means[:-1] == pytest.approx(other.ranked_means, abs=1e-12)
    assert one.components.mean == pytest.approx(other.components.mean, abs=1e-12)


def test_means_and_weights_by_hand():
    rows = pa.table(
        {
            "doc_id": ["a"] * 6,
            "unit": np.arange(6, dtype=np.int32),
            "score": [1.0, 9.0, 9.0, 2.0, 9.0, 9.0],
            "short": [False, True, False, False, True, True],
        }
    )
    pool = Pool.from_tables([rows], 6)
    segments = cut_segments(pool, WeighSettings(gamma=2, shrink=False))
    assert segments.means.tolist() == [1.0, 5.5, np.inf]
    assert segments.sizes.tolist() == [2, 2, 2], "a budget counts every unit"
    chosen = weigh_pool(pool, WeighSettings(gamma=2, shrink=False, beta=0.67)).weight
    assert chosen.tolist() == [1, 1, 1, 1, 0, 0]
    sigmoid = WeighSettings(policy="sigmoid", sharpness=1, midpoint=0)
    mean, std = 4.0, np.sqrt((9 + 25 + 4) / 3)
    by_hand = 1 / (1 + np.exp((np.array(rows["score"]) - mean) / std))
    assert weigh_pool(pool, sigmoid).weight.tolist() == pytest.approx(by_hand.tolist())


def test_text_that_is_chosen_has_the_mean_score_of_its_words(run, tmp_path):
    weigh(run, tmp_path / "weights", beta=1.0)
    manifest = read_manifest(tmp_path / "weights")
    largest = read_table(run / "scores").to_pandas().score.max()
    means = [passage["score"] for passage in manifest["passages"] if passage["place"] == "best"]
    assert max(means) < largest


def test_python_weighs_a_table_as_the_command_weighs_its_folder(run, table, tmp_path):
    by_command = weigh(run, tmp_path / "weights", beta=0.3, gamma=3).sort_values(["doc_id", "unit"])
    in_memory = dana.weigh(table, beta=0.3, gamma=3).sort_values(["doc_id", "unit"])
    assert in_memory.weight.tolist() == by_command.weight.tolist()
    with pytest.raises(DataError, match="'short' is of type"):
        dana.weigh(table.assign(short="no"))


def test_a_saved_selector_gives_short_texts_the_largest_score_of_the_call(run):
    scores = load_selector(run).score(["court judge appeal", "***", "cell protein gene", "7"])
    assert scores.short.tolist() == [False, True, False, True]
    assert scores.score[1] == scores.score[3] == scores.score[[0, 2]].max()
    only = load_selector(run).score(["***"])
    assert np.isfinite(only.score).all()


def test_a_pool_without_words_is_refused_when_it_is_weighed(tmp_path):
    rows = [{"id": str(number), "text": f"{number}"} for number in range(50)]
    run = score(tmp_path / "run", rows, "random")
    assert read_table(run / "scores").to_pandas().short.all()
    with pytest.raises(DataError, match=r"none of the 50 units has enough words.*min_words=0"):
        weigh(run, tmp_path / "weights")
    assert not (tmp_path / "weights").exists()


def test_held_out_text_is_compared_without_short_units(run, table):
    held_out = read_table(run / "scores" / HELD_OUT_TARGET).to_pandas()
    ordinary = table[~table.short]
    foreign = np.repeat([0, 1], [len(held_out), len(ordinary)])
    by_hand = roc_auc_score(foreign, [*held_out.score, *ordinary.score])
    assert read_manifest(run / "scores")["auroc"] == pytest.approx(by_hand)


def units(scores, short):
    """A table of scores of one document."""
    count = len(scores)
    unit = np.arange(count, dtype=np.int32)
    columns = [["a"] * count, ["s"] * count, unit, unit.astype(np.int64), unit + 1, scores, short]
    return pa.table([pa.array(column) for column in columns], names=SCORES.names).cast(SCORES)


def test_the_largest_score_is_one_of_a_unit_that_is_not_short():
    tables = [units([1.0, 99.0], [False, True]), units([3.0], [False]), units([5.0], [True])]
    assert largest_score(tables) == 3.0
    assert fill_short(tables[0], 3.0)["score"].to_pylist() == [1.0, 3.0]
    assert fill_short(tables[1], 3.0) is tables[1]
    assert largest_score(tables[2:]) is None
    assert fill_short(tables[2], None)["score"].to_pylist() == [5.0]


def test_held_out_segments_are_ranked_by_their_words():
    table = units([1.0, 9.0, 9.0, 9.0], [False, True, True, True])
    values = ranking_values(table, WeighSettings(gamma=2), None)
    assert values.tolist() == [1.0, 1.0, np.inf, np.inf]


def test_a_passage_has_the_mean_of_its_words(tmp_path):
    text = "one two * three four"
    spans = [(0, 7), (8, 9), (10, 20)]
    rows = [
        {"doc_id": "a", "source": "s", "unit": number, "start": start, "end": end}
        for number, (start, end) in enumerate(spans)
    ]
    for row, score, short in zip(rows, [1.0, 9.0, 2.0], [False, True, False], strict=True):
        row |= {"score": score, "short": short}
    table = pa.Table.from_pylist(rows, schema=SCORES)
    write_parts([table], tmp_path / "scores", SCORES)
    pool = pa.Table.from_pylist([{"doc_id": "a", "source": "s", "text": text}], schema=DOCUMENTS)
    write_parts([pool], tmp_path / "pool", DOCUMENTS)
    scored = Pool.from_tables([table], 3)
    arguments = (tmp_path / "scores", tmp_path / "pool", scored, np.ones(3))
    lines, [passage] = write_selected_text(tmp_path / "x.gz", *arguments)
    assert lines == 1
    assert passage["score"] == 1.5
    assert passage["text"] == text
