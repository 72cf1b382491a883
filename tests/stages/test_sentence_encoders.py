"""A base of sentence-transformers: what is made from it opens there as the base does, and its head in dana."""

import json
import logging
import warnings
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import AutoModel, AutoModelForMaskedLM

from dana.core.artifacts import MANIFEST, read_json
from dana.core.errors import ArtifactError, ConfigError
from dana.models.folder import load_with_head
from dana.models.head_file import FILE
from dana.models.pooling import Pooling, read_pooling
from dana.stages.average import average_stage
from dana.stages.fold import fold_stage
from dana.stages.training import TrainingData, head_stage
from dana.train.hf_trainer import load_model
from tests.stages.tiny_training import ADAPT, CROPS, KINDS, MODULES, POSITION, adapt

every_objective = pytest.mark.parametrize(
    "settings", [ADAPT, POSITION, CROPS], ids=["masked", "position", "crops"]
)


@pytest.fixture(scope="module")
def with_head(sentence_base, inputs, tmp_path_factory):
    """The sentence encoder with a new head for masked tokens."""
    data = TrainingData(inputs[0], None, *inputs[1:])
    return Path(
        head_stage(str(sentence_base), data, ADAPT, tmp_path_factory.mktemp("head") / "out")
    )


def assert_opens_whole(folder):
    """Check that transformers opens the encoder with every weight, and finds no other."""
    network, report = AutoModel.from_pretrained(folder, output_loading_info=True)
    assert type(network).__name__ == "BertModel"
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    assert json.loads((folder / "modules.json").read_text()) == MODULES
    assert read_pooling(str(folder)) == Pooling("cls", normalize=True)


class Listener(logging.Handler):
    """Keeps what is logged."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.lines = []

    def emit(self, record):
        self.lines.append(record.getMessage())


@every_objective
def test_sentence_transformers_opens_the_result_as_the_base(
    inputs, sentence_base, tmp_path, settings
):
    library = pytest.importorskip("sentence_transformers")
    folder = adapt(sentence_base, inputs, tmp_path / "adapted", settings).path
    listener = Listener()
    loggers = [logging.getLogger(name) for name in ("transformers", "sentence_transformers")]
    for logger in loggers:
        logger.addHandler(listener)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model = library.SentenceTransformer(str(folder), device="cpu")
            vector = torch.from_numpy(model.encode("One text."))
    finally:
        for logger in loggers:
            logger.removeHandler(listener)
    assert not listener.lines
    assert [type(module).__name__ for module in model] == list(KINDS)
    assert float(vector.norm()) == pytest.approx(1, abs=1e-5)


@every_objective
def test_the_weights_are_those_of_the_encoder_alone(inputs, sentence_base, tmp_path, settings):
    execution = replace(settings.execution, export_every=2)
    settings = replace(settings, execution=execution)
    artifact = adapt(sentence_base, inputs, tmp_path / "adapted", settings)
    exports = [path for path in (tmp_path / "adapted-exports").iterdir() if path.is_dir()]
    assert exports
    for folder in (artifact.path, *exports):
        assert_opens_whole(folder)
    before = AutoModel.from_pretrained(sentence_base).pooler.dense.weight
    assert torch.equal(AutoModel.from_pretrained(artifact.path).pooler.dense.weight, before)
    is_masked = settings.objective == "masked"
    assert (artifact.path / FILE).is_file() == is_masked
    assert ("head.safetensors" in (artifact.path / "README.md").read_text()) == is_masked


def test_a_head_of_its_own_file_is_trained_further_and_no_other_is_made(
    inputs, with_head, tmp_path
):
    assert_opens_whole(with_head)
    data = TrainingData(inputs[0], None, *inputs[1:])
    assert head_stage(str(with_head), data, ADAPT, tmp_path / "head") == str(with_head)
    artifact = adapt(with_head, inputs, tmp_path / "adapted")
    assert "new_head" not in artifact.manifest
    assert_opens_whole(artifact.path)
    network, _ = load_model(artifact.path)
    again, missing = load_with_head(AutoModelForMaskedLM, str(artifact.path))
    assert not missing
    bias = network.get_output_embeddings().bias
    assert torch.equal(bias, again.get_output_embeddings().bias)
    before, _ = load_model(with_head)
    assert not torch.equal(bias, before.get_output_embeddings().bias), "it was trained"


def test_an_average_has_encoder_and_head_and_both_models_need_one(
    inputs, sentence_base, with_head, tmp_path
):
    adapted = adapt(with_head, inputs, tmp_path / "adapted").path
    average = average_stage(str(with_head), str(adapted), 0.5, [], tmp_path / "average")
    assert_opens_whole(average.path)
    models = [load_model(folder)[0] for folder in (with_head, adapted, average.path)]
    one, other, both = (model.get_output_embeddings().bias for model in models)
    torch.testing.assert_close(both, (one + other) / 2)
    with pytest.raises(ConfigError, match=r"its architecture differs: class: .*BertForMaskedLM"):
        average_stage(str(sentence_base), str(adapted), 0.5, [], tmp_path / "other")


def test_adapters_on_a_head_of_its_own_file_fold_into_both(inputs, with_head, tmp_path):
    pytest.importorskip("peft")
    settings = replace(ADAPT, adapter="lora:r=2")
    adapter = adapt(with_head, inputs, tmp_path / "adapter", settings)
    folded = fold_stage(adapter.path, tmp_path / "folded")
    assert_opens_whole(folded.path)
    one, _ = load_model(adapter.path)
    other, _ = load_model(folded.path)
    for name, value in one.state_dict().items():
        torch.testing.assert_close(other.state_dict()[name], value, msg=name)


def test_the_warm_up_decides_nothing_where_there_is_a_head_to_begin_with(
    inputs, base, sentence_base, with_head, tmp_path
):
    other = replace(ADAPT.head_warmup, steps=2)
    cases = [
        (base, ADAPT),
        (with_head, ADAPT),
        (sentence_base, POSITION),
        (sentence_base, CROPS),
    ]
    for number, (model, settings) in enumerate(cases):
        out = tmp_path / str(number)
        first = adapt(model, inputs, out, settings)
        again = adapt(model, inputs, out, replace(settings, head_warmup=other))
        assert again.fingerprint == first.fingerprint
        assert "head_warmup" not in read_json(out / MANIFEST)["depends_on"]
    adapt(sentence_base, inputs, tmp_path / "new")
    with pytest.raises(ArtifactError, match=r"head_warmup\.steps"):
        adapt(sentence_base, inputs, tmp_path / "new", replace(ADAPT, head_warmup=other))


def test_other_modules_are_refused_before_any_work(inputs, sentence_base, tmp_path, monkeypatch):
    folder = tmp_path / "dense"
    folder.mkdir()
    for file in sentence_base.iterdir():
        (folder / file.name).symlink_to(file)
    (folder / "modules.json").unlink()
    text = json.dumps(MODULES).replace("models.Pooling", "models.Dense")
    (folder / "modules.json").write_text(text)
    monkeypatch.setattr("dana.stages.training.run_job", None)
    with pytest.raises(ArtifactError, match=r"module sentence_transformers\.models\.Dense is not"):
        adapt(folder, inputs, tmp_path / "adapted")
    with pytest.raises(ArtifactError, match=r"models\.Dense is not"):
        average_stage(str(folder), str(folder), 0.5, [], tmp_path / "average")
