"""``dana distill``: a static model of a teacher that sentence-transformers opens, and a student that is trained."""

import json
import re
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from transformers import AutoModelForMaskedLM, AutoTokenizer, T5Config, T5EncoderModel

from dana.cli.main import main
from dana.core.artifacts import read_manifest
from dana.core.errors import ArtifactError, ConfigError
from dana.core.registry import ENCODERS
from dana.encoders.transformer import TransformerEncoder
from dana.models.encoder_folder import static_model_files
from dana.stages.distill import cosine_text, find_weights, static_stage, taught_settings
from dana.stages.probe import check_probed
from dana.stages.training import TrainingData, folder_text
from dana.train.objectives.distill import Distill
from dana.train.settings import AdaptSettings, PhaseSettings
from dana.train.static_student import teach
from tests.stages.test_vector_objectives import unit_rows
from tests.toy_task import write_decoder, write_task

NOT_MEASURED = "not measured, no document has 4 sentences"


@pytest.fixture(scope="module")
def data(inputs):
    pool, task, held_out = inputs
    return TrainingData(pool, None, task, held_out)


@pytest.fixture(scope="module")
def static(base, data, tmp_path_factory):
    return static_stage(str(base), data, tmp_path_factory.mktemp("static") / "model")


def sentence_transformer(folder):
    library = pytest.importorskip("sentence_transformers")
    return library.SentenceTransformer(str(folder), device="cpu")


def test_the_folder_opens_in_sentence_transformers(static, base):
    model = sentence_transformer(static.path)
    text = "the training of a model"
    [vector] = model.encode([text])
    tokens = TransformerEncoder(str(base)).tokenizer(text, add_special_tokens=False)["input_ids"]
    table = load_file(static.path / "model.safetensors")["embedding.weight"]
    assert vector == pytest.approx(table[tokens].mean(0), abs=1e-6)
    card = (static.path / "README.md").read_text(encoding="utf-8")
    assert "library_name: sentence-transformers" in card
    assert f"{static.manifest['counts']['sentences_read']:,} sentences" in card


def test_it_is_probed_beside_its_teacher(static, base, tmp_path, capsys):
    card = write_task(tmp_path / "task")
    models = [f"base={base}", f"static={static.path}"]
    words = ["probe", "--model", *models, "--task", str(card), "--out", str(tmp_path / "run")]
    assert main([*words, "--sizes", "30", "--draws", "2", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["results"]
    assert {row["arm"] for row in rows} == {"base", "static"}
    folder = tmp_path / "run" / "probe" / "toy" / "static" / "0"
    shown = json.loads((folder / "neighbours.json").read_text())["texts"]
    assert "filled" not in shown[0]  # a static model fills no hidden word in

    def scores():
        return json.loads((folder / "probe.json").read_text())["sizes"]

    before = scores()
    vectors = load_file(static.path / "model.safetensors")["embedding.weight"]
    other = shutil.copytree(static.path, tmp_path / "other")
    save_file({"embedding.weight": vectors[::-1].copy()}, other / "model.safetensors")
    models[1] = f"static={other}"
    changed = ["probe", "--model", *models, "--task", str(card), "--out", str(tmp_path / "run")]
    assert main([*changed, "--sizes", "30", "--draws", "2"]) == 2  # made of other vectors
    assert main([*changed, "--sizes", "30", "--draws", "2", "--remake"]) == 0
    assert scores() != before


def test_dana_reads_it_as_the_encoder_static(static, tmp_path):
    texts = ["The weights of documents, and a test.", "Zebra?", "", "a " * 600]
    encoder = ENCODERS.create(f"static:model={static.path}")
    vectors = encoder.encode(texts).numpy()
    library = sentence_transformer(static.path)
    assert vectors == pytest.approx(library.encode(texts), abs=1e-5)
    library.save(str(tmp_path / "copy"))  # which has its files in a folder of the module
    copied = ENCODERS.create(f"static:model={tmp_path / 'copy'}")
    assert np.array_equal(copied.encode(texts).numpy(), vectors)
    shutil.copytree(static.path, tmp_path / "moved")
    moved = ENCODERS.create(f"static:model={tmp_path / 'moved'}")
    assert moved.identity() == encoder.identity() != copied.identity()
    assert encoder.tokenizer("weights")["input_ids"]
    weights = static_model_files(tmp_path / "copy")[0]
    save_file({"other": np.zeros((2, 2), dtype=np.float32)}, weights)
    with pytest.raises(ArtifactError, match="has other, and not embedding"):
        ENCODERS.create(f"static:model={tmp_path / 'copy'}").encode(texts)


def test_its_vectors_are_near_the_teachers_and_that_is_said(static, base, data):
    cosines = static.manifest["cosine"]
    table = load_file(static.path / "model.safetensors")["embedding.weight"]
    teacher = TransformerEncoder.of_checkpoint(str(base), 256)
    texts = ["The weights of documents decide which text is read.", "A test fails with a message."]
    units = teacher.encode(texts).numpy()
    rows = [teacher.tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
    student = np.stack([table[row].mean(0) for row in rows])
    found = [
        float(one @ other / np.linalg.norm(one) / np.linalg.norm(other))
        for one, other in zip(student, units, strict=True)
    ]
    assert min(found) > 0.9
    assert cosines.keys() == {"target", "pool"}
    assert all(0.9 < cosine <= 1 for cosine in cosines.values())


def test_the_same_inputs_give_the_same_bytes_and_another_seed_the_same_model(
    static, base, data, tmp_path
):
    again = static_stage(str(base), data, tmp_path / "again")
    names = ["model.safetensors", "tokenizer.json", "modules.json"]
    for name in names:
        assert (again.path / name).read_bytes() == (static.path / name).read_bytes()
    other = static_stage(str(base), data, tmp_path / "other", seed=1)
    first, second = (
        load_file(folder / "model.safetensors")["embedding.weight"]
        for folder in (static.path, other.path)
    )
    assert first == pytest.approx(second, abs=1e-3), "all sentences are read in another order"


def test_held_out_text_of_single_sentences_is_not_measured(base, data, write_corpus, tmp_path):
    single = write_corpus("single", ["One sentence alone.", "Another one."])
    model = static_stage(str(base), replace(data, target_heldout=single), tmp_path / "out")
    assert model.manifest["cosine"]["target"] is None
    assert model.manifest["cosine"]["pool"] > 0.9
    assert f"target text {NOT_MEASURED}" in (model.path / "README.md").read_text(encoding="utf-8")


def test_what_is_not_measured_is_said():
    words = cosine_text({"target": None, "pool": 0.91234})
    assert words == f"target text {NOT_MEASURED}; pool text 0.912"


def test_the_teacher_reads_every_token_of_every_sentence_once(base, inputs):
    tokenizer = TransformerEncoder(str(base)).tokenizer
    objective = Distill(teacher=str(base), sentences=0)
    text = folder_text(inputs[0], tokenizer)
    documents, counts = objective.examples(text, tokenizer, 64, 0)
    read = []

    def encode(texts):
        read.extend(texts)
        return torch.ones(len(texts), 3)

    taught = teach(documents, tokenizer, encode, seed=0)
    assert len(taught.tokens) == counts["sentences"] == len(read)
    assert sum(map(len, taught.tokens)) == np.minimum(documents.sizes, documents.room).sum()
    assert read == [tokenizer.decode(tokens) for tokens in taught.tokens]
    assert not {*tokenizer.all_special_ids} & {int(one) for row in taught.tokens for one in row}
    assert taught.teacher == pytest.approx(3**-0.5)


def test_a_large_selection_is_read_in_part_as_the_seed_says(base, data, tmp_path, monkeypatch):
    monkeypatch.setattr("dana.train.static_student.MOST_SENTENCES", 20)
    monkeypatch.setattr("dana.train.static_student.DOCUMENTS_AT_ONCE", 2)
    tables = []
    for seed in (0, 1):
        model = static_stage(str(base), data, tmp_path / str(seed), seed)
        counts = model.manifest["counts"]
        assert 20 <= counts["sentences_read"] < counts["sentences"]
        tables.append(load_file(model.path / "model.safetensors")["embedding.weight"])
    assert not np.allclose(*tables, atol=1e-3)


def test_documents_of_weight_0_teach_nothing(base, data, write_weights, tmp_path):
    rows = unit_rows(5, 1.0)
    silent = [(*row[:-1], 0.0 if row[0] == "pool-1" else row[-1]) for row in rows]
    absent = [row for row in rows if row[0] != "pool-1"]
    tables = []
    for name, units in {"silent": silent, "absent": absent}.items():
        weighted = replace(data, weights=write_weights(units), mix={})
        model = static_stage(str(base), weighted, tmp_path / name)
        assert model.manifest["counts"]["sentences_read"] == 16
        tables.append(load_file(model.path / "model.safetensors")["embedding.weight"])
    assert np.array_equal(*tables)


def test_a_missing_teacher_or_a_decoder_is_refused(data, tmp_path):
    with pytest.raises(ConfigError, match="teacher=nothing"):
        static_stage("nothing", data, tmp_path / "out")
    decoder = write_decoder(tmp_path / "decoder", ["a", "b"])
    with pytest.raises(ConfigError, match="an encoder, not a decoder"):
        static_stage(str(decoder), data, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def without_tokenizer(folder):
    for file in folder.glob("tokenizer*"):
        file.unlink()


def cut(folder):
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])


UNUSABLE = {
    "without a tokenizer": (without_tokenizer, "has no tokenizer; copy that of the model"),
    "cut": (cut, r"model\.safetensors: is cut or damaged"),
}


@pytest.mark.parametrize(("damage", "error"), UNUSABLE.values(), ids=UNUSABLE)
def test_a_damaged_teacher_is_refused_before_any_work(run, base, tmp_path, damage, error, capsys):
    teacher = shutil.copytree(base, tmp_path / "teacher")
    damage(teacher)
    before = sorted(run.iterdir())
    for student in ("static", str(base)):
        assert main(["distill", str(teacher), student, "--on", str(run)]) == 2
        assert re.search(error, capsys.readouterr().err)
    assert sorted(run.iterdir()) == before, "no tokens and no model are written"


def test_a_teacher_whose_decoder_wants_a_text_is_refused_before_any_work(base, data, tmp_path):
    teacher = tmp_path / "t5"
    AutoTokenizer.from_pretrained(base).save_pretrained(teacher)
    shape = {"d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2}
    # The class of the encoder alone says in its config.json that it has no decoder.
    T5EncoderModel(T5Config(vocab_size=2048, **shape)).save_pretrained(teacher)
    with pytest.raises(ConfigError, match="a model of type t5 wants a text for its decoder, too"):
        static_stage(str(teacher), data, tmp_path / "out")
    with pytest.raises(ConfigError, match="a model of type t5 wants a text for each of both"):
        check_probed(str(teacher))


def with_vectors(folder, change):
    file = folder / "model.safetensors"
    save_file({"embedding.weight": change(load_file(file)["embedding.weight"])}, file)


def without_a_path(folder):
    (folder / "modules.json").write_text('[{"type": "x.StaticEmbedding"}]')


DAMAGED = {
    "no tokenizer": (without_tokenizer, r"tokenizer\.json: no such file"),
    "no path": (without_a_path, r"modules\.json: path=None: must be"),
    "cut": (cut, r"model\.safetensors: cannot be loaded"),
    "NaN": (lambda folder: with_vectors(folder, lambda table: table * np.nan), "table of finite"),
    "no table": (lambda folder: with_vectors(folder, lambda table: table[:, 0].copy()), "table of"),
    "quantised": (lambda folder: with_vectors(folder, lambda table: table.astype("int8")), "int8"),
}


@pytest.mark.parametrize(("damage", "error"), DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_static_model_is_refused_before_any_probe(static, tmp_path, damage, error):
    folder = shutil.copytree(static.path, tmp_path / "damaged")
    damage(folder)
    with pytest.raises(ArtifactError, match=error):
        check_probed(str(folder))


def test_another_teacher_is_no_resumption(static, sentence_base, data):
    with pytest.raises(ArtifactError, match="teacher"):
        static_stage(str(sentence_base), data, static.path)


def test_of_the_settings_of_a_run_those_of_its_objective_are_left_out():
    phases = [PhaseSettings(tokens=100)]
    settings = AdaptSettings(tokens=100, phases=phases, learning_rate=1e-4, seed=3)
    taught = taught_settings(settings, "a-model", set())
    assert taught.objective == "distill:teacher=a-model"
    assert (taught.learning_rate, taught.phases, taught.seed) == (None, [], 3)
    with pytest.raises(ConfigError, match="without a comma"):
        taught_settings(settings, "a,model", set())
    given = taught_settings(settings, "a-model", {"adapt.learning_rate"})
    assert given.learning_rate == 1e-4


@pytest.fixture
def run(inputs, write_weights, tmp_path):
    """Write a run whose selected text is the first four sentences of its documents."""
    folder = tmp_path / "run"
    places = ("pool", "target/held_out", "held_out")
    for name, source in zip(places, inputs, strict=True):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).symlink_to(source)
    (folder / "weights").symlink_to(write_weights(unit_rows(6, 1.0)))
    return folder


def test_the_command_makes_a_static_model_and_says_how_near_it_is(run, base, capsys):
    assert main(["distill", str(base), "static", "--on", str(run), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["model"] == str(run / "distilled")
    assert answer["cosine"].keys() == {"target", "pool"}
    refused = ["distill", str(base), "static", "--on", str(run), "--steps", "3", "--remake"]
    assert main(refused) == 2
    assert "adapt.steps has no effect with the student static" in capsys.readouterr().err
    refused = ["distill", str(base), "static", "--on", str(run), "--set", "adapt.objective=crops"]
    assert main(refused) == 2
    assert "adapt.objective has no effect with the student static" in capsys.readouterr().err
    static = str(run / "distilled")
    assert main(["distill", static, "static", "--on", str(run), "--out", str(run / "again")]) == 2
    assert f"{static}: not the folder of a model" in (message := capsys.readouterr().err)
    assert "it is a static model, which has no transformer" in message


def test_the_weights_of_a_run_are_those_of_all_texts_or_of_its_first_adaptation(tmp_path):
    with pytest.raises(ArtifactError, match=r"no weights .*--weights"):
        find_weights(tmp_path)
    for place in ("arms/dana/weights", "final/arms/dana/weights", "weights"):
        (tmp_path / place).mkdir(parents=True)
        assert find_weights(tmp_path) == tmp_path / place


def test_the_command_trains_a_checkpoint_by_the_teacher(run, base, sentence_base, tmp_path, capsys):
    out = tmp_path / "student"
    command = ["distill", str(sentence_base), str(base), "--on", str(run), "--out", str(out)]
    assert main([*command, "--steps", "2", "--set", "adapt.max_tokens=32"]) == 0
    assert f"written: {out}" in capsys.readouterr().out
    assert AutoModelForMaskedLM.from_pretrained(out)
    objective = read_manifest(out)["depends_on"]["settings"]["objective"]
    assert "Distill" in str(objective)


@pytest.mark.parametrize("name", ["teachers/biomed #2", "2024", "yes", "runs/a: b", "plain"])
def test_a_teacher_of_any_name_is_the_one_that_is_named(name):
    taught = taught_settings(AdaptSettings(), name, set())
    assert taught.make_objective().teacher == name
