"""How much to keep: the smaller of two readings, and texts by which one of them or both cannot be told."""

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import norm

from dana.core.errors import DataError
from dana.core.schemas import DOCUMENTS, SCORES, Document, write_parts
from dana.corpus.documents import document_tables
from dana.weighting import amount
from dana.weighting.amount import choose_amount
from dana.weighting.pool import Pool
from dana.weighting.selection import gather
from dana.weighting.settings import WeighSettings

CELLS = ["cell", "gene", "kinase", "enzyme", "ligand", "assay"]
COURTS = ["court", "judge", "appeal", "verdict", "motion", "tort"]


def scored(texts, scores, folder):
    """Documents of one unit each in a folder, and their scores."""
    documents = [Document(f"d{row:04d}", "pool", text) for row, text in enumerate(texts)]
    write_parts(document_tables(documents), folder, DOCUMENTS)
    ends = [len(text) for text in texts]
    zeros = np.zeros(len(texts), dtype=np.int32)
    columns = [[one.doc_id for one in documents], ["pool"] * len(texts), zeros, zeros.astype(np.int64), ends, scores]
    return pa.table([pa.array(column) for column in columns], schema=SCORES)


def amount_of(folder, like=60, others=540, held_out=40, distance=6.0, written=None, texts=None, **settings):
    """Of units that score like the task and others; the best `written`, by default the former, have its words."""
    random = np.random.default_rng(0)
    written = like if written is None else written
    pool = [" ".join(random.choice(CELLS, 8)) for _ in range(written)]
    pool += [" ".join(random.choice(COURTS, 8)) for _ in range(like + others - written)]
    task = [" ".join(random.choice(CELLS, 8)) for _ in range(held_out)]
    pool, task = ([texts] * len(part) if texts else part for part in (pool, task))
    scores = np.concatenate([random.normal(0, 1, like), random.normal(distance, 1, others)])
    scores = np.sort(scores)
    order = random.permutation(like + others)
    table = scored([pool[row] for row in order], scores[order], folder / "corpus")
    task_table = scored(task, random.normal(0, 1, held_out), folder / "task")
    pool, asked = Pool(table), WeighSettings(**settings)
    segments = gather(pool, asked)
    return choose_amount(task_table, folder / "task", pool, segments, folder / "corpus", asked)


def test_in_domain_share_caps_the_amount(tmp_path):
    """A fifth of the pool has the task's words, but half of that scores like other text."""
    found = amount_of(tmp_path, written=120)
    assert found.by_perplexity == 0.2
    assert found.beta == found.by_likeness == pytest.approx(0.1, abs=0.03)
    assert (found.held_out_documents, found.counted_units) == (40, 600)
    assert [cut["units"] for cut in found.curve] == [6, 12, 30, 60, 120, 210, 300, 450, 600]
    *cuts, whole = [(cut["perplexity"], cut["perplexity_random"]) for cut in found.curve]
    assert whole[0] == whole[1]  # of all units in another order
    assert all(chosen < by_chance for chosen, by_chance in cuts)
    assert cuts[0][1] > 2 * whole[1]  # more text at random says more


def test_overlapping_scores_count_units_more_likely_in_domain(tmp_path):
    """Normal scores, task at 0 and others at 2: P(task | s) = 1/2 at s = 1 - ln((1 - π) / π) / 2."""
    found = amount_of(tmp_path, like=900, others=2100, held_out=400, distance=2.0)
    middle = 1 - np.log(0.7 / 0.3) / 2
    assert found.by_likeness == pytest.approx(0.3 * norm.cdf(middle) + 0.7 * norm.cdf(middle - 2), abs=0.07)


def test_perplexity_may_choose_less(tmp_path):
    found = amount_of(tmp_path, like=300, others=300, written=60)
    assert found.by_likeness == pytest.approx(0.5, abs=0.1)
    assert found.beta == found.by_perplexity <= 0.1


def test_a_large_pool_is_sampled(tmp_path, monkeypatch):
    whole = amount_of(tmp_path / "whole", others=1940, like=60)
    monkeypatch.setattr(amount, "MOST_UNITS", 1000)
    found = amount_of(tmp_path / "part", others=1940, like=60)
    assert 900 < found.counted_units < 1100
    assert found.curve[-1]["units"] == whole.curve[-1]["units"] == 2000
    assert found.beta == pytest.approx(whole.beta, abs=0.015)


def test_random_cuts_are_whole_segments(tmp_path, monkeypatch):
    random, orders = np.random.default_rng(0), []
    curve_of = amount.perplexity_curve

    def captured(texts, order, by_chance, *rest):
        orders.append((order, by_chance))
        return curve_of(texts, order, by_chance, *rest)

    monkeypatch.setattr(amount, "perplexity_curve", captured)
    units = [" ".join(random.choice(COURTS, 8)) for _ in range(240)]
    documents = [Document(f"d{row:02d}", "pool", " ".join(units[12 * row : 12 * row + 12])) for row in range(20)]
    write_parts(document_tables(documents), tmp_path, DOCUMENTS)
    ends = np.concatenate([np.cumsum([len(text) + 1 for text in units[at : at + 12]]) - 1 for at in range(0, 240, 12)])
    begins = ends - [len(text) for text in units]
    number, score = np.tile(np.arange(12, dtype=np.int32), 20), random.normal(size=240)
    columns = [np.repeat([one.doc_id for one in documents], 12).tolist(), ["pool"] * 240, number, begins, ends, score]
    pool = Pool(pa.table([pa.array(column) for column in columns], schema=SCORES))
    settings = WeighSettings(gamma=4)
    segments = gather(pool, settings)
    task = scored([" ".join(random.choice(CELLS, 8)) for _ in range(40)], random.normal(size=40), tmp_path / "task")
    choose_amount(task, tmp_path / "task", pool, segments, tmp_path, settings)
    ((order, by_chance),) = orders
    for rows in (order, by_chance):
        np.testing.assert_array_equal(np.sort(rows), np.arange(240))
        assert (rows.reshape(-1, 4) // 4 == rows.reshape(-1, 4)[:, :1] // 4).all()
    assert (order != by_chance).mean() > 0.5


@pytest.mark.parametrize(
    ("texts", "likeness"),
    [
        *[({"held_out": 3}, None), ({"held_out": 19}, None), ({"distance": 0.0}, None)],
        ({"like": 0, "others": 600, "written": 60, "distance": 9.0}, 0),
    ],
)
def test_perplexity_alone_chooses(tmp_path, texts, likeness):
    found = amount_of(tmp_path, **texts)
    assert found.by_likeness == likeness
    assert found.beta == found.by_perplexity > 0
    if "held_out" in texts:
        assert found.beta <= 0.1
        assert all(cut["in_domain"] is None for cut in found.curve)


@pytest.mark.parametrize("texts", [{"held_out": 0}, {"like": 1, "others": 0, "texts": "one short document"}])
def test_too_little_text_is_refused(tmp_path, texts):
    with pytest.raises(DataError, match="beta='auto'"):
        amount_of(tmp_path, **texts)
