"""What is known of selected text before a model is adapted on it: its loss, its words, and what the base has read."""

import math
from dataclasses import replace

import numpy as np
import pytest

from dana.core.artifacts import read_manifest
from dana.core.errors import ArtifactError
from dana.core.files import text_key
from dana.core.schemas import iterate_documents
from dana.models.known_text import FILE, read_known_text
from dana.report.gate import gate_text
from dana.stages.gate import gate_stage, word_distance
from tests.conftest import write_documents
from tests.stages.tiny_training import ADAPT, adapt


@pytest.fixture
def unit_weights(write_weights):
    """Write weights: the first documents count, ten others have weight 0."""
    return lambda count: write_weights(
        [(f"pool-{n}", 0, 0, 60, 0, float(n < count)) for n in range(count + 10)]
    )


def keys(*folders):
    return {text_key(document.text) for folder in folders for document in iterate_documents(folder)}


def test_a_model_lists_the_documents_that_it_was_trained_on(inputs, base, tmp_path, unit_weights):
    pool, task, held_out = inputs
    of_base = set(read_known_text(str(base)).tolist())
    assert of_base == keys(pool) - keys(task, held_out), "held-out text is not read"
    texts = [
        f"weights and losses of document number {number}, which no base has read {'so far ' * number}"
        for number in range(20)
    ]
    new = write_documents(tmp_path / "pool", texts)
    artifact = adapt(base, [new, task, held_out], tmp_path / "adapted", weights=unit_weights(5))
    assert artifact.manifest["known_to_base"] == 0
    known = read_known_text(str(artifact.path))
    assert set(known.tolist()) == of_base | set(map(text_key, texts[:5])), (
        "its base's, and those with a weight"
    )
    assert (np.diff(known.astype(object)) > 0).all(), "sorted, each once"
    again = adapt(artifact.path, [new, task, held_out], tmp_path / "again", weights=unit_weights(8))
    sizes = [len(text) for text in texts]
    assert again.manifest["known_to_base"] == pytest.approx(sum(sizes[:5]) / sum(sizes[:8]))
    whole = adapt(artifact.path, [new, task, held_out], tmp_path / "whole")
    assert whole.manifest["known_to_base"] == pytest.approx(sum(sizes[:5]) / sum(sizes))


def test_the_text_of_the_task_is_read_too(inputs, base, tmp_path):
    texts = ["a sentence of the task", "and a second one"]
    write_documents(tmp_path / "target" / "fit", texts)
    held_out = write_documents(
        tmp_path / "target" / "held_out", ["one of the held-out sentences of the task"]
    )
    settings = replace(ADAPT, steps=1, evaluations=0, mix={"task": 1.0})
    artifact = adapt(base, [inputs[0], held_out, inputs[2]], tmp_path / "adapted", settings)
    read = set(read_known_text(str(artifact.path)).tolist()) - set(
        read_known_text(str(base)).tolist()
    )
    assert read == set(map(text_key, texts))


def test_nothing_is_said_of_a_base_that_does_not_say_and_a_damaged_list_is_named(
    inputs, base, tmp_path
):
    unknown = tmp_path / "base"
    unknown.mkdir()
    for file in base.glob("*.*"):
        (unknown / file.name).write_bytes(file.read_bytes())
    (unknown / FILE).unlink()
    artifact = adapt(unknown, inputs, tmp_path / "adapted", replace(ADAPT, steps=1, evaluations=0))
    assert "known_to_base" not in artifact.manifest
    assert read_known_text(str(artifact.path)) is None
    for damage in (b"", b"\x93NUMPY garbage", (base / FILE).read_bytes()[:-3]):
        (unknown / FILE).write_bytes(damage)
        with pytest.raises(ArtifactError, match=FILE):
            adapt(unknown, inputs, tmp_path / "none")
    for wrong in (np.zeros(3), np.zeros((2, 2), np.uint64), np.array([{}])):
        np.save(unknown / FILE, wrong, allow_pickle=True)
        with pytest.raises(ArtifactError, match=FILE):
            adapt(unknown, inputs, tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_a_gate_measures_what_adapting_measures_before_its_first_step(
    inputs, base, tmp_path, unit_weights
):
    pool, task, held_out = inputs
    weights = unit_weights(30)
    write_documents(task.parent / "fit", ["weights and tokens of the task"])
    gate = gate_stage(str(base), pool, weights, task, held_out, ADAPT, tmp_path / "gate")
    adapted = adapt(base, inputs, tmp_path / "adapted", weights=weights)
    assert gate.manifest["base_losses"] == adapted.manifest["base_losses"]
    assert gate.manifest["known_to_base"] == adapted.manifest["known_to_base"] == 1
    assert gate.manifest["in_domain"] is None, "these weights were not estimated"
    assert 0 < gate.manifest["vocabulary"] <= 1
    again = gate_stage(
        str(base), pool, weights, task, held_out, replace(ADAPT, steps=9), tmp_path / "gate"
    )
    assert again.fingerprint == gate.fingerprint, "the training that follows does not matter"
    assert read_manifest(tmp_path / "gate")["seconds"] == gate.manifest["seconds"]
    other = gate_stage(str(base), pool, unit_weights(20), task, held_out, ADAPT, tmp_path / "other")
    assert other.manifest["base_losses"]["selected"] != gate.manifest["base_losses"]["selected"]


def test_the_distance_of_words_is_that_of_jensen_and_shannon(tmp_path):
    def distance(one, other):
        folders = [tmp_path / name for name in "ab"]
        return word_distance(*map(write_documents, folders, ([one], [other])))

    assert distance("The step, the step", "THE step") == pytest.approx(0, abs=1e-7)
    assert distance("step", "court") == pytest.approx(1)
    # half of M is (1/4 a, 1/2 b, 1/4 c): each has a divergence of 1/2 · log2(1/2 ÷ 1/4) + 1/2 ·
    # log2(1/2 ÷ 1/2) = 1/2
    assert distance("a b", "b c") == pytest.approx(math.sqrt(0.5))
    assert distance("a " * 20_000 + "b " * 20_000, "a") == pytest.approx(0), (
        "of each the first 20,000"
    )


@pytest.mark.parametrize(
    ("selected", "error", "words"),
    [
        (2.1, 0.1, "easier than random text of the pool (perplexity 8.2 against 30.0)"),
        (3.9, 0.1, "harder than random text of the pool (perplexity 49.4 against 30.0)"),
        (2.1, 0.7, "as hard as random text of the pool (perplexity 8.2 against 30.0)"),
    ],
)
def test_the_sentence_on_the_base_says_which_text_is_harder_and_leaves_out_what_is_unknown(
    selected, error, words
):
    losses = {"selected": selected, "selected_se": error, "random": 3.4, "random_se": None}
    text = gate_text({"base_losses": losses, "known_to_base": 0.125})
    assert text.startswith(f"Before adaptation the model finds the selected text {words}, and was")
    assert "trained on 12.5\xa0% of it. This does not predict" in text
    assert f"{words}. This does not predict" in gate_text({"base_losses": losses})
    assert gate_text({"base_losses": {**losses, "selected": None}}) == gate_text({}) == ""


def test_text_without_a_word_has_no_distance(tmp_path):
    wordless = write_documents(tmp_path / "a", ["… — !"])
    words = write_documents(tmp_path / "b", ["step"])
    assert word_distance(wordless, words) is None
