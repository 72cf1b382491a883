"""Settings of trainings that take a second, their inputs, and what they leave: shared by the tests of training."""

import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
from safetensors.torch import load_file

from dana.stages.predict import NewText, predict_stage
from dana.stages.training import adapt_stage
from dana.train.settings import AdaptSettings, HeadWarmup, PretrainSettings

REPOSITORY = Path(__file__).parent.parent.parent
BATCH = {"batch_size": 16, "max_tokens": 48, "evaluations": 1}
PRETRAIN = PretrainSettings(
    architecture="bert", steps=30, max_positions=64, vocabulary=800, learning_rate=2e-3, **BATCH
)
# So low a rate that Adam, which makes a step of any gradient, cannot blow the rounding of a sum up
# to 1e-6.
# A head of three steps is no better than guesses, which other tests want.
ADAPT = AdaptSettings(
    steps=4, learning_rate=2e-5, head_warmup=HeadWarmup(3, 8, margin=-9.0), **BATCH
)
PAIRS = replace(ADAPT, objective="next_sentence")
POSITION = replace(ADAPT, objective="position")
# The temperature multiplies the rounding of a cosine by 20, so the rate is lower still.
CROPS = replace(ADAPT, objective="crops", learning_rate=5e-6)

# Of a base of sentence-transformers.
KINDS = ("Transformer", "Pooling", "Normalize")
MODULES = [
    {
        "idx": index,
        "name": str(index),
        "path": f"{index}_{kind}" if index else "",
        "type": f"sentence_transformers.models.{kind}",
    }
    for index, kind in enumerate(KINDS)
]


def adapt(model, inputs, out, settings=ADAPT, weights=None):
    """Adapt a model on a pool, with its held-out task and pool texts."""
    pool, task, held_out = inputs
    return adapt_stage(str(model), pool, weights, task, held_out, settings, out)


def records(folder, kind):
    """Read the steps or evaluations of a training."""
    lines = [json.loads(line) for line in (folder / "training.jsonl").read_text().splitlines()]
    return [line for line in lines if line["kind"] == kind]


def assert_same_weights(one, other, file=None):
    """Compare the tensors of two models, of one file where a model has several.

    Adam makes a whole step of a gradient that is nothing but rounding, and an entry or two of a
    matrix have one: they may differ, by no more than all the steps together.
    """
    first, second = (
        load_file(folder / file if file else next(folder.glob("*.safetensors")))
        for folder in (one, other)
    )
    assert first.keys() == second.keys()
    for name, value in first.items():
        difference = (second[name] - value).abs()
        assert float((difference > 1e-6).float().mean()) < 2e-4, name
        assert difference.max() < ADAPT.steps * ADAPT.learning_rate, name


def label(model, *files, **settings):
    """Label the texts of files with a fine-tuned model."""
    text = NewText([str(file) for file in files], **settings)
    return pa.concat_tables(predict_stage(str(model), text)).to_pylist()
