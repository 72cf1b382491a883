"""The README, the guide and the studies: every block of code runs as it is pasted."""

import re
import shlex
import shutil
from pathlib import Path

import pytest

from dana.cli.main import main
from tests.guide import ROOT, run_page, write_installed_texts, write_reader_files
from tests.present import needs_studies

pytestmark = [needs_studies, pytest.mark.slow]

FIRST = ROOT / "docs" / "guide" / "first-adaptation.md"
LARGE_POOL = ROOT / "docs/guide/large-pool.md"  # has its own files, in tests/test_large_pool.py
LATER = sorted(
    {*ROOT.glob("docs/guide/*.md"), *ROOT.glob("docs/studies/*.md")} - {FIRST, LARGE_POOL}
)
LATER.append(ROOT / "docs" / "reference" / "python.md")


@pytest.fixture(scope="session")
def small_model(tmp_path_factory, tiny_tokenizer):
    """A BERT of a tiny size whose tokenizer has pieces for any word."""
    from dana.models.language_model import new_encoder

    folder = tmp_path_factory.mktemp("model")
    new_encoder("bert", "tiny", tiny_tokenizer, dropout=0.0, seed=0).model.save_pretrained(folder)
    tiny_tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def small_decoder(tmp_path_factory, tiny_tokenizer):
    """A Llama of two tiny layers, with the same tokenizer."""
    from transformers import LlamaConfig, LlamaForCausalLM

    folder = tmp_path_factory.mktemp("decoder")
    shape = {
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
    }
    LlamaForCausalLM(LlamaConfig(vocab_size=len(tiny_tokenizer), **shape)).save_pretrained(folder)
    tiny_tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def first_adaptation(tmp_path_factory, small_model, repository_texts):
    """The folder in which a reader has followed the first page to its end."""
    folder = tmp_path_factory.mktemp("first")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write_reader_files(repository_texts)
        run_page(FIRST, small_model)
    return folder


def test_the_first_adaptation_leaves_what_its_page_names(first_adaptation):
    names = re.findall(r"`(tickets/\S+)`", FIRST.read_text(encoding="utf-8"))
    assert {"tickets/report.html"} <= {*names}
    assert [name for name in names if not (first_adaptation / name).exists()] == []
    assert (first_adaptation / "labelled.parquet").is_file()


@pytest.mark.parametrize("language", ["bash", "python"])
def test_the_readme_leads_from_a_table_to_a_verdict(language, tmp_path, monkeypatch, small_model):
    """In a fresh folder, without data of anyone's: from docstrings of installed packages."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DANA_DATA", raising=False)
    write_installed_texts()
    names = run_page(ROOT / "README.md", small_model, languages=[language])
    if language == "python":
        assert len(names["scores"]), "the example shows a table with rows"
    runs = {"bash": ["tickets"], "python": ["tickets-python"]}[language]
    for run in runs:
        page = (tmp_path / run / "report.md").read_text(encoding="utf-8")
        assert re.search("(better|worse|undecided)(.|\n)*TF-IDF", page), (
            "a verdict, and a baseline in it"
        )


@pytest.mark.parametrize("page", LATER, ids=lambda page: page.stem)
def test_every_block_of_the_page_runs(
    page, first_adaptation, small_model, small_decoder, tmp_path, monkeypatch, capsys
):
    if page.stem in (needs := {"scale": "datatrove", "decoders": "peft"}):
        pytest.importorskip(needs[page.stem])
    folder = tmp_path / "reader"
    shutil.copytree(first_adaptation, folder)
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    before = {path.name for path in folder.iterdir()}
    names = run_page(page, small_decoder if page.stem == "decoders" else small_model)
    files = re.findall(
        r"`((?:runs|splits|comparison)/[\w./-]+\.\w+)`", page.read_text(encoding="utf-8")
    )
    assert [file for file in files if not Path(file).exists()] == []
    if page.stem == "python":
        assert "task[1]: is NoneType, not a string: 'None'" in capsys.readouterr().out
        assert {path.name for path in folder.iterdir()} == before, "nothing is left beside runs/"
    if page.stem == "your-trainer":
        assert names["trainer"].state.global_step == 1
        assert len(names["best"]) == len(names["rows"]), "segments weigh 1"


SMALL = (
    "seeds.finetunings=2 finetune.epochs=1 finetune.max_tokens=32 "
    "adapt.steps=2 adapt.batch_size=4 adapt.max_tokens=32"
)
RUN = "--set {settings} allow_below_chance=true ranking.detectors=[knn] detector=knn weigh.gamma=2 weigh.min_tail=2"
PAPER_COMMANDS = {  # and what it writes
    "table1": ("score --rank-only {texts} ranking.detectors=[knn,pca] --out out", "ranking"),
    "table2": ("score {texts} --out out --selector detector:knn --allow-below-chance", "scores"),
    "table4": (f"run papers/dana/table4 {RUN}", "report.html"),
    "table5": (f"run papers/dana/table5 {RUN}", "arms/continuous/adapted/config.json"),
}


@pytest.mark.parametrize("name", PAPER_COMMANDS)
def test_the_tables_of_dana_run_at_a_small_size(
    name, first_adaptation, small_model, tmp_path, monkeypatch
):
    """Each YAML as it is, with a tiny model for BERT, untrained (so it may rank below chance), and few units."""
    shutil.copytree(first_adaptation, tmp_path / "reader")
    monkeypatch.chdir(tmp_path / "reader")
    encoder = f"selection.encoder=transformer:{small_model} selection.units=window:32"
    texts = f"--config papers/dana/{name} --task tickets.yaml --pool pool/ --set {encoder}"
    settings = f"task=tickets.yaml pool=[pool/] model={small_model} out=out {encoder} {SMALL}"
    line, file = PAPER_COMMANDS[name]
    assert main(shlex.split(line.format(texts=texts, settings=settings))) == 0
    assert Path("out", file).exists()
