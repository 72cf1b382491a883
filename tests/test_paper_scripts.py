"""Scripts of recipes/papers/dana: published numbers beside runs, and mixtures of sources with their correlations."""

from importlib import util
from pathlib import Path

import pandas as pd
import pytest

from dana.core.artifacts import make
from dana.core.schemas import DOCUMENTS, Document, iterate_documents, write_parts
from dana.corpus.documents import document_tables

FOLDER = Path(__file__).parent.parent / "recipes" / "papers" / "dana"


def script(name):
    spec = util.spec_from_file_location(f"paper_{name}", FOLDER / f"{name}.py")
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def runs(tmp_path):
    """Two runs; dana gains 1, 2 and 3 points over base on three tasks of the paper."""
    folders = []
    for name, tasks in (("one", ["chemprot", "acl_arc"]), ("two", ["agnews", "csabstruct"])):
        rows = [
            {"task": task, "arm": arm, "metric": metric, "seed": seed, "value": 0.5 + 0.01 * seed + gain}
            for position, task in enumerate(tasks)
            for arm, gain in (("base", 0.0), ("dana", 0.01 * (position + len(folders) + 1)), ("mine", -0.02))
            for metric in ("score", "accuracy")
            for seed in (0, 1, 2)
        ]
        (tmp_path / name).mkdir()
        pd.DataFrame([*rows, {"metric": "losses.task", "value": 7.0}]).to_csv(tmp_path / name / "results.csv")
        folders.append(tmp_path / name)
    return folders


def test_gains_correlate_as_printed_and_as_meant(runs):
    tables = script("tables")
    paper = tables.read_published(FOLDER)
    six, table = tables.correlate_gains(tables.compare_with_paper(tables.read_runs(runs), paper), paper)
    assert six["ours"].dropna().round(6).to_dict() == {"ACL-ARC": 2, "AGNews": 2, "ChemProt": 1}
    rows = table.set_index(["gain", "of"])
    assert rows.loc[("DANA", "domain corpus, printed"), "pearson"] == pytest.approx(0.60, abs=0.005)
    assert rows.loc[("DANA", "domain corpus, meant"), "pearson"] == pytest.approx(0.01, abs=0.005)
    assert rows.loc[("ours", "domain corpus, meant"), "tasks"] == 3


def test_a_mixture_has_the_shares_that_it_says_and_no_two_are_alike(tmp_path):
    texts = {"law": 400, "news": 400, "verse": 400}
    documents = [Document(f"{source}-{n}", source, "x" * 100) for source, many in texts.items() for n in range(many)]

    def write(draft):
        draft.counts["by_source"] = {source: {} for source in texts}
        write_parts(document_tables(documents), draft.path, DOCUMENTS)

    corpus = make(tmp_path / "corpus", "corpus", {}, write).path
    figure2 = script("figure2")
    mixtures = [figure2.sample_mixture(corpus, number, 0, 30_000, tmp_path / str(number)) for number in (0, 1)]
    chosen = [list(iterate_documents(each.path)) for each in mixtures]
    for each, documents_of in zip(mixtures, chosen, strict=True):
        assert sum(each.manifest["shares"].values()) == pytest.approx(1, abs=0.001)
        for source, share in each.manifest["shares"].items():
            characters = sum(len(document.text) for document in documents_of if document.source == source)
            assert characters == pytest.approx(min(share * 30_000, 40_000), abs=100)
    assert mixtures[0].manifest["shares"] != mixtures[1].manifest["shares"]
    again = figure2.sample_mixture(corpus, 0, 0, 30_000, tmp_path / "again").path
    assert list(iterate_documents(again)) == chosen[0]
    assert len({document.doc_id for document in chosen[0]}) == len(chosen[0])
