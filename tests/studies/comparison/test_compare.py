"""Comparison of selectors: the study, pools with plants, measures by hand, the page."""

import shutil
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from dana.core.errors import ConfigError, DataError
from dana.core.schemas import Document
from dana.models.ngram.kneser_ney import train_ngrams
from dana.models.ngram.vocabulary import Vocabulary
from dana.report.page import to_html, to_markdown
from dana.scoring.scoring import Scoring
from dana.scoring.settings import Selection
from dana.stages.settings import RunSettings
from dana.studies.comparison.measures import (
    PoolWords,
    best_documents,
    budget_measures,
    planted_precision,
    precision_interval,
    ranking_measures,
    score_pool,
)
from dana.studies.comparison.page import comparison_report
from dana.studies.comparison.planting import (
    PLANTED,
    choose_documents,
    cut_to,
    is_lower_cased,
    normalise_surface,
    planted_pool_of,
    shares_of,
    split_texts,
)
from dana.studies.comparison.settings import CompareSettings
from dana.studies.comparison.stage import run_compare
from tests.studies.comparison.toy_texts import BAKING, OTHERS, sentence, write_texts

SELECTORS = ["random", "detector:knn", "oracle"]
COMPARE = {"selectors": SELECTORS, "fit": [40, 5000], "seeds": 2, "plants": 40, "others": 150}
COMPARE["budgets"] = ["0.1", "30 documents"]


def settings_for(folder, **changes):
    bread, pool = write_texts(folder)
    settings = CompareSettings(**{**COMPARE, "tasks": [str(bread)], **changes})
    selection = Selection(encoder="hashing:dims=64,words=1")
    return RunSettings(
        out=str(folder / "out"), pool=[str(pool)], compare=settings, selection=selection
    )


@pytest.fixture(scope="module")
def comparison(tmp_path_factory):
    settings = settings_for(tmp_path_factory.mktemp("compare"))
    path = run_compare(settings)
    return settings, path, pd.read_csv(path, dtype={"budget": str}, keep_default_na=False)


def mean_of(table, metric, selector, budget=""):
    rows = (
        (table["metric"] == metric) & (table["selector"] == selector) & (table["budget"] == budget)
    )
    return table["value"][rows].mean()


def test_the_table_has_a_row_for_each_seed_selector_budget_and_metric(comparison):
    table = comparison[2]
    assert list(table) == ["task", "fit", "seed", "selector", "budget", "metric", "detail", "value"]
    assert not table.duplicated(list(table)[:-1]).any()
    assert set(table["fit"]) == {40}, "5,000 texts to fit on are not there"
    assert (table.groupby(["selector", "budget", "metric", "detail"])["seed"].nunique() == 2).all()
    assert set(table["budget"]) == {"", "0.1", "30 documents"}


def test_the_detector_finds_what_chance_does_not_and_the_oracle_all(comparison):
    precision = {name: mean_of(comparison[2], "precision_at_r", name) for name in SELECTORS}
    assert precision["oracle"] == 1
    assert precision["random"] < 0.4 < 0.8 < precision["detector:knn"]
    assert mean_of(comparison[2], "precision", "oracle", "30 documents") == 1
    perplexity = {
        name: mean_of(comparison[2], "perplexity", name, "30 documents") for name in SELECTORS
    }
    assert perplexity["random"] > perplexity["detector:knn"]


def test_the_summary_has_intervals_over_documents_and_what_it_cost(comparison):
    rows = pd.read_csv(comparison[1].with_name("summary.csv")).set_index("selector")
    assert rows["precision_at_r"].between(rows["low"], rows["high"]).all()
    assert rows.loc["random", "low"] < rows.loc["random", "high"]
    assert (rows.loc[["random", "detector:knn"], "seconds_per_million"] > 0).all()
    assert (
        rows.loc["oracle", "perplexity@30 documents"]
        < rows.loc["random", "perplexity@30 documents"]
    )
    assert rows["seeds"].tolist() == [2, 2, 2]


def test_again_nothing_is_made_anew_and_the_table_has_the_same_bytes(comparison, tmp_path):
    settings, path, _ = comparison
    before = path.read_bytes()
    times = {file: file.stat().st_mtime_ns for file in path.parent.rglob("manifest.json")}
    assert run_compare(settings).read_bytes() == before
    assert {file: file.stat().st_mtime_ns for file in path.parent.rglob("manifest.json")} == times
    elsewhere = run_compare(settings_for(tmp_path)).read_text().replace(str(tmp_path), "")
    assert elsewhere == before.decode().replace(str(path.parent.parent), "")


def test_a_scoring_that_was_killed_has_no_cost(comparison, tmp_path, monkeypatch):
    _, path, _ = comparison
    [target] = path.parent.glob("*/40-0/target")
    folder = tmp_path / "scores"

    def score():
        pool = target.parent.parent / "pool"
        selection = Selection(encoder="hashing:dims=64,words=1")
        return score_pool(target, pool, "random", "knn", selection, folder)

    def kill(*args):
        raise KeyboardInterrupt

    (tmp_path / "cost.json").write_text("{}")  # of other settings
    with monkeypatch.context() as patch:
        patch.setattr(Scoring, "score", kill)
        with pytest.raises(KeyboardInterrupt):
            score()
    score()
    assert not (tmp_path / "cost.json").exists()


def test_a_comparison_whose_scorings_were_all_killed_has_a_page(comparison, tmp_path):
    settings, path, _ = comparison
    shutil.copytree(path.parent, tmp_path / "out")
    for cost in (tmp_path / "out").rglob("cost.json"):
        cost.unlink()
    copy = replace(settings, out=str(tmp_path / "out"))
    summary = pd.read_csv(run_compare(copy).with_name("summary.csv"))
    assert summary["seconds_per_million"].isna().all()


def test_a_source_as_the_task_is_not_in_its_pool(tmp_path):
    settings = settings_for(
        tmp_path, tasks=["source:sea"], selectors=["random"], others=40, plants=20
    )
    write_texts(tmp_path, documents=160)
    table = pd.read_csv(run_compare(settings), keep_default_na=False)
    assert set(table["detail"]) - {""} == {"sea (planted)", "law", "space"}


IS_PLANT = np.array([True, False, True, False, False, False, False, False])


def test_precision_at_r_and_auroc_of_a_ranking_by_hand():
    scores = np.array([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0])
    measures = ranking_measures(scores, IS_PLANT)
    assert measures["precision_at_r"] == 0.5  # of the two best one is a plant
    assert measures["auroc"] == pytest.approx(11 / 12)  # of 12 pairs one is the wrong way round
    assert measures["average_precision"] == pytest.approx((1 + 2 / 3) / 2)
    assert measures["chance"] == 0.25


def test_ties_earn_chance():
    assert planted_precision(np.zeros(8), IS_PLANT, 3) == pytest.approx(0.25)
    assert planted_precision(np.array([0.0, 1, 1, 1, 2, 2, 2, 2]), IS_PLANT, 2) == pytest.approx(
        (1 + 1 / 3) / 2
    )


def test_ceilings_are_what_the_oracle_earns():
    oracle = np.where(IS_PLANT, 0.0, 1.0)
    for count in (1, 2, 4, 8):
        measures = budget_measures(oracle, IS_PLANT, count)
        assert measures["precision"] == pytest.approx(measures["precision_ceiling"])
        assert measures["recall"] == pytest.approx(measures["recall_ceiling"])


def test_budgets_count_documents_shares_and_tokens():
    words = np.array([10, 20, 30, 40])
    scores = np.array([0.0, 1.0, 0.0, 2.0])
    reference = {
        "0.5": [0, 2],
        "3 documents": [0, 2, 1],
        "40 tokens": [0, 2],
        "39 tokens": [0],
        "1 tokens": [0],
    }
    assert {text: best_documents(scores, words, text).tolist() for text in reference} == reference
    for bad in (
        "0",
        "1.5",
        "many",
        "3 pages",
        "-2 documents",
        "nan",
        "inf tokens",
        "1e400 documents",
    ):
        with pytest.raises(ConfigError, match="budgets="):
            best_documents(scores, words, bad)


def test_length_of_the_selected_text():
    texts = ["one two three four five"] * 2 + ["six seven eight nine ten eleven twelve", "a b c"]
    measures = PoolWords(texts, ["one two three"]).measures(np.array([0, 1, 3]))
    assert measures["length_ratio"] == pytest.approx((13 / 3) / 5)
    assert (measures["selected_documents"], measures["selected_tokens"]) == (3, 13)


def test_perplexity_counts_unknown_words_and_ends_by_hand():
    texts = [
        "the cat sat",
        "the dog sat down",
        "a cat and a dog",
        "down sat the cat",
        "a dog and the cat fled",
    ]
    held_out = ["the newt sat", "a cat fled"]
    model = train_ngrams(
        texts[:3], 3, Vocabulary.of_words(["the", "cat", "sat", "dog", "down", "a", "and"])
    )
    steps = [model.log_probs(model.vocabulary.encode([text]))[1:] for text in held_out]
    assert [one.size for one in steps] == [4, 4]
    reference = 10 ** -np.concatenate(steps).mean()
    assert PoolWords(texts, held_out).measures(np.arange(3))["perplexity"] == pytest.approx(
        reference
    )


def test_the_interval_holds_the_precision_and_narrows_with_documents():
    random = np.random.default_rng(0)
    widths = []
    for size in (200, 3200):
        is_plant = random.random(size) < 0.2
        scores = [random.normal(size=size) - 1.5 * is_plant for _ in range(3)]
        mean = np.mean([planted_precision(one, is_plant, int(is_plant.sum())) for one in scores])
        low, high = precision_interval(scores, is_plant)
        assert low < mean < high
        widths.append(high - low)
    assert widths[1] < widths[0] / 3
    assert precision_interval([np.where(is_plant, 0.0, 1.0)], is_plant) == (1.0, 1.0)


def documents(vocabulary, count, source="task", sentences=1, seed=0, longest=40):
    random = np.random.default_rng(seed)

    def text():
        return " ".join(
            sentence(vocabulary, random, int(random.integers(6, longest))) for _ in range(sentences)
        )

    return [Document(f"{source}-{row}", source, text()) for row in range(count)]


def test_parts_share_no_text_and_no_near_duplicate():
    texts = documents(BAKING, 300)
    twins = [
        Document(f"twin-{row}", "task", f"{texts[row].text} Indeed.") for row in range(0, 300, 2)
    ]
    parts = split_texts([*texts, *twins], False, 60, "toy")
    assert len(parts["plants"]) == 60
    assert len(parts["held_out"]) == 30
    ids = {
        name: {row.doc_id.split("-")[1] for row in parts[name]}
        for name in ("plants", "held_out", "fit")
    }
    assert not ids["plants"] & ids["held_out"]
    assert not (ids["plants"] | ids["held_out"]) & ids["fit"]
    assert len(ids["plants"]) == 60  # no two plants are twins


def test_of_a_large_group_of_near_duplicates_no_text_is_planted():
    same = "the dough of the oven and the flour of the yeast"
    words = [f"{one}{other}" for one in "abcdefghij" for other in "abcdefghij"]
    texts = [
        Document(f"copy-{row}", "task", f"{same} {word} again") for row, word in enumerate(words)
    ]
    parts = split_texts([*documents(BAKING, 120), *texts], False, 20, "toy")
    assert not [
        row for row in [*parts["plants"], *parts["held_out"]] if row.doc_id.startswith("copy")
    ]
    assert sum(row.doc_id.startswith("copy") for row in parts["fit"]) == 100


def pool():
    return [
        row
        for name, words in OTHERS.items()
        for row in documents(words, 120, name, 8, len(name), 60)
    ]


def test_pieces_have_the_lengths_of_the_plants_and_come_evenly_from_the_sources():
    planted = planted_pool_of(documents(BAKING, 90, longest=25), pool(), False, 300, "en")
    assert {name: sum(row.source == name for row in planted) for name in OTHERS} == dict.fromkeys(
        OTHERS, 100
    )
    words = pd.DataFrame(
        [(row.source.endswith(PLANTED), len(row.text.split())) for row in planted],
        columns=["plant", "n"],
    )
    others, plants = (
        part.quantile(np.arange(0.1, 1, 0.1)) for _, part in words.groupby("plant")["n"]
    )
    assert (plants - others).abs().max() <= 2


def test_a_small_source_gives_all_it_has_and_the_others_the_rest():
    assert shares_of({"small": 5, "one": 100, "two": 100}, 65) == {"small": 5, "one": 30, "two": 30}
    with pytest.raises(DataError, match="others=300: must be at most 205"):
        shares_of({"small": 5, "one": 100, "two": 100}, 300)


def test_documents_are_long_enough_and_taken_once():
    sizes = np.array([5, 50, 9, 30, 12])
    rows = choose_documents(sizes, np.array([40, 10, 25]), "any")
    assert len(set(rows)) == 3
    assert all(sizes[rows] >= [40, 10, 25])
    assert choose_documents(sizes, np.array([99]), "any")[0] == 1  # none is: the longest


def test_a_piece_is_whole_sentences_where_they_fit_and_words_where_none_does():
    text = "One two three four five six. Seven eight nine. Ten."
    assert cut_to(text, 3) == "Seven eight nine."
    assert cut_to(text, 4) == "Seven eight nine. Ten."
    assert cut_to("One two three four five six seven.", 3) == "One two three"
    assert cut_to("One two.", 9) == "One two."


def test_neither_name_nor_place_tells_a_plant():
    plants = documents(BAKING, 40)
    planted = planted_pool_of(plants, pool(), False, 160, "en")
    positions = [position for position, row in enumerate(planted) if row.source == f"task{PLANTED}"]
    assert len(positions) == 40
    assert 60 < np.mean(positions) < 140
    assert not {row.doc_id for row in planted} & {row.doc_id for row in plants}
    assert [row.doc_id for row in planted] == sorted(row.doc_id for row in planted)


def test_without_a_number_a_small_pool_gives_all_its_documents():
    plants = documents(BAKING, 40)
    planted = planted_pool_of(plants, pool(), False, None, "en")
    assert planted == planted_pool_of(plants, pool(), False, len(pool()), "en")
    with pytest.raises(DataError, match="others=6000: must be at most"):
        planted_pool_of(plants, pool(), False, 6000, "en")


def test_a_piece_with_the_words_of_a_plant_is_left_out():
    plants, others = (
        documents(BAKING, 40, longest=7),
        documents(BAKING, 40, "copies", longest=7),
    )  # of six words each
    assert len(planted_pool_of(plants, others, False, 40, "en")) == 40


@pytest.mark.parametrize(
    ("as_distributed", "plain"),
    [
        (
            "<< EGFR >> inhibitors ( [[ gefitinib ]] ) , 12.5 mg .",
            "EGFR inhibitors (gefitinib), 12,500 mg.",
        ),
        (
            "The @ - to @-month rate was @.@ % ( p < @ ) .",
            "The 3 - to 6-month rate was 4.5% (p < 0.05).",
        ),
        ("he said `` it 's sure they do n't '' -- yes .", "he said “it’s sure they don't” — yes."),
        ("<e1>cats</e1> &amp; -LRB- dogs -RRB-", "cats & (dogs)"),
    ],
)
def test_text_as_a_task_distributes_it_and_as_people_write_it_become_the_same(
    as_distributed, plain
):
    assert normalise_surface(as_distributed) == normalise_surface(plain)


def test_all_is_lower_cased_where_the_task_is():
    assert is_lower_cased(["a film of some wit", "no plot at all"])
    assert not is_lower_cased(["A film of some wit.", "No plot at all."])
    assert normalise_surface("A Film", lower=True) == "a film"


SCORES = {"random": 0.1, "near": 0.6, "nearer": 0.7, "oracle": 1.0}


def frames():
    summary, rows = [], []
    for task in ("one", "two"):
        for selector, score in SCORES.items():
            recall = {
                "precision_at_r": score,
                "low": score - 0.05,
                "high": score + 0.05,
                "chance": 0.08,
            }
            cost = {} if selector == "oracle" else {"fit_seconds": 1.5, "seconds_per_million": 40.0}
            labels = {"task": task, "fit": 100, "selector": selector}
            summary.append({**labels, **recall, **cost})
            values = {
                "perplexity": 200 - 100 * score,
                "precision": score,
                "recall": score / 2,
                "length_ratio": 1.0,
            }
            values |= {"precision_ceiling": 1.0, "recall_ceiling": 0.5}
            for metric, value in values.items():
                rows.append(
                    {
                        **labels,
                        "seed": 0,
                        "budget": "0.05",
                        "metric": metric,
                        "detail": "",
                        "value": value,
                    }
                )
            for source, share in (("law", 1 - score), (f"{task} (planted)", score)):
                row = {
                    "seed": 0,
                    "budget": "0.05",
                    "metric": "source_share",
                    "detail": source,
                    "value": share,
                }
                rows.append({**labels, **row})
    return pd.DataFrame(rows), pd.DataFrame(summary)


def test_the_best_contestant_is_named_and_the_oracle_is_none():
    report = comparison_report("mine", *frames())
    assert report.verdict.startswith("nearer ")
    assert {"0.700", "near", "0.600."} <= {*report.verdict.split()}
    text = to_markdown(report)
    assert "| nearer | 0.700 | 1.50 | 40 |" in text
    assert "| two | 100 | nearer | 0.700 | 0.65 | 0.75 |" in text
    assert "recall at most 50.0 %" in text
    assert "planted target text" in to_html(report)
