"""Translators: the shared vocabulary, chosen text, training pass by pass, translation."""

import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file
from toy_translation import toy_settings
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from dana.core.artifacts import make
from dana.core.errors import ArtifactError, ConfigError, DataError
from dana.core.schemas import iterate_documents
from dana.models.folder import uncut
from dana.stages.training import TrainingData, TrainingJob, run_job
from dana.studies.translation import translator
from dana.studies.translation.pairs import open_pairs, pairs_stage
from dana.studies.translation.translator import (
    choice_stage,
    chosen_model,
    corpus_measures,
    new_translator,
    signatures,
    target_loss,
    text_stage,
    train_stage,
    training_settings,
    translate,
    translate_stage,
    vocabulary_stage,
)
from dana.train.settings import AdaptSettings
from tests.stages.test_launches import ADAPT_RECIPE, TWO, launch, write_run, zero
from tests.stages.tiny_training import adapt, assert_same_weights


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("translation")


@pytest.fixture(scope="module")
def settings(folder):
    return toy_settings(folder)


@pytest.fixture(scope="module")
def pairs(folder, settings):
    return pairs_stage(settings, folder / "pairs").path


@pytest.fixture(scope="module")
def vocabulary(folder, settings, pairs):
    return vocabulary_stage(
        pairs, settings.domains, settings.vocabulary, folder / "vocabulary"
    ).path


@pytest.fixture(scope="module")
def tokenizer(vocabulary):
    return AutoTokenizer.from_pretrained(vocabulary)


@pytest.fixture(scope="module")
def texts(folder, settings, pairs, vocabulary):
    """Folders of training and development text of the kitchen."""
    stages = {}
    for split in ("train", "dev"):
        arguments = (pairs, vocabulary, ["kitchen"], split, settings.max_tokens)
        stages[split] = text_stage(*arguments, folder / split / "kitchen").path
    return stages


def test_the_vocabulary_is_the_same_again_and_only_a_tab_is_a_tab(
    settings, pairs, vocabulary, tokenizer, tmp_path
):
    again = vocabulary_stage(pairs, settings.domains, settings.vocabulary, tmp_path / "again").path
    assert (again / "tokenizer.json").read_bytes() == (vocabulary / "tokenizer.json").read_bytes()
    assert len(tokenizer) == settings.vocabulary
    tab, end = tokenizer.get_vocab()["\t"], tokenizer.eos_token_id
    ids = uncut(tokenizer).encode("der Äpfel </s> rot\tthe 😀 red", add_special_tokens=False).ids
    assert ids.count(tab) == 1
    assert end not in ids, "a mark in the text is text"
    parts = [
        tokenizer.decode(part).strip()
        for part in (ids[: ids.index(tab)], ids[ids.index(tab) + 1 :])
    ]
    assert parts == ["der Äpfel </s> rot", "the 😀 red"]


def test_text_is_source_tab_target_and_long_pairs_are_left_out(
    pairs, vocabulary, texts, tokenizer, tmp_path
):
    frame = open_pairs(pairs, "kitchen", "train")
    documents = list(iterate_documents(texts["train"]))
    assert [one.text for one in documents] == (frame["source"] + "\t" + frame["target"]).tolist()
    assert {one.source for one in documents} == {"kitchen"}
    lengths = np.array([len(tokenizer(one.text)["input_ids"]) + 1 for one in documents])
    short = text_stage(
        pairs, vocabulary, ["kitchen"], "train", int(np.median(lengths)), tmp_path / "short"
    )
    counts = short.manifest["counts"]
    kept = lengths[lengths <= np.median(lengths)]
    assert counts == {"pairs": kept.size, "tokens": kept.sum(), "too_long": 20 - kept.size}
    with pytest.raises(DataError, match="max_tokens=4"):
        text_stage(pairs, vocabulary, ["kitchen"], "train", 4, tmp_path / "none")


def write_scores(folder, table):
    def write(draft):
        table.to_parquet(draft.path / "part-00000.parquet")

    return make(folder, "scores", {"scores": table["score"].tolist()}, write).path


def test_the_best_scores_are_chosen_within_the_tokens_and_ties_are_random(
    settings, pairs, vocabulary, tmp_path
):
    ids = [f"{name}-train-{row}" for name in settings.domains for row in range(20)]
    ascending = pd.DataFrame({"doc_id": ids[::-1], "score": np.arange(40.0)})
    choices = {}
    for name, scores in {"ascending": ascending, "ties": ascending.assign(score=0.0)}.items():
        arguments = (pairs, vocabulary, write_scores(tmp_path / name, scores), "kitchen", settings)
        choices[name] = choice_stage(*arguments, tmp_path / f"{name}-choice")
    names = [one.doc_id for one in iterate_documents(choices["ascending"].path)]
    assert names == ids[-len(names) :], "in the order of the text"
    whole = text_stage(pairs, vocabulary, settings.domains, "train", 80, tmp_path / "all").manifest[
        "counts"
    ]["tokens"]
    tokens = choices["ascending"].manifest["counts"]["tokens"]
    assert 0.25 * whole - 80 < tokens <= 0.25 * whole
    measures = choices["ascending"].manifest["choice"]
    assert measures["precision"] == 1
    assert measures["recall"] == measures["recall_ceiling"] == len(names) / 20
    names = [one.doc_id for one in iterate_documents(choices["ties"].path)]
    hits, measures = sum("kitchen" in one for one in names), choices["ties"].manifest["choice"]
    expected = {"precision": hits / len(names), "recall": hits / 20, "precision_ceiling": 1.0}
    assert measures == pytest.approx(expected | {"recall_ceiling": len(names) / 20})
    assert 0 < measures["precision"] < 1
    oracle = choice_stage(pairs, vocabulary, None, "garden", settings, tmp_path / "oracle")
    with pytest.raises(ArtifactError, match="seed: 17 there, 18 now"):
        choice_stage(
            pairs, vocabulary, None, "garden", replace(settings, seed=18), tmp_path / "oracle"
        )
    assert {one.source for one in iterate_documents(oracle.path)} == {"garden"}


def test_passes_are_one_long_run_and_the_best_of_them_is_chosen(
    settings, pairs, vocabulary, tokenizer, texts, folder
):
    arguments = (texts["train"], texts["dev"], pairs, vocabulary, "kitchen", settings)
    trained = train_stage(*arguments, folder / "translators" / "kitchen")
    history = pd.read_csv(trained.path / "history.csv")
    assert history["epoch"].tolist() == [1, 2]
    assert history["loss"].is_monotonic_decreasing, "it learns"
    best = history.sort_values(["bleu", "loss"], ascending=[False, True]).iloc[0]
    model = chosen_model(trained.path)
    assert model.name == f"epoch-{best['epoch']:.0f}"
    steps = -(-trained.manifest["counts"]["tokens"] // settings.batch_tokens)
    data = TrainingData(texts["train"], None, texts["dev"], texts["dev"])
    long = training_settings(settings, 2, steps)
    job = TrainingJob("new", lambda: new_translator(tokenizer, settings), data, long)
    straight = run_job(job, {}, folder / "straight" / "model").path
    one, other = (
        load_file(path / "model.safetensors")
        for path in (straight, trained.path.parent / "epoch-2")
    )
    assert all(torch.equal(value, other[name]) for name, value in one.items())
    assert (
        train_stage(*arguments, folder / "translators" / "kitchen").fingerprint
        == trained.fingerprint
    )


@pytest.mark.slow
def test_patience_ends_the_training(settings, pairs, vocabulary, texts, folder, monkeypatch):
    bleus = iter([2.0, 3.0, 1.0, 2.5, 9.0])
    measure = translator.corpus_measures
    monkeypatch.setattr(
        translator, "corpus_measures", lambda *texts: {**measure(*texts), "bleu": next(bleus)}
    )
    patient = replace(settings, patience=2, epochs=9)
    arguments = (texts["train"], texts["dev"], pairs, vocabulary, "kitchen", patient)
    artifact = train_stage(*arguments, folder / "patient")
    assert pd.read_csv(artifact.path / "history.csv")["bleu"].tolist() == [2.0, 3.0, 1.0, 2.5]
    assert chosen_model(artifact.path).name == "epoch-2"


def test_a_translation_does_not_depend_on_the_others_and_a_folder_opens_without_dana(
    settings, tokenizer, tmp_path
):
    model = new_translator(tokenizer, settings).model
    with torch.no_grad():
        for name, value in model.named_parameters():
            value.mul_(8.0 if value.ndim > 1 and "layers" in name else 1.0)
    sources = ["Satz eins", "alt rot Suppe und noch ein Satz", "leer"]
    for beams, most in ((1, 12), (3, 12), (1, 80), (3, 80)):
        together = translate(model, tokenizer, sources, beams, most)
        assert together == [
            translate(model, tokenizer, [one], beams, most)[0] for one in sources
        ], "nor does its limit"
        assert len(set(together)) > 1
        assert not any("<pad>" in one or "\t" in one for one in together)
    model.save_pretrained(tmp_path)
    opened = AutoModelForSeq2SeqLM.from_pretrained(tmp_path)
    assert translate(opened, tokenizer, sources, 3, 12) == translate(
        model, tokenizer, sources, 3, 12
    )
    pads = model.config.pad_token_id, model.config.decoder_start_token_id
    assert pads == (tokenizer.pad_token_id, tokenizer.pad_token_id)


def test_the_loss_of_a_target_token_is_that_of_transformers(settings, pairs, tokenizer):
    model, table = (
        new_translator(tokenizer, settings).model.eval(),
        open_pairs(pairs, "garden", "test"),
    )
    sums = counts = 0
    for row in table.itertuples():
        ids = [
            uncut(tokenizer).encode(text, add_special_tokens=False).ids
            for text in (row.source, row.target)
        ]
        source, labels = (torch.tensor([[*part, tokenizer.eos_token_id]]) for part in ids)
        with torch.no_grad():
            sums += float(model(input_ids=source, labels=labels).loss) * labels.numel()
        counts += labels.numel()
    assert target_loss(model, tokenizer, table, settings) == pytest.approx(sums / counts, rel=1e-5)


def test_test_text_is_translated_measured_and_stored(
    settings, pairs, vocabulary, tokenizer, texts, folder
):
    arguments = (texts["train"], texts["dev"], pairs, vocabulary, "kitchen", settings)
    trained = train_stage(*arguments, folder / "translators" / "kitchen")
    how = ("test", replace(settings, test_pairs=3), folder / "test")
    artifact = translate_stage(trained.path, pairs, ["garden"], *how)
    assert chosen_model(trained.path) == chosen_model(chosen_model(trained.path))
    table = pd.read_parquet(artifact.path / "translations.parquet")
    assert table["reference"].tolist() == open_pairs(pairs, "garden", "test")["target"].tolist()[:3]
    measures = artifact.manifest["measures"]
    expected = corpus_measures(table["translation"].tolist(), table["reference"].tolist())
    assert {name: measures[name] for name in expected} == expected
    assert corpus_measures(["the red tree is old"], ["the red tree is old"]) == {
        "bleu": pytest.approx(100),
        "chrf": 100,
    }
    assert artifact.manifest["depends_on"]["signatures"]["bleu"].startswith(
        "nrefs:1|case:mixed|eff:no|tok:13a"
    )


def test_without_sacrebleu_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sacrebleu.metrics", None)
    with pytest.raises(ConfigError, match=r"needs sacrebleu: pip install 'sacrebleu>="):
        signatures()


@pytest.mark.slow
@pytest.mark.parametrize("stage", [0, 2, 3])
def test_two_processes_give_the_translator_of_one(
    settings, tokenizer, texts, write_corpus, tmp_path, stage
):
    base, out = tmp_path / "base", tmp_path / "launched"
    inputs = [
        write_corpus(part, [row.text for row in iterate_documents(texts[split])])
        for part, split in (("pool", "train"), ("task", "dev"), ("held_out", "dev"))
    ]
    model = new_translator(tokenizer, replace(settings, dropout=0.0))
    model.model.save_pretrained(base)
    tokenizer.save_pretrained(base)
    objective = "translation:smoothing=0.1"
    training = AdaptSettings(
        objective=objective,
        steps=4,
        learning_rate=2e-5,
        batch_size=16,
        max_tokens=settings.max_tokens,
        evaluations=1,
    )
    outcome = launch(
        zero(stage) if stage else TWO,
        ADAPT_RECIPE,
        *write_run(str(base), inputs, out, training, {}),
    )
    assert outcome.returncode == 0, outcome.stderr
    one = adapt(base, inputs, tmp_path / "one", training).path
    assert_same_weights(one, out)
    before, after = (load_file(folder / "model.safetensors") for folder in (base, one))
    assert any(not torch.equal(before[name], value) for name, value in after.items())
