"""Scripts of recipes/papers/domain_clusters on made-up domains: every number again by hand, resumption, refusals."""

import gzip
import sys
from importlib import util
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

FOLDER = Path(__file__).parents[3] / "recipes" / "papers" / "domain_clusters"
WORDS = {
    "sea": ["gull", "wave", "mast", "deck", "sailor", "tide", "harbour", "anchor", "storm", "rope"],
    "court": [
        "judge",
        "clause",
        "law",
        "appeal",
        "witness",
        "verdict",
        "statute",
        "counsel",
        "oath",
        "bench",
    ],
    "farm": [
        "barn",
        "plough",
        "harvest",
        "cow",
        "field",
        "tractor",
        "seed",
        "orchard",
        "fence",
        "hay",
    ],
}
ENCODER = "hashing:dims=32,words=1"
MOST = 60


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))

    def load(name):
        spec = util.spec_from_file_location(f"domain_clusters_{name}", FOLDER / f"{name}.py")
        module = util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, spec.name, module)
        spec.loader.exec_module(module)
        return module

    return load


def sentences(domain, count):
    """Distinct ones, of the domain's words but for every tenth, which has those of the next domain."""
    names = list(WORDS)
    random, other = (
        np.random.default_rng(names.index(domain)),
        names[(names.index(domain) + 1) % len(names)],
    )
    return [
        f"{' '.join(random.choice(WORDS[other if number % 10 == 9 else domain], 6))} {domain[0]}{number}"
        for number in range(count)
    ]


@pytest.fixture
def files(tmp_path):
    paths = [tmp_path / f"{domain}.en.txt.gz" for domain in WORDS]
    for path, domain in zip(paths, WORDS, strict=True):
        path.write_bytes(gzip.compress("\n".join(sentences(domain, MOST + 20)).encode()))
    return list(map(str, paths))


def test_figures_and_table_2_are_of_one_clustering(script, files, tmp_path, capsys):
    figures = script("figures")
    command = [
        *files,
        "--most",
        str(MOST),
        "--out",
        str(tmp_path / "out"),
        "--encoders",
        ENCODER,
        "--pca",
        "6",
    ]
    figures.main([*command, "--k", "3"])
    folder = tmp_path / "out" / "hashing-dims-32-words-1"
    assert {path.name for path in folder.glob("figure?.png")} == {
        "figure1.png",
        "figure2.png",
        "figure3.png",
    }
    points = pd.read_csv(folder / "points.csv")
    assert len(points) == 3 * MOST
    purity = 100 * pd.crosstab(points["cluster"], points["source"]).max(axis=1).sum() / len(points)
    assert f"purity {purity:.2f}" in capsys.readouterr().out
    assert purity == pytest.approx(100 * (points["source"] == points["assigned"]).mean())
    counts = pd.crosstab(points["source"], points["assigned"])
    for row in pd.read_csv(folder / "figure2.csv").itertuples():
        table = counts.get(row.assigned, pd.Series(dtype=int)).get(row.true, 0)
        assert (row.sentences, row.share) == (table, pytest.approx(table / MOST))
    outliers = pd.read_csv(folder / "outliers.csv").set_index("domain")
    wrong = points[points["source"] != points["assigned"]]
    assert len(wrong) > 5
    assert outliers.loc["all outliers", "units"] == len(wrong)
    assert outliers.loc["all units", ["units", "tokens", "digits", "conversational"]].tolist() == [
        3 * MOST,
        7,
        1,
        0,
    ]
    table = pd.read_csv(folder / "table2.csv")
    texts = {name: sentences(name, MOST) for name in WORDS}
    assert all(
        row.sentence in texts[row.true] and row.true != row.assigned for row in table.itertuples()
    )
    assert (
        table.groupby(["true", "assigned"])["log_density"]
        .apply(lambda values: values.is_monotonic_decreasing)
        .all()
    )


def test_examples_are_the_outliers_nearest_to_the_wrong_centre(script):
    outlier_examples = script("figures").outlier_examples
    true, cluster_domains = np.array([0, 0, 0, 1, 0]), np.array([1, 1, 1, 0, 0])
    sample = pd.DataFrame(
        {"text": ["a", "b", "b", "c", "d"], "nearness": [-3.0, -1.0, -2.0, 0.0, 9.0]}
    )
    examples = outlier_examples(sample, true, cluster_domains, 2)
    assert examples[["true", "assigned"]].to_numpy().tolist() == [[0, 1], [0, 1], [1, 0]]
    assert examples.index.tolist() == [1, 0, 3]
    assert outlier_examples(sample, true, cluster_domains, 1).index.tolist() == [1, 3]


def test_table_7_finds_the_domain_that_it_is_fitted_on_and_resumes(script, files, tmp_path):
    table7 = script("table7")
    out = tmp_path / "out"
    command = [
        *files,
        "--most",
        "60",
        "--fit",
        "25",
        "--scale",
        "0",
        "--kept",
        "30",
        "--out",
        str(out),
    ]
    table7.main([*command, "--selectors", "random"])
    first = {path: path.stat().st_mtime_ns for path in out.glob("*/*/scores/part*")}
    table7.main([*command, "--selectors", "random", "moore_lewis"])
    assert len(first) == 3
    assert (
        first.items()
        < {path: path.stat().st_mtime_ns for path in out.glob("*/*/scores/part*")}.items()
    )
    table = pd.read_csv(out / "table7.csv").set_index(["domain", "selector"])
    assert len(table) == 4 * 2
    assert (table["precision_ceiling"] == 1).all()
    assert table["recall_ceiling"].tolist() == pytest.approx([30 / 35] * 8)
    assert (
        table.loc[("average", "moore_lewis"), "recall"]
        > 0.7
        > 0.5
        > table.loc[("average", "random"), "recall"]
    )
    scores = pd.read_parquet(out / "sea" / "moore_lewis" / "scores").sort_values(
        "score", kind="stable"
    )
    assert len(scores) == 3 * 35, "a line is a unit, whatever stops are in it"
    best = scores.head(30)["source"].eq("sea").mean()
    assert table.loc[("sea", "moore_lewis"), "precision"] == pytest.approx(best)
