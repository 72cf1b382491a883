"""The page on clusters from hand-written frames, and the section on selected text by cluster."""

import re
import shutil
from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from dana.core.artifacts import make, read_manifest
from dana.core.schemas import read_table, write_parts
from dana.report.page import write_page
from dana.stages.report import report_stage
from dana.studies.clusters.description import ClusterDescription
from dana.studies.clusters.model import FittedClusters
from dana.studies.clusters.page import cluster_report, representatives
from dana.studies.clusters.pool import amounts_by_cluster, pool_table
from dana.studies.clusters.stage import SCHEMA
from tests.report.conftest import write_selection
from tests.studies.clusters.toy_mixtures import round_mixture

TEXTS = [
    "The <judge> asked the jury whether it had come to a verdict.",
    "The enzyme binds the receptor of every cell in this tissue.",
    "Why did you call the court before you had read it all?",
    "Short one 7.",
]


@pytest.fixture
def pool():
    """Ten units of two sources in three clusters, of which four were fitted on."""
    units = [(0, "law", 5, 4.8), (0, "bio", 1, 1.0), (1, "bio", 3, 3.0), (2, "law", 1, 0.9)]
    sample = {
        "doc_id": list("abcd"),
        "source": ["law", "bio", "law", "bio"],
        "unit": [0, 0, 1, 0],
        "text": TEXTS,
    }
    sample |= {
        "cluster": [0, 1, 0, 2],
        "responsibility": [0.99, 1.0, 0.7, 0.9],
        "x": [0.0, 1.0, 0.1, 2.0],
    }
    sample |= {
        "y": [0.0, 1.0, 0.1, 0.0],
        "log_density": [-1.0, -2.0, -9.0, -4.0],
        "nearness": [-1.0, -2.0, -9.4, -4.1],
    }
    assignments = {
        "k2-0": [0, 1, 0, 1],
        "k2-1": [0, 0, 0, 1],
        "k3-0": [0, 1, 0, 2],
        "k3-1": [0, 1, 2, 2],
    }
    ellipse = {"x": 0.0, "y": 0.0, "width": 1.0, "height": 0.5, "angle": 30.0}
    clusters = ClusterDescription(
        model=FittedClusters(None, None, round_mixture([[0.0], [3.0], [2.0]])),
        names=["judge, jury", "enzyme, cell", "cluster 2"],
        reason="3 clusters, chosen of 2 numbers: of the numbers, one (BIC 20, stability 0.80)",
        sample=pd.DataFrame(sample),
        assignments=pd.DataFrame(assignments),
        fits=pd.DataFrame({"k": [2, 2, 3, 3], "seed": [0, 1, 0, 1]}),
        choice=pd.DataFrame(
            {"k": [2, 3], "bic": [30.0, 20.0], "stability": [0.5, 0.8], "chosen": [False, True]}
        ),
        ellipses=pd.DataFrame([{"cluster": at, **ellipse} for at in range(3)]),
        variance=(0.4, 0.1),
    )
    return clusters, pd.DataFrame(units, columns=["cluster", "source", "units", "responsibility"])


def _section(report, question):
    return next(section for section in report.sections if section.question.startswith(question))


def cluster_table(clusters, units):
    return next(
        table
        for table in cluster_report("pool", clusters, units).tables
        if table.name == "clusters"
    )


def _cells(*texts):
    return [text.replace(" %", "\N{NO-BREAK SPACE}%") for text in texts]


def test_the_table_has_one_row_per_cluster(pool):
    frame = cluster_table(*pool).frame
    assert frame["units"].tolist() == [6, 3, 1]
    assert frame["share"].tolist() == [0.6, 0.3, 0.1]
    assert frame["responsibility"].tolist() == [pytest.approx(5.8 / 6), 1, 0.9]
    assert frame["nearest"].tolist() == [2, 2, 1]
    assert frame["distance"].tolist() == [2, 1, 1]
    assert frame["sources"].tolist() == _cells("law 83 %, bio 17 %", "bio 100 %", "law 100 %")
    clusters, units = pool
    frame = cluster_table(clusters, units[units["cluster"] != 1]).frame
    assert frame["units"].tolist() == [6, 0, 1]
    assert (frame["sources"][1], frame["responsibility"][1]) == ("", 0), (
        "an empty cluster has a row"
    )


def test_the_page_says_what_is_in_the_pool(pool, tmp_path):
    report = cluster_report("pool", *pool)
    assert {"10", "3", "'judge,", "60.0\N{NO-BREAK SPACE}%"} <= {*report.verdict.split(" ")}
    assert [finding.value for finding in report.highlights] == ["0.80"]
    assert [figure.name for figure in report.figures] == ["cluster_map", "cluster_map_sources"]
    write_page(report, tmp_path, "clusters")
    nearest, farthest = _section(report, "What does each part").tables
    assert nearest.frame["name"].tolist() == [
        "judge, jury",
        "judge, jury",
        "enzyme, cell",
        "cluster 2",
    ]
    assert nearest.frame["text"].tolist() == [TEXTS[0], TEXTS[2], TEXTS[1], TEXTS[3]]
    assert farthest.frame["text"].tolist() == [TEXTS[2], TEXTS[1], TEXTS[0], TEXTS[3]]
    assert next(farthest.rows())[0] == ["judge, jury", "−9.0", TEXTS[2]]
    choice = _section(report, "Why so many")
    assert list(choice.tables[0].rows()) == [
        (["2", "30", "0.50"], ""),
        (["3", "20", "0.80"], "marked"),
    ]


def test_true_domains_are_told_by_purity_confusions_and_outliers(pool):
    report = cluster_report("pool", *pool, ["bio", "law"])
    purity = _section(report, "Do clusters find")
    assert re.findall(r"[\d.]+(?=\N{NO-BREAK SPACE}%| units)", purity.answer) == [
        "90.0",
        "10",
        "60.0",
    ]
    confusions, outliers = purity.tables
    assert confusions.frame["units"].tolist() == [3, 1, 0, 6]
    assert [cells for cells, _ in confusions.rows()][1] == ["bio", "law", "1", *_cells("25.0 %")]
    assert outliers.frame.iloc[0][["domain", "units", "share"]].tolist() == ["law", 1, 0.25]
    assert outliers.frame["tokens"].tolist()[-2:] == [4, 11]
    choice = _section(report, "Why so many").tables[0]
    assert [cells[-2:] for cells, _ in choice.rows()] == [_cells("87.5 %", "17.7 %")] * 2


def test_other_sources_count_in_no_purity(pool):
    clusters, units = pool
    units = pd.concat([units, pd.DataFrame([{**units.iloc[0], "source": "web", "units": 90}])])
    clusters = replace(clusters, sample=clusters.sample.assign(source=["law", "bio", "web", "bio"]))
    section = _section(cluster_report("pool", clusters, units, ["bio", "law"]), "Do clusters find")
    assert " 10 units" in section.answer
    assert " 3 units" in section.tables[1].caption


def test_true_domains_that_no_unit_of_the_sample_is_of_have_purity_but_no_outliers(pool):
    clusters, units = pool
    units = pd.concat([units, pd.DataFrame([{**units.iloc[0], "source": "web"}])])
    clusters = replace(clusters, sample=clusters.sample.assign(source="web"))
    report = cluster_report("pool", clusters, units, ["bio", "law"])
    section = _section(report, "Do clusters find")
    assert [table.name for table in section.tables] == ["cluster_confusion"]
    assert "no table of outliers" in section.answer
    assert "purity" not in _section(report, "Why so many").tables[0].frame


def test_representatives_are_the_lowest_of_each_cluster_and_readable():
    texts = [f"This is a sentence of eight words with {word}" for word in "aabcad"]
    texts[1] = "Yes."
    sample = pd.DataFrame({"text": texts, "doc_id": list("pqrstr"), "cluster": [0, 0, 0, 1, 0, 0]})
    order = pd.Series([3.0, 0.0, 1.0, 5.0, 2.0, 0.5])
    assert representatives(sample, order, 2).index.tolist() == [5, 4, 3]
    assert representatives(sample, order, 9).index.tolist() == [5, 4, 1, 3], (
        "each document, each text once"
    )


def write_clusters(run, clusters, k=4, pool=None):
    """clusters/ of a run's units: `clusters` from their weights to the cluster of each."""
    table = read_table(run / "weights")
    size = table.num_rows
    columns = [
        pa.array(np.asarray(clusters(table["weight"].to_numpy())), pa.int32()),
        *[pa.array(np.ones(size))] * 2,
    ]
    rows = pa.Table.from_arrays(
        [*(table[name] for name in SCHEMA.names[:5]), *columns], names=SCHEMA.names
    )

    def write(draft):
        write_parts([rows], draft.path, SCHEMA)
        draft.notes |= {"k": k, "names": [f"name {at}" for at in range(k)]}

    make(
        run / "clusters",
        "clusters",
        {"pool": pool or read_manifest(run / "pool")["fingerprint"]},
        write,
    )


@pytest.fixture
def run(tmp_path):
    write_selection(tmp_path / "run")
    return tmp_path / "run"


def test_a_unit_counts_by_its_weight(run):
    write_clusters(run, lambda weight: np.where(weight > 0, np.arange(weight.size) % 3, 3))
    units, weight_sums = amounts_by_cluster(run / "clusters", run / "weights", 4)
    table = pd.read_parquet(run / "clusters").assign(
        weight=pd.read_parquet(run / "weights")["weight"]
    )
    assert units.tolist() == table["cluster"].value_counts().sort_index().tolist()
    assert weight_sums.tolist() == table.groupby("cluster")["weight"].sum().tolist()
    assert weight_sums[3] == 0
    assert np.isnan(amounts_by_cluster(run / "clusters", None, 4)[1]).all()


def test_clusters_of_another_pool_or_of_other_units_are_not_told(run):
    for others in (None, "another"):
        if others:
            write_clusters(run, lambda weight: np.zeros(weight.size), pool=others)
        report_stage(run)
        assert "What is the pool made of?" not in (run / "report.md").read_text()
        assert not (run / "tables" / "pool_clusters.csv").exists()
    shutil.rmtree(run / "clusters")
    write_clusters(run, lambda weight: np.zeros(weight.size))
    table = read_table(run / "weights")
    write_parts([table.slice(1)], run / "shifted", table.schema)
    write_parts(
        [table.set_column(6, "weight", pa.array(np.zeros(len(table))))],
        run / "nothing",
        table.schema,
    )
    write_parts([table], run / "parts", table.schema, rows_per_part=500)
    for name, is_known in {"shifted": False, "nothing": True, "parts": False}.items():
        assert np.isfinite(amounts_by_cluster(run / "clusters", run / name, 4)[1]).all() == is_known


def test_shares_by_hand_those_that_most_is_kept_of_first():
    pool = pd.DataFrame(
        {"cluster": [0, 1, 2], "name": ["law", "cells", "odds"], "units": [50, 40, 10]}
    )
    rows = pool_table(pool.assign(selected=[2.0, 18.0, 0.0])).frame.set_index("name")
    assert rows.index.tolist() == ["cells", "law", "odds"]
    assert rows["share_of_units"].tolist() == [0.4, 0.5, 0.1]
    assert rows["share_of_selected"].tolist() == [0.9, 0.1, 0]
    assert rows["share_of_its_units_selected"].tolist() == [0.45, 0.04, 0]
    empty = pool.assign(units=[50, 50, 0], selected=[2.0, 18.0, 0.0])
    assert pool_table(empty).frame["share_of_its_units_selected"].tolist() == [0.36, 0.04, 0]
    table = pool_table(pool.assign(selected=np.nan))
    assert [cells[-2:] for cells, _ in table.rows()] == [["–", "–"]] * 3
