"""Fine-tuned models where people are: transformers' pipelines, the Hub, experiment trackers."""

from pathlib import Path

import huggingface_hub
import pyarrow.parquet as pq
import pytest
import toy_kinds
import toy_task
from transformers import AutoConfig, AutoModelForMaskedLM, AutoTokenizer, pipeline

from dana.cli.main import main
from dana.core.artifacts import make
from dana.core.errors import ArtifactError
from dana.finetuning.settings import FinetuneSettings
from dana.models.classifier import auto_class
from dana.stages.finetune import finetune_stage
from dana.stages.training import publish_stage
from tests.stages.tiny_training import label

QUICK = FinetuneSettings(preset="quick", epochs=2, seeds=1, save=True)
ARCHITECTURES = {
    "bert": {},
    "roberta": {"type_vocab_size": 1},
    "electra": {"embedding_size": 16},
    "distilbert": {"dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 64},
    "modernbert": {
        "cls_token_id": 2,
        "sep_token_id": 3,
        "global_attn_every_n_layers": 1,
        "norm_bias": True,
    },
    "eurobert": {"num_key_value_heads": 2},
}
POOLINGS = [
    *((kind, "cls") for kind in ARCHITECTURES),
    ("modernbert", "mean"),
    ("eurobert", "mean"),
]


@pytest.fixture
def model_of(checkpoint, tmp_path):
    """Write a tiny masked language model of an architecture, with the tokenizer of the toy task."""

    def write(kind):
        config = AutoConfig.for_model(kind, **{**toy_task.SIZE, **ARCHITECTURES[kind]})
        AutoModelForMaskedLM.from_config(config).save_pretrained(tmp_path / kind)
        AutoTokenizer.from_pretrained(checkpoint).save_pretrained(tmp_path / kind)
        return str(tmp_path / kind)

    return write


@pytest.mark.parametrize(("kind", "pooling"), POOLINGS)
def test_a_pipeline_labels_texts_as_dana_predict_does(kind, pooling, model_of, card, tmp_path):
    """By the architecture's own class, texts beyond ``max_tokens`` included."""
    settings = FinetuneSettings(**{**vars(QUICK), "pooling": pooling})
    result = finetune_stage(model_of(kind), card, settings, tmp_path / "out")
    assert ("head" in result.manifest["depends_on"]) == (pooling == "mean"), (
        "results of another head are not reused"
    )
    model, test = str(tmp_path / "out-model"), Path(card).parent / "toy" / "test.jsonl"
    rows = label(model, test)
    rows += label(model, toy_task.write_split(tmp_path, "long", [{"text": "owl apple " * 20}]))
    answers = pipeline("text-classification", model)([row["text"] for row in rows], truncation=True)
    assert [answer["label"] for answer in answers] == [row["label"] for row in rows]
    assert [answer["score"] for answer in answers] == pytest.approx(
        [row["probability"] for row in rows], abs=1e-5
    )
    network = auto_class(per_word=False).from_pretrained(model)
    assert type(network).__name__.lower() == f"{kind}forsequenceclassification"
    line = f"opens with `{auto_class(False).__name__}.from_pretrained`"
    assert line in (tmp_path / "out-model/README.md").read_text()


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_a_pipeline_labels_words_as_dana_predict_does(kind, model_of, tmp_path):
    out = toy_kinds.finetuned(model_of(kind), tmp_path, "token_labels", epochs=1)
    model = str(out.with_name("dana-model"))
    rows = label(model, tmp_path / "tasks" / "toy" / "test.jsonl")
    classify = pipeline("token-classification", model, ignore_labels=[])
    for row, words in zip(rows, classify([row["text"] for row in rows]), strict=True):
        assert [word["entity"] for word in words] == row["label"]
        assert [word["score"] for word in words] == pytest.approx(row["probability"], abs=1e-5)


@pytest.fixture
def hub(monkeypatch):
    """Replace the Hub by a list of what it gets."""
    uploads = []

    def upload(self, repo_id, folder_path, **_):
        uploads.append(
            (
                repo_id,
                Path(folder_path),
                (Path(folder_path) / "README.md").read_text(encoding="utf-8"),
            )
        )
        return f"https://hub/{repo_id}"

    monkeypatch.setattr(
        huggingface_hub.HfApi, "create_repo", lambda self, name, **options: uploads.append(options)
    )
    monkeypatch.setattr(huggingface_hub.HfApi, "upload_folder", upload)
    return uploads


def test_a_fine_tuned_model_is_uploaded_with_its_card(model_of, card, tmp_path, hub, capsys):
    base = Path(model_of("bert"))
    (base / "README.md").write_text("---\nlicense: cc-by-sa-4.0\n---\n")
    command = [
        "finetune",
        "--model",
        str(base),
        "--task",
        card,
        "--preset",
        "quick",
        "--out",
        str(tmp_path / "out"),
    ]
    command += [
        "--seeds",
        "2",
        "--set",
        "finetune.epochs=1",
        "finetune.max_train=60",
        "--push-to-hub",
        "org/toy",
    ]
    assert main(command) == 2
    assert "--push-to-hub='org/toy': must be used with --save" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    folds = [
        str(toy_task.write_folds(tmp_path / "folds")) if word == card else word for word in command
    ]
    assert main([*folds, "--save"]) == 2
    assert "--push-to-hub='org/toy': must be left out: toy has folds" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    assert main([*command, "--save"]) == 0
    assert "uploaded: https://hub/org/toy" in capsys.readouterr().out
    options, (name, folder, text) = hub
    assert (options, name, folder) == (
        {"private": True, "exist_ok": True},
        "org/toy",
        tmp_path / "out-model",
    )
    assert text.startswith("---\nlicense: cc-by-sa-4.0\n")
    metrics = toy_kinds.metrics(tmp_path / "out")
    assert "| texts | 60 in train, 30 in dev, 60 in test |" in text
    spread = f"{metrics['mean']:.4f} ± {metrics['std']:.4f}"
    assert f"| macro_f1 of all seeds | {spread} on the test data, n = 2 |" in text
    assert (
        "| licence | that of bert, cc-by-sa-4.0. Terms of the task's data: its card has no notes |"
        in text
    )


@pytest.mark.parametrize("kind", ["model", "classifier"])
def test_an_upload_that_the_hub_refuses_is_one_line(kind, tmp_path, hub, monkeypatch):
    def refuse(self, name, **_):
        raise OSError("no such organisation\ntrace")

    make(tmp_path / "out", kind, {}, lambda draft: (draft.path / "README.md").write_text("card"))
    assert publish_stage(tmp_path / "out", "org/toy", kind) == "https://hub/org/toy"
    monkeypatch.setattr(huggingface_hub.HfApi, "create_repo", refuse)
    with pytest.raises(
        ArtifactError,
        match=r"out: not uploaded to org/toy: no such organisation; the folder is unch",
    ):
        publish_stage(tmp_path / "out", "org/toy", kind)
    with pytest.raises(ArtifactError):
        publish_stage(tmp_path, "org/toy", kind)


def test_trackers_get_the_losses_and_scores_of_every_seed_and_change_no_result(
    checkpoint, card, tmp_path
):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    settings = {**vars(QUICK), "seeds": 2, "save": False}
    for name, trackers in (("out", ["tensorboard"]), ("plain", [])):
        finetune_stage(
            checkpoint,
            card,
            FinetuneSettings(**{**settings, "trackers": trackers}),
            tmp_path / name,
        )
    assert [path.name for path in tmp_path.glob("*-logs")] == ["out-logs"]
    one, other = (
        pq.read_table(tmp_path / name / "predictions.parquet") for name in ("out", "plain")
    )
    assert one.equals(other)
    for row in toy_kinds.metrics(tmp_path / "out")["seeds"]:
        [events] = (tmp_path / "out-logs" / f"seed-{row['seed']}").glob("*/events*")
        log = EventAccumulator(str(events)).Reload()
        losses, scores = log.Scalars("train/loss"), log.Scalars("dev/macro_f1")
        assert [event.step for event in losses] == list(range(1, 31))
        assert [event.step for event in scores] == [15, 30], "also those that decide nothing"
        assert scores[-1].value == pytest.approx(row["dev_score"])
        assert row["dev_scores"] == [row["dev_score"]]
