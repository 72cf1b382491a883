"""What the page on clusters says, from frames written down by hand."""

import re
from dataclasses import replace

import pandas as pd
import pytest

from dana.report.page import to_html, to_markdown
from dana.studies.clusters.description import ClusterDescription
from dana.studies.clusters.model import FittedClusters
from dana.studies.clusters.page import cluster_report, representatives
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
    sample = {"doc_id": list("abcd"), "source": ["law", "bio", "law", "bio"], "unit": [0, 0, 1, 0], "text": TEXTS}
    sample |= {
        "cluster": [0, 1, 0, 2],
        "responsibility": [0.99, 1.0, 0.7, 0.9],
        "log_density": [-1.0, -2.0, -9.0, -4.0],
    }
    sample |= {"x": [0.0, 1.0, 0.1, 2.0], "y": [0.0, 1.0, 0.1, 0.0], "nearness": [-1.0, -2.0, -9.4, -4.1]}
    ellipse = {"x": 0.0, "y": 0.0, "width": 1.0, "height": 0.5, "angle": 30.0}
    clusters = ClusterDescription(
        model=FittedClusters(None, None, round_mixture([[0.0], [3.0], [2.0]])),
        names=["judge, jury", "enzyme, cell", "cluster 2"],
        reason="3 clusters, chosen of 2 numbers: of the numbers, one (BIC 20, stability 0.80)",
        sample=pd.DataFrame(sample),
        assignments=pd.DataFrame(
            {"k2-0": [0, 1, 0, 1], "k2-1": [0, 0, 0, 1], "k3-0": [0, 1, 0, 2], "k3-1": [0, 1, 2, 2]}
        ),
        fits=pd.DataFrame({"k": [2, 2, 3, 3], "seed": [0, 1, 0, 1]}),
        choice=pd.DataFrame({"k": [2, 3], "bic": [30.0, 20.0], "stability": [0.5, 0.8], "chosen": [False, True]}),
        ellipses=pd.DataFrame([{"cluster": at, **ellipse} for at in range(3)]),
        variance=(0.4, 0.1),
    )
    columns = ["cluster", "source", "units", "responsibility"]
    return clusters, pd.DataFrame(units, columns=columns)


def _section(report, question):
    return next(section for section in report.sections if section.question.startswith(question))


def cluster_table(clusters, units):
    return next(table for table in cluster_report("pool", clusters, units).tables if table.name == "clusters")


def test_a_row_a_cluster(pool):
    frame = cluster_table(*pool).frame
    assert frame["units"].tolist() == [6, 3, 1]
    assert frame["share"].tolist() == [0.6, 0.3, 0.1]
    assert frame["responsibility"].tolist() == [pytest.approx(5.8 / 6), 1, 0.9]
    assert frame["nearest"].tolist() == [2, 2, 1]
    assert frame["distance"].tolist() == [2, 1, 1]
    assert frame["sources"].tolist() == [
        "law 83 %, bio 17 %".replace(" %", "\N{NO-BREAK SPACE}%"),
        *all_from("bio", "law"),
    ]


def all_from(*sources):
    return [f"{source} 100\N{NO-BREAK SPACE}%" for source in sources]


def test_an_empty_row_of_the_table_is_still_a_cluster(pool):
    clusters, units = pool
    frame = cluster_table(clusters, units[units["cluster"] != 1]).frame
    assert frame["units"].tolist() == [6, 0, 1]
    assert frame["sources"][1] == ""
    assert frame["responsibility"][1] == 0


def test_the_page_says_what_is_in_the_pool(pool):
    report = cluster_report("pool", *pool)
    assert {"10", "3", "'judge,", "60.0\N{NO-BREAK SPACE}%"} <= {*report.verdict.split(" ")}
    assert [finding.value for finding in report.highlights] == ["0.80"]
    assert [figure.name for figure in report.figures] == ["cluster_map", "cluster_map_sources"]
    nearest, farthest = _section(report, "What does each part").tables
    assert nearest.frame["name"].tolist() == ["judge, jury", "judge, jury", "enzyme, cell", "cluster 2"]
    assert nearest.frame["text"].tolist() == [TEXTS[0], TEXTS[2], TEXTS[1], TEXTS[3]]
    assert farthest.frame["text"].tolist() == [TEXTS[2], TEXTS[1], TEXTS[0], TEXTS[3]]
    assert next(farthest.rows())[0] == ["judge, jury", "−9.0", TEXTS[2]]
    choice = _section(report, "Why so many")
    assert list(choice.tables[0].rows()) == [(["2", "30", "0.50"], False), (["3", "20", "0.80"], True)]


def test_both_pages_hold_every_word_safely(pool):
    report = cluster_report("pool", *pool, ["bio", "law"])
    html, markdown = to_html(report), to_markdown(report)
    assert "The &lt;judge&gt; asked" in html
    assert "The \\<judge\\> asked" in markdown
    assert html.count("<svg") == 3
    assert "cluster_sources" in {table.name for table in report.tables}
    assert "Units by cluster and source" not in markdown, "what has no columns is for files only"


def test_true_domains_are_told_by_purity_confusions_and_outliers(pool):
    report = cluster_report("pool", *pool, ["bio", "law"])
    purity = _section(report, "Do clusters find")
    assert re.findall(r"[\d.]+(?=\N{NO-BREAK SPACE}%| units)", purity.answer) == ["90.0", "10", "60.0"]
    confusions, outliers = purity.tables
    assert confusions.frame["units"].tolist() == [3, 1, 0, 6]
    assert [cells for cells, _ in confusions.rows()][1] == ["bio", "law", "1", *_cells("25.0 %")]
    assert outliers.frame.iloc[0][["domain", "units", "share"]].tolist() == ["law", 1, 0.25]
    assert outliers.frame["tokens"].tolist()[-2:] == [4, 11]
    choice = _section(report, "Why so many").tables[0]
    assert [cells[-2:] for cells, _ in choice.rows()] == [_cells("87.5 %", "17.7 %")] * 2


def _cells(*texts):
    return [text.replace(" %", "\N{NO-BREAK SPACE}%") for text in texts]


def test_other_sources_count_in_no_purity(pool):
    clusters, units = pool
    units = pd.concat([units, pd.DataFrame([{**units.iloc[0], "source": "web", "units": 90}])])
    clusters = replace(clusters, sample=clusters.sample.assign(source=["law", "bio", "web", "bio"]))
    section = _section(cluster_report("pool", clusters, units, ["bio", "law"]), "Do clusters find")
    assert " 10 units" in section.answer
    assert " 3 units" in section.tables[1].caption


def _sentence(word):
    return f"This is a sentence of eight words with {word}"


def test_representatives_are_the_lowest_of_each_cluster_and_readable():
    texts = [_sentence("a"), "Yes.", _sentence("b"), _sentence("c"), _sentence("a"), _sentence("d")]
    sample = pd.DataFrame({"text": texts, "doc_id": list("pqrstr"), "cluster": [0, 0, 0, 1, 0, 0]})
    order = pd.Series([3.0, 0.0, 1.0, 5.0, 2.0, 0.5])
    assert representatives(sample, order, 2).index.tolist() == [5, 4, 3]
    assert representatives(sample, order, 9).index.tolist() == [5, 4, 1, 3], "each document, each text once"
