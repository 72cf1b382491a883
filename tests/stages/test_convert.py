"""``dana files convert``: what dana refuses becomes a folder that it opens, and no code of a pickle runs."""

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForMaskedLM, AutoTokenizer

from dana.cli.main import main
from dana.core.errors import ArtifactError
from dana.encoders.transformer import TransformerEncoder
from dana.models.folder import load_backbone, load_complete, load_tokenizer
from dana.stages.convert import convert_stage, resized_model
from tests.families import FAMILIES, LONGEST

PICKLE = "pytorch_model.bin"
SAFE = "model.safetensors"


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "bert"
    FAMILIES["bert"].save(folder)
    return folder


@pytest.fixture
def pickled(bert, tmp_path):
    """A copy of the model without safetensors; ``write`` pickles its tensors."""
    folder = tmp_path / "old"
    shutil.copytree(bert, folder)
    (folder / SAFE).unlink()
    return folder


def state_of(model):
    return AutoModelForMaskedLM.from_pretrained(model).state_dict()


def assert_same_model(one, other):
    before = state_of(one)
    after = state_of(other)
    assert before.keys() == after.keys()
    for name, value in before.items():
        assert torch.equal(value, after[name]), name


def compiled(weights):
    return {f"module._orig_mod.{name}": value for name, value in weights.items()}


def of_a_loop(weights):
    named = {f"network.{name}": value for name, value in weights.items()}
    return {"epoch": 3, "state_dict": named | {"loss.weight": torch.ones(3)}}


def doubled(weights):
    return weights | {f"module.{name}": value.clone() for name, value in weights.items()}


def with_wrapped_layers(weights):
    return {
        name.replace("layer.1.", "layer.1._checkpoint_wrapped_module."): value
        for name, value in weights.items()
    }


FORMS = {
    "plain": dict,
    "compiled and data-parallel": compiled,
    "of a training loop": of_a_loop,
    "every name twice": doubled,
    "layers are wrapped": with_wrapped_layers,
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_pickled_weights_are_those_of_the_model(bert, pickled, tmp_path, form):
    torch.save(form(state_of(bert)), pickled / PICKLE)
    convert_stage(str(pickled), tmp_path / "new")
    assert_same_model(bert, tmp_path / "new")
    assert not (tmp_path / "new" / PICKLE).exists()
    _, tokenizer = load_tokenizer(str(tmp_path / "new"))
    assert tokenizer.get_vocab() == AutoTokenizer.from_pretrained(bert).get_vocab()


def test_shards_are_put_together(bert, pickled, tmp_path):
    weights = state_of(bert)
    places = {}
    for number, half in enumerate((list(weights)[::2], list(weights)[1::2])):
        file = f"pytorch_model-{number}.bin"
        torch.save({name: weights[name] for name in half}, pickled / file)
        places |= dict.fromkeys(half, file)
    index = pickled / "pytorch_model.bin.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": places}))
    convert_stage(str(pickled), tmp_path / "new")
    assert_same_model(bert, tmp_path / "new")
    (pickled / "pytorch_model-1.bin").unlink()
    with pytest.raises(ArtifactError, match=r"pytorch_model-1\.bin: no such file beside it"):
        convert_stage(str(pickled), tmp_path / "other")


def test_a_file_of_another_name_is_named(bert, pickled, tmp_path):
    torch.save(state_of(bert), pickled / "best.pt")
    torch.save(state_of(bert), pickled / "last.pt")
    torch.save({"step": 1}, pickled / "optimizer.pt")
    with pytest.raises(ArtifactError, match=r"best\.pt, last\.pt.*name one: dana files convert"):
        convert_stage(str(pickled), tmp_path / "new")
    convert_stage(str(pickled / "last.pt"), tmp_path / "new")
    assert_same_model(bert, tmp_path / "new")


def test_a_config_without_type_gets_that_of_the_tensors(bert, pickled, tmp_path):
    config = json.loads((pickled / "config.json").read_text())
    del config["model_type"], config["architectures"]
    (pickled / "config.json").write_text(json.dumps(config))
    torch.save(state_of(bert), pickled / PICKLE)
    convert_stage(str(pickled), tmp_path / "new")
    assert_same_model(bert, tmp_path / "new")
    without = {name.removeprefix("bert."): value for name, value in state_of(bert).items()}
    torch.save(without, pickled / PICKLE)
    with pytest.raises(
        ArtifactError, match=r'names no model_type; add it, for example "model_type"'
    ):
        convert_stage(str(pickled), tmp_path / "other")


class Evil:
    """Writes a file where it is unpickled."""

    def __init__(self, file):
        self.file = file

    def __reduce__(self):
        return open, (str(self.file), "w")


def test_code_in_a_pickle_never_runs(bert, pickled, tmp_path):
    ran = tmp_path / "ran"
    torch.save({"state_dict": state_of(bert), "loss": Evil(ran)}, pickled / PICKLE)
    with pytest.raises(ArtifactError, match=r"needs code, and dana runs none.*save_pretrained"):
        convert_stage(str(pickled), tmp_path / "new")
    assert not ran.exists()
    assert not (tmp_path / "new").exists()


def _other_values(weights):
    return weights | {f"module.{name}": value + 1 for name, value in weights.items()}


def _without_layer(weights):
    return {name: value for name, value in weights.items() if ".layer.1." not in name}


DAMAGE = {
    "two values of one name": (_other_values, "with other values; remove one of them"),
    "a layer is missing": (_without_layer, "weights of its backbone are missing"),
    "of another model": (
        lambda weights: {"a.b": torch.ones(2)},
        "no tensor has a name of the model in its config.json",
    ),
    "no tensors": (lambda weights: {"epoch": 3}, "holds no tensors by name"),
    "a list": (lambda weights: list(weights.values()), "holds no tensors by name"),
}


@pytest.mark.parametrize(("form", "named"), DAMAGE.values(), ids=DAMAGE)
def test_what_is_not_the_model_is_refused_and_leaves_nothing(bert, pickled, tmp_path, form, named):
    torch.save(form(state_of(bert)), pickled / PICKLE)
    with pytest.raises(ArtifactError, match=named) as error:
        convert_stage(str(pickled), tmp_path / "new")
    assert str(error.value).startswith(str(pickled))
    assert {path.name for path in tmp_path.iterdir()} == {"old"}


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 garbage", b"\x80\x02}q\x00."])
def test_a_damaged_file_is_one_line(pickled, tmp_path, content, capsys):
    (pickled / PICKLE).write_bytes(content)
    assert main(["files", "convert", str(pickled), "--out", str(tmp_path / "new")]) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    assert f"{PICKLE}: " in lines[0]
    assert not (tmp_path / "new").exists()


def test_there_may_be_nothing_to_convert(bert, pickled, tmp_path):
    with pytest.raises(ArtifactError, match="dana opens it as it is: dana adapt DIR --model"):
        convert_stage(str(bert), tmp_path / "new")
    with pytest.raises(ArtifactError, match=r"has no weights; copy model\.safetensors"):
        convert_stage(str(pickled), tmp_path / "new")
    (pickled / "tf_model.h5").write_bytes(b"x")
    with pytest.raises(ArtifactError, match=r"tf_model\.h5 \(TensorFlow\); copy model\.safet"):
        convert_stage(str(pickled), tmp_path / "new")
    with pytest.raises(ArtifactError, match="there is nothing to resize"):
        convert_stage(str(bert), tmp_path / "new", resize=True)
    with pytest.raises(ArtifactError, match=r"no such folder; did you mean .*old"):
        convert_stage(str(tmp_path / "olt"), tmp_path / "new")


def follow(message, tmp_path, monkeypatch):
    """Run the command that a message ends with; return the folder that it writes."""
    command = re.search(r"dana files convert [^;]*", message)
    assert command, message
    words = shlex.split(command[0])
    monkeypatch.chdir(tmp_path)
    assert main(words[1:]) == 0
    return tmp_path / words[words.index("--out") + 1]


def test_the_command_that_a_refusal_names_mends_it(bert, pickled, tmp_path, monkeypatch):
    torch.save(state_of(bert), pickled / PICKLE)
    with pytest.raises(ArtifactError) as error:
        load_backbone(str(pickled))
    new = follow(str(error.value), tmp_path, monkeypatch)
    assert_same_model(bert, new)


@pytest.fixture
def embedder(bert, tmp_path):
    """An embedding model in the layout of today: it takes the first token and normalises."""
    from sentence_transformers import SentenceTransformer, models

    folder = tmp_path / "embedder"
    modules = [
        models.Transformer(str(bert), max_seq_length=LONGEST),
        models.Pooling(32, pooling_mode="cls"),
        models.Normalize(),
    ]
    SentenceTransformer(modules=modules).save(str(folder))
    return folder


@pytest.mark.parametrize("is_pickled", [False, True])
def test_an_old_layout_gives_the_vectors_of_todays(embedder, tmp_path, is_pickled, monkeypatch):
    texts = ["the printer shows an error", "an invoice"]
    expected = TransformerEncoder(str(embedder), "auto").encode(texts)
    old = tmp_path / "old"
    inner = old / "0_Transformer"
    inner.mkdir(parents=True)
    modules = json.loads((embedder / "modules.json").read_text())
    modules[0]["path"] = inner.name
    (old / "modules.json").write_text(json.dumps(modules))
    for place in ("1_Pooling", "2_Normalize"):
        shutil.copytree(embedder / place, old / place)
    for file in embedder.iterdir():
        if file.is_file() and file.name != "modules.json":
            shutil.copyfile(file, inner / file.name)
    if is_pickled:
        torch.save(load_file(inner / SAFE), inner / PICKLE)
        (inner / SAFE).unlink()
    with pytest.raises(ArtifactError, match="its layout is an old one") as error:
        load_backbone(str(old))
    new = follow(str(error.value), tmp_path, monkeypatch)
    assert torch.equal(TransformerEncoder(str(new), "auto").encode(texts), expected)


@pytest.mark.parametrize("name", ["bert", "roberta", "xlm-roberta", "gpt2", "deberta-v2"])
def test_new_tokens_begin_as_the_mean_of_their_pieces(tmp_path, name, monkeypatch):
    family = FAMILIES[name]
    model = tmp_path / "model"
    family.save(model)
    tokenizer = AutoTokenizer.from_pretrained(model)
    rows = len(tokenizer)
    words = ["refunding", "calendarprinter"]
    pieces = [tokenizer(word, add_special_tokens=False)["input_ids"] for word in words]
    old_ids = tokenizer("the printer fails")["input_ids"]
    before = load_complete(_class_of(family), str(model))
    expected = before(input_ids=torch.tensor([old_ids])).logits
    tokenizer.add_tokens(words)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<e1>"]})
    tokenizer.save_pretrained(model)
    with pytest.raises(ArtifactError, match="--resize-embeddings") as error:
        load_tokenizer(str(model))
    new = follow(str(error.value), tmp_path, monkeypatch)
    network = load_complete(_class_of(family), str(new))
    embeddings = network.get_input_embeddings().weight
    old = before.get_input_embeddings().weight
    assert len(embeddings) == rows + 3
    assert torch.equal(embeddings[:rows], old)
    for place, ids in enumerate(pieces):
        assert len(ids) > 1
        torch.testing.assert_close(embeddings[rows + place], old[ids].mean(0))
    torch.testing.assert_close(embeddings[rows + 2], old.mean(0))
    output = network.get_output_embeddings().weight
    torch.testing.assert_close(
        output[rows], before.get_output_embeddings().weight[pieces[0]].mean(0)
    )
    logits = network(input_ids=torch.tensor([old_ids])).logits
    torch.testing.assert_close(logits[..., :rows], expected)
    _, again = load_tokenizer(str(new))
    assert again(words[0], add_special_tokens=False)["input_ids"] == [rows]


def _class_of(family):
    import transformers

    return getattr(transformers, family.auto_class)


def test_a_model_with_all_rows_is_taken_as_it_is(bert, tmp_path):
    assert resized_model(str(bert), tmp_path / "new") == str(bert)
    assert not (tmp_path / "new").exists()


@pytest.fixture
def adapters(bert, tmp_path):
    pytest.importorskip("peft")
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(r=2, target_modules=["query", "value"], init_lora_weights=False)
    model = get_peft_model(AutoModelForMaskedLM.from_pretrained(bert), config)
    model.save_pretrained(tmp_path / "adapters")
    return tmp_path / "adapters"


def test_pickled_adapters_of_a_pickled_base_are_added_to_its_weights(
    bert, pickled, adapters, tmp_path, monkeypatch
):
    tokenizer = AutoTokenizer.from_pretrained(bert)
    tokenizer.save_pretrained(adapters)
    assert main(["files", "fold", str(adapters), "--out", str(tmp_path / "folded")]) == 0
    torch.save(state_of(bert), pickled / PICKLE)
    torch.save(load_file(adapters / "adapter_model.safetensors"), adapters / "adapter_model.bin")
    (adapters / "adapter_model.safetensors").unlink()
    file = adapters / "adapter_config.json"
    config = json.loads(file.read_text()) | {"base_model_name_or_path": str(pickled)}
    file.write_text(json.dumps(config))
    with pytest.raises(ArtifactError) as error:
        load_backbone(str(adapters))
    new = follow(str(error.value), tmp_path, monkeypatch)
    assert_same_model(tmp_path / "folded", new)
    assert not torch.equal(next(iter(load_file(new / SAFE).values())), torch.zeros(1))


def test_adapters_are_converted_anew_when_their_base_changes(bert, adapters, tmp_path, capsys):
    AutoTokenizer.from_pretrained(bert).save_pretrained(adapters)
    base = tmp_path / "base"
    shutil.copytree(bert, base)
    file = adapters / "adapter_config.json"
    config = json.loads(file.read_text()) | {"base_model_name_or_path": str(base)}
    file.write_text(json.dumps(config))
    call = ["files", "convert", str(adapters), "--out", str(tmp_path / "new")]
    assert main(call) == 0
    assert main(call) == 0, "the base is as it was"
    weights = {name: value + 1 for name, value in load_file(base / SAFE).items()}
    save_file(weights, base / SAFE, metadata={"format": "pt"})
    assert main(call) == 2
    assert "--remake" in capsys.readouterr().err


def test_it_is_reused_and_remade_when_the_checkpoint_changes(bert, pickled, tmp_path, capsys):
    torch.save(state_of(bert), pickled / PICKLE)
    call = ["files", "convert", str(pickled), "--out", str(tmp_path / "new")]
    assert main(call) == 0
    assert main(call) == 0
    changed = {name: value + 1 for name, value in state_of(bert).items()}
    torch.save(changed, pickled / PICKLE)
    assert main(call) == 2
    assert "--remake" in capsys.readouterr().err
    assert main([*call, "--remake"]) == 0
    assert not Path(f"{tmp_path / 'new'}-aside").exists()
    name = "bert.embeddings.word_embeddings.weight"
    assert torch.equal(load_file(tmp_path / "new" / SAFE)[name], changed[name])
