"""Adapt with words of the domain in the vocabulary: what is saved, opened, resumed and said."""

import json
import os
import shutil
import signal
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForMaskedLM, AutoTokenizer

from dana.core.artifacts import read_manifest
from dana.core.errors import ConfigError, Preemption
from dana.core.schemas import DOCUMENTS, read_table
from dana.models.folder import load_tokenizer, uncut
from dana.report.run import read_evaluations
from dana.report.tables import loss_table, loss_unit
from dana.train import run
from dana.train.hf_trainer import load_model
from dana.train.records import StepRecord
from dana.train.settings import AdaptSettings, Execution
from tests.conftest import write_documents
from tests.stages.tiny_training import ADAPT, adapt

NUMBER = 40
WORDS = replace(ADAPT, vocabulary=NUMBER)


@pytest.fixture(scope="session")
def own_inputs(tmp_path_factory, repository_texts):
    """Write a pool, target text to fit on and held out, and held-out pool text."""
    folder = tmp_path_factory.mktemp("own")
    write_documents(folder / "fit", repository_texts[:6])
    return [
        write_documents(folder / "pool", repository_texts[20:]),
        write_documents(folder / "target", repository_texts[6:10]),
        write_documents(folder / "held_out", repository_texts[10:20]),
    ]


@pytest.fixture(scope="session")
def adapted(base, own_inputs, tmp_path_factory):
    return adapt(base, own_inputs, tmp_path_factory.mktemp("words") / "out", WORDS).path


def texts_of(folder):
    return read_table(folder, DOCUMENTS.names)["text"].to_pylist()


def lengths(tokenizer, texts):
    return [len(row.ids) for row in uncut(tokenizer).encode_batch(texts, add_special_tokens=False)]


def test_transformers_opens_the_model_with_its_words(base, adapted, own_inputs):
    model, report = AutoModelForMaskedLM.from_pretrained(adapted, output_loading_info=True)
    tokenizer = AutoTokenizer.from_pretrained(adapted)
    before = AutoTokenizer.from_pretrained(base)
    assert not report["missing_keys"]
    assert len(tokenizer) == len(before) + NUMBER
    assert model.config.vocab_size == model.get_input_embeddings().weight.shape[0] == len(tokenizer)
    assert model.get_output_embeddings().bias.shape == (len(tokenizer),)
    texts = texts_of(own_inputs[0])
    old = lengths(before, texts)
    new = lengths(tokenizer, texts)
    assert all(after <= length for after, length in zip(new, old, strict=True))
    saved = read_manifest(adapted)["new_tokens"]["saved"]["pool"]
    assert 1 - sum(new) / sum(old) == pytest.approx(saved, abs=1e-9)
    assert saved > 0.005
    assert load_tokenizer(str(adapted))[1].get_vocab() == tokenizer.get_vocab()


def test_words_of_texts_without_labels_are_counted_where_these_are_trained_on(
    base, own_inputs, tmp_path
):
    pool, *held_out = own_inputs
    folder = tmp_path / "run"
    shutil.copytree(pool, folder / "unlabelled")
    write_documents(folder / "pool", texts_of(held_out[0]))
    settings = replace(WORDS, mix={"unlabelled": 1.0})
    made = adapt(base, [folder / "pool", *held_out], tmp_path / "out", settings)
    assert made.manifest["new_tokens"]["saved"]["pool"] > 0.005


def test_all_new_rows_are_trained_from_the_mean_of_their_pieces(base, own_inputs, tmp_path):
    still = replace(WORDS, learning_rate=1e-30, weight_decay=0.0)
    folder = adapt(base, own_inputs, tmp_path / "still", still).path
    rows = AutoModelForMaskedLM.from_pretrained(folder).get_input_embeddings().weight
    old = AutoModelForMaskedLM.from_pretrained(base).get_input_embeddings().weight
    tokenizer = AutoTokenizer.from_pretrained(folder)
    before = AutoTokenizer.from_pretrained(base)
    for number in range(len(before), len(tokenizer)):
        word = tokenizer.convert_ids_to_tokens(number)
        pieces = before(word, add_special_tokens=False)["input_ids"]
        assert len(pieces) > 1
        assert torch.allclose(rows[number], old[pieces].mean(0), atol=1e-6)
    assert torch.equal(rows[: len(before)], old)


def test_the_new_rows_are_trained(adapted, base):
    rows = load_file(adapted / "model.safetensors")["bert.embeddings.word_embeddings.weight"]
    old = load_file(base / "model.safetensors")["bert.embeddings.word_embeddings.weight"]
    tokenizer = AutoTokenizer.from_pretrained(adapted)
    before = AutoTokenizer.from_pretrained(base)
    moved = 0
    for number in range(len(before), len(tokenizer)):
        pieces = before(tokenizer.convert_ids_to_tokens(number), add_special_tokens=False)
        moved += not torch.equal(rows[number], old[pieces["input_ids"]].mean(0))
    assert moved > NUMBER / 2


def test_the_card_gives_losses_a_character(adapted):
    notes = read_manifest(adapted)
    card = (adapted / "README.md").read_text()
    first = json.loads((adapted / "training.jsonl").read_text().splitlines()[0])
    loss = first["target_loss"] / notes["characters_per_token"]["target"]
    assert f"{NUMBER} tokens more than that of the base" in card
    assert f"target {loss:.4f} before" in card


def test_words_come_from_target_and_pool_text_alone(base, own_inputs, tmp_path):
    """A word of the held-out texts, however frequent, is no candidate."""
    pool, target, _ = own_inputs
    planted = " ".join(["xylophonist"] * 300)
    folder = tmp_path / "planted"
    write_documents(folder / "fit", texts_of(target.parent / "fit"))
    inputs = [
        pool,
        write_documents(folder / "target", [planted + " " + texts_of(target)[0], planted]),
        write_documents(folder / "held_out", [planted + f" {number}" for number in range(3)]),
    ]
    path = adapt(base, inputs, tmp_path / "out", replace(WORDS, vocabulary=1000)).path
    assert "xylophonist" not in AutoTokenizer.from_pretrained(path).get_vocab()


def test_adapters_and_new_words_are_refused_together():
    with pytest.raises(ConfigError, match="vocabulary=10"):
        AdaptSettings(vocabulary=10, adapter="lora:r=2")


def test_without_words_the_fingerprint_is_that_of_before():
    assert "vocabulary" not in ADAPT.decisive()
    assert WORDS.decisive()["vocabulary"] == NUMBER


def test_a_stopped_run_goes_on_to_the_same_bytes(base, own_inputs, adapted, tmp_path, monkeypatch):
    def stop(accelerator, record):
        if isinstance(record, StepRecord) and record.step == 2:
            os.kill(os.getpid(), signal.SIGTERM)

    settings = replace(WORDS, execution=Execution(save_every=1))
    with monkeypatch.context() as context:
        context.setattr(run, "track", stop)
        with pytest.raises(Preemption):
            adapt(base, own_inputs, tmp_path / "out", settings)
    assert not (tmp_path / "out").exists()
    resumed = adapt(base, own_inputs, tmp_path / "out", settings).path
    for name in ("model.safetensors", "tokenizer.json", "tokenizer_config.json"):
        assert (resumed / name).read_bytes() == (adapted / name).read_bytes()


def test_a_report_compares_losses_a_character(base, adapted, own_inputs, tmp_path):
    """Where one arm has new words, the losses of all are divided by the length of a token."""
    plain = adapt(base, own_inputs, tmp_path / "plain", ADAPT).path
    folder = tmp_path / "run"
    shutil.copytree(plain, folder / "arms" / "random" / "adapted")
    alone = read_evaluations(folder)
    assert "unit" not in alone
    assert loss_unit(loss_table(alone)) == "token"
    shutil.copytree(adapted, folder / "adapted")
    both = read_evaluations(folder)
    assert set(both["unit"]) == {"character"}
    assert loss_unit(loss_table(both)) == "character"
    length = read_manifest(plain)["characters_per_token"]["target"]
    row = both[both["arm"] == "random"].iloc[0]
    assert row["target_loss"] == pytest.approx(alone.iloc[0]["target_loss"] / length)
    assert row["target_loss_se"] == pytest.approx(alone.iloc[0]["target_loss_se"] / length)


def test_a_base_without_a_head_gets_one_for_its_new_words(sentence_base, own_inputs, tmp_path):
    """As all-MiniLM is: the head is in a file of its own, and sentence-transformers opens the encoder."""
    path = adapt(sentence_base, own_inputs, tmp_path / "out", WORDS).path
    size = len(AutoTokenizer.from_pretrained(path))
    model = load_model(path)[0]
    assert model.get_output_embeddings().bias.shape == (size,)
    library = pytest.importorskip("sentence_transformers")
    encoder = library.SentenceTransformer(str(path))
    assert encoder.encode(["a text"]).shape == (1, 128)
    assert len(encoder.tokenizer) == size


def test_a_model_with_new_words_is_trained_further(adapted, own_inputs, tmp_path):
    further = adapt(adapted, own_inputs, tmp_path / "further", ADAPT).path
    assert (further / "tokenizer.json").read_text() == (adapted / "tokenizer.json").read_text()
    with pytest.raises(ConfigError, match="added tokens"):
        adapt(adapted, own_inputs, tmp_path / "again", WORDS)


def test_a_tokenizer_of_another_kind_is_refused_before_any_work(base, own_inputs, tmp_path):
    folder = tmp_path / "base"
    shutil.copytree(base, folder)
    file = folder / "tokenizer.json"
    state = json.loads(file.read_text())
    state["model"] = {
        "type": "WordLevel",
        "vocab": state["model"]["vocab"],
        "unk_token": "[UNK]",
    }
    file.write_text(json.dumps(state))
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config["tokenizer_class"] = "PreTrainedTokenizerFast"
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    with pytest.raises(ConfigError, match=r"WordLevel.*vocabulary at 0"):
        adapt(folder, own_inputs, tmp_path / "out", WORDS)
    assert not (tmp_path / "out").exists()
