"""Scripts of recipes/papers: published numbers beside runs, mixtures of sources, perplexities on made-up books."""

import gzip
import sys
from importlib import util
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from toy_task import FILLERS, SIGNS, write_checkpoint, write_task

from dana.core.artifacts import make
from dana.core.schemas import DOCUMENTS, Document, iterate_documents, write_parts
from dana.corpus.documents import document_tables

PAPERS = Path(__file__).parent.parent / "recipes" / "papers"
MANSION = "the governess crossed a cold hall and heard her master laugh behind the door of an attic"
HARBOUR = "a sailor climbed the mast while grey waves broke over the deck and gulls cried above him"


def script(name):
    spec = util.spec_from_file_location(f"paper_{Path(name).name}", PAPERS / f"{name}.py")
    module = sys.modules[spec.name] = util.module_from_spec(spec)  # where dataclasses look for it
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def runs(tmp_path):
    """Two runs; dana gains 1, 2 and 3 points over base on three tasks of the paper."""
    gains = {
        "one": {"chemprot": 0.01, "acl_arc": 0.02},
        "two": {"agnews": 0.02, "csabstruct": 0.03},
    }
    for run, gain in gains.items():
        rows = [
            {
                "task": task,
                "arm": arm,
                "metric": metric,
                "seed": seed,
                "value": 0.5 + 0.01 * seed + of_arm,
            }
            for task in gain
            for arm, of_arm in (("base", 0.0), ("dana", gain[task]), ("mine", -0.02))
            for metric in ("score", "accuracy")
            for seed in (0, 1, 2)
        ]
        (tmp_path / run).mkdir()
        pd.DataFrame([*rows, {"metric": "losses.task", "value": 7.0}]).to_csv(
            tmp_path / run / "results.csv"
        )
    return [tmp_path / run for run in gains]


def test_gains_correlate_as_printed_and_as_meant(runs):
    tables = script("dana/tables")
    paper = tables.read_published(PAPERS / "dana")
    six, table = tables.correlate_gains(
        tables.compare_with_paper(tables.read_runs(runs), paper), paper
    )
    assert six["ours"].dropna().round(6).to_dict() == {"ACL-ARC": 2, "AGNews": 2, "ChemProt": 1}
    rows = table.set_index(["gain", "of"])
    assert rows.loc[("DANA", "domain corpus, printed"), "pearson"] == pytest.approx(0.60, abs=0.005)
    assert rows.loc[("DANA", "domain corpus, meant"), "pearson"] == pytest.approx(0.01, abs=0.005)
    assert rows.loc[("ours", "domain corpus, meant"), "tasks"] == 3


def test_a_mixture_has_the_shares_that_it_says_and_no_two_are_alike(tmp_path):
    sources = ("law", "news", "verse")
    documents = [
        Document(f"{source}-{n}", source, "x" * 100) for source in sources for n in range(400)
    ]

    def write(draft):
        draft.counts["by_source"] = {source: {} for source in sources}
        write_parts(document_tables(documents), draft.path, DOCUMENTS)

    def sample(number, name):
        return script("dana/figure2").sample_mixture(pool, number, 0, 30_000, tmp_path / name)

    pool = make(tmp_path / "pool", "pool", {}, write).path
    mixtures = [sample(number, str(number)) for number in (0, 1)]
    for mixture in mixtures:
        texts, shares = list(iterate_documents(mixture.path)), mixture.manifest["shares"]
        assert sum(shares.values()) == pytest.approx(1, abs=0.001)
        assert len({document.doc_id for document in texts}) == len(texts)
        for source, share in shares.items():
            characters = sum(len(document.text) for document in texts if document.source == source)
            assert characters == pytest.approx(min(share * 30_000, 40_000), abs=100)
    assert mixtures[0].manifest["shares"] != mixtures[1].manifest["shares"]
    assert list(iterate_documents(sample(0, "again").path)) == list(
        iterate_documents(mixtures[0].path)
    )


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """A task card, a pool of two sources, and a small model that knows their words."""
    monkeypatch.setenv("DANA_DATA", str(tmp_path))
    random, pool = np.random.default_rng(0), []
    for source, words in SIGNS.items():
        texts = [" ".join(random.choice([*FILLERS, *words], 40)) + "." for _ in range(60)]
        pool.append(tmp_path / f"{source}.txt")
        pool[-1].write_text("\n".join(texts), encoding="utf-8")
    model = write_checkpoint(tmp_path / "model", max_position_embeddings=128)
    return [
        "--pool",
        *map(str, pool),
        "--model",
        str(model),
        "--out",
        str(tmp_path / "out"),
    ], write_task(tmp_path)


def test_figure_2_is_drawn_from_losses_and_probes_of_every_mixture_and_resumes(
    toy, tmp_path, capsys
):
    words, card = toy
    command = [*words, "--tasks", str(card), "--mixtures", "3", "--tokens", "1500", "--probe", "60"]
    assert script("dana/figure2").main([*command, "--dry-run"]) == 0
    assert "3 models on 1,500 tokens" in capsys.readouterr().out
    assert not (tmp_path / "out").exists()
    for _ in range(2):
        assert script("dana/figure2").main(command) == 0
        points = pd.read_csv(tmp_path / "out" / "points.csv")
        assert points["mixture"].tolist() == [0, 1, 2]
        assert points["pool_loss"].nunique() == points["target_loss"].nunique() == 3
        assert points["score"].between(0.3, 1).all(), "of three balanced classes"
        printed = capsys.readouterr()
    assert "written" not in printed.err, "the second call trains nothing"
    correlation = points["score"].corr(points["target_loss"])
    expected = "NaN" if np.isnan(correlation) else f"{correlation:.2f}"  # of equal scores
    assert expected in printed.out
    assert (tmp_path / "out" / "figure2.png").stat().st_size > 5000


def test_figure_3_compares_a_pretrained_with_a_fine_tuned_encoder(toy, tmp_path, capsys):
    words, card = toy
    assert script("dana/figure3").main([*words, "--task", str(card), "--seeds", "2"]) == 0
    table = pd.read_csv(tmp_path / "out" / "figure3-none.csv", header=[0, 1], index_col=0)
    assert table.index.tolist() == ["pretrained", "fine-tuned"]
    assert (tmp_path / "out" / "figure3-none.png").stat().st_size > 5000
    assert "overlap" in capsys.readouterr().out
    apart = script("dana/figure3").compare_scores(np.arange(50.0), np.arange(50.0) + 100)
    assert apart == {"AUROC": 1, "KS": 1, "overlap": 0}
    same = script("dana/figure3").compare_scores(np.arange(50.0), np.arange(50.0))
    assert same == {"AUROC": 0.5, "KS": 0, "overlap": pytest.approx(1)}


@pytest.mark.parametrize("name", ["dana/tables", "genre/tables"])
def test_published_tables_are_printed_without_a_run_and_a_folder_without_results_is_one_line(
    name, tmp_path, capsys
):
    assert script(name).main([]) == 0
    assert {"dana/tables": "73.58", "genre/tables": "91.0"}[name] in capsys.readouterr().out
    assert script(name).main([str(tmp_path)]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert f"RUN='{tmp_path}'" in line


@pytest.fixture(scope="module")
def jane_eyre():
    return script("moore_lewis/jane_eyre")


def chains(text, count, seed):
    """Sentences in which most words have the same two or three words after them."""
    words, random, lines = text.split(), np.random.default_rng(seed), []
    for _ in range(count):
        start = int(random.integers(len(words)))
        steps = random.choice([1, 2, 5], 13, p=[0.5, 0.3, 0.2]).cumsum()
        sentence = [words[position % len(words)] for position in [start, *(start + steps)]]
        lines.append(" ".join(sentence).capitalize() + ".")
    return lines


def write_novel(path, sentences):
    paragraphs = [" ".join(sentences[start : start + 5]) for start in range(0, len(sentences), 5)]
    with gzip.open(path, "wt", encoding="utf-8") as stream:
        stream.write("\n\n".join(paragraphs))


def test_the_selected_curve_lies_under_the_random_one_and_they_meet(jane_eyre, tmp_path):
    novels, out = tmp_path / "novels", tmp_path / "out"
    novels.mkdir()
    write_novel(novels / "x-Jane_Eyre.txt.gz", chains(MANSION, 300, 0))
    write_novel(novels / "a.txt.gz", chains(HARBOUR, 900, 1) + chains(MANSION, 60, 2))
    write_novel(novels / "b.txt.gz", chains(MANSION, 60, 3) + chains(HARBOUR, 900, 4))
    assert jane_eyre.main([str(novels), "--out", str(out), "--dry-run"]) == 0
    assert not out.exists()
    jane_eyre.main([str(novels), "--out", str(out)])
    frame = pd.read_csv(out / "perplexities.csv")
    curves = {ranking: rows.reset_index() for ranking, rows in frame.groupby("ranking", sort=False)}
    assert list(curves) == ["cross_entropy", "perplexity", "random"]
    for ranking in ("cross_entropy", "perplexity"):
        ours, random = curves[ranking], curves["random"]
        assert ours["sentences"].tolist() == random["sentences"].tolist()
        assert (ours["perplexity"] < random["perplexity"]).tolist() == [True] * 9 + [False]
        assert ours["perplexity"][9] == random["perplexity"][9]
    assert {path.name for path in out.iterdir()} == {
        "perplexities.csv",
        "perplexities.png",
        "differences.png",
    }


def test_tenths_are_disjoint_and_the_task_may_be_added(jane_eyre):
    task, pool = chains(MANSION, 60, 0), chains(HARBOUR, 100, 1) + chains(MANSION, 10, 2)
    study = jane_eyre.Study.of_texts(task, chains(MANSION, 20, 3), pool)
    order = np.arange(len(pool))[::-1]
    cuts, tenths = study.curve("x", order), study.curve("x", order, disjoint=True)
    assert [cut.sentences for cut in cuts] == list(range(11, 111, 11))
    assert [cut.sentences for cut in tenths] == [11] * 10
    assert sum(cut.words for cut in tenths) == cuts[-1].words
    assert tenths[0].perplexity == cuts[0].perplexity < tenths[-1].perplexity
    assert study.curve("x", order, plus_task=True)[-1].perplexity < cuts[-1].perplexity
