"""A student learns the vectors of a teacher: the loss as written, the same for any cut, and that it learns."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from dana.core.errors import ArtifactError, ConfigError
from dana.core.registry import OBJECTIVES
from dana.encoders.transformer import TransformerEncoder
from dana.train import DENOMINATORS
from dana.train.documents import DrawSentences
from dana.train.objectives.distill import Distill, distillation_losses
from dana.train.settings import TrainSettings
from tests.toy_task import write_checkpoint, write_decoder
from tests.train.conftest import (
    assert_passes_change_nothing,
    bert,
    gradient_of_step,
    new_state,
    random_documents,
    some_weights,
)


def losses_by_hand(vectors, mapped, teacher, weights, relations):
    """The losses as they are written, in plain numbers."""

    def cosine(one, other):
        return float(one @ other / np.linalg.norm(one) / np.linalg.norm(other))

    found = []
    for i in range(len(weights)):
        others = [j for j in range(len(weights)) if j != i]
        total = sum(weights[j] for j in others)
        errors = [
            weights[j] * (cosine(vectors[i], vectors[j]) - cosine(teacher[i], teacher[j])) ** 2
            for j in others
        ]
        found.append(1 - cosine(mapped[i], teacher[i]) + relations * sum(errors) / total)
    return found


def some_vectors(count, width, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, width, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("relations", [0.0, 1.0, 7.0])
def test_the_losses_are_those_of_the_formula(relations):
    vectors = some_vectors(5, 3)
    mapped = some_vectors(5, 4, seed=1)
    teacher = some_vectors(5, 4, seed=2)
    weights = torch.tensor([1.0, 0.5, 2.0, 0.0, 0.1], dtype=torch.float64)
    losses = distillation_losses(vectors, mapped, teacher, weights, relations)
    parts = [part.numpy() for part in (vectors, mapped, teacher, weights)]
    assert losses.tolist() == pytest.approx(losses_by_hand(*parts, relations))


def test_weight_0_is_absence():
    vectors = some_vectors(6, 3).requires_grad_()
    teacher = some_vectors(6, 3, seed=1)
    weights = torch.tensor([1.0, 2.0, 0.0, 0.5, 1.0, 1.5], dtype=torch.float64)
    losses = distillation_losses(vectors, vectors, teacher, weights, 1.0)
    (gradient,) = torch.autograd.grad((losses * weights).sum(), vectors)
    left = [0, 1, 3, 4, 5]
    fewer = vectors[left]
    without = distillation_losses(fewer, fewer, teacher[left], weights[left], 1.0)
    (other,) = torch.autograd.grad((without * weights[left]).sum(), vectors)
    torch.testing.assert_close(losses[left], without)
    torch.testing.assert_close(gradient, other)
    assert gradient[2].abs().max() == 0


def test_a_sentence_alone_has_the_first_term():
    one = torch.tensor([[1.0, 0.0]])
    loss = distillation_losses(one, torch.tensor([[1.0, 1.0]]), one, torch.ones(1), 5.0)
    assert float(loss) == pytest.approx(1 - 2**-0.5)


@pytest.fixture(scope="module")
def teacher(tmp_path_factory):
    return str(write_checkpoint(tmp_path_factory.mktemp("teacher") / "teacher"))


def test_a_teacher_that_is_missing_or_a_decoder_is_refused_before_any_work(teacher, tmp_path):
    Distill(teacher).check_inputs()
    with pytest.raises(ConfigError, match="distill: teacher=nowhere: a folder is looked for from"):
        Distill("nowhere").check_inputs()
    decoder = write_decoder(tmp_path, ["word"])
    with pytest.raises(ConfigError, match="an encoder, not a decoder"):
        Distill(str(decoder)).check_inputs()


def test_so_many_sentences_of_a_document_are_read_and_0_reads_all(teacher):
    assert Distill(teacher).draw(3) == DrawSentences(3, 2)
    assert Distill(teacher, sentences=5).draw(3) == DrawSentences(3, 5)
    assert Distill(teacher, sentences=0).draw(3) == DrawSentences(3, None)


def step_of(objective, tokenizer, denominator="batch"):
    """A step of documents whose tokens are words of a tokenizer."""
    documents = random_documents(6, 4, DrawSentences(0, 2), some_weights)
    words = len(tokenizer) - 5
    documents = replace(documents, stream=documents.stream % words + 5)
    batch = documents.take(np.arange(len(documents)))
    collator = objective.collator(tokenizer, 0)
    return collator.step_batch(batch, 0, denominator)


def settings_of(teacher, **changes):
    values = {"max_tokens": 16, "batch_size": 6, "steps": 3, "clip": 1e9, **changes}
    return TrainSettings(objective=f"distill:teacher={teacher}", **values)


@pytest.mark.parametrize("layout", ["padded", "unpadded"])
@pytest.mark.parametrize("budget", [16, 50])
def test_passes_and_layouts_change_nothing(teacher, layout, budget):
    batch = step_of(Distill(teacher), TransformerEncoder(teacher).tokenizer)
    assert_passes_change_nothing(batch, settings_of(teacher), layout, budget)


@pytest.mark.parametrize("denominator", DENOMINATORS)
def test_the_loss_of_a_step_is_that_of_its_vectors(teacher, denominator):
    batch = step_of(Distill(teacher), TransformerEncoder(teacher).tokenizer, denominator)
    settings = replace(settings_of(teacher), denominator=denominator)
    state = new_state(bert(), settings)
    module = state.inner_module.eval()
    rows = [
        module.model.bert(input_ids=torch.from_numpy(tokens).long()[None])[0][0].mean(0)
        for tokens in np.split(batch.examples.tokens, batch.examples.offsets[1:-1])
    ]
    vectors = torch.stack(rows).detach()
    mapped = module.map(vectors).detach()
    parts = [part.double().numpy() for part in (vectors, mapped)]
    losses = losses_by_hand(*parts, batch.teacher.astype(float), batch.weights, 1.0)
    assert not batch.loss_unit, "distances of cosines are no nats"
    total = len(losses)
    if denominator == "weight_sum":
        total = float(batch.weights.sum())
    outcome, _ = gradient_of_step(state, batch, settings)
    by_hand = float(np.dot(batch.weights, losses)) / total
    assert outcome.loss == pytest.approx(by_hand, rel=1e-4)


def test_a_student_that_is_its_teacher_has_nothing_to_learn(teacher):
    from transformers import AutoModelForMaskedLM

    batch = step_of(Distill(teacher), TransformerEncoder(teacher).tokenizer)
    settings = settings_of(teacher)
    without_dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    student = AutoModelForMaskedLM.from_pretrained(teacher, **without_dropout)
    state = new_state(student, settings)
    module = state.inner_module.eval()
    assert module.map.weight.equal(torch.eye(len(module.map.weight)))
    outcome, _ = gradient_of_step(state, batch, settings)
    assert outcome.loss == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("distill", "the folder or name of a model"),
        ("distill:teacher=x,relations=-1", "at least 0"),
        ("distill:teacher=x,sentences=-1", "0 for all"),
    ],
)
def test_a_wrong_parameter_is_refused(spec, words):
    with pytest.raises(ConfigError, match=words):
        OBJECTIVES.create(spec)


def test_a_teacher_that_is_not_there_is_refused(tmp_path):
    objective = Distill(str(tmp_path / "none"))
    with pytest.raises(ArtifactError, match="none"):
        objective.decisive()
