"""What a user can get wrong, one row per rule: exit code 2, one line that names key or file, nothing half-written."""

# ruff: noqa: F811  fixtures are imported by name

import sys
from contextlib import contextmanager
from importlib.metadata import EntryPoint
from types import ModuleType

import pytest
import torch

from dana.cli.main import main
from dana.core import registry
from dana.core.errors import ArtifactError, ConfigError, Contradiction, DataError, PluginError
from dana.core.settings import load
from dana.selectors.base import Selector
from dana.stages.settings import RunSettings
from tests.bad_input import (  # noqa: F401
    AUTO,
    EVALUATE,
    PREDICT,
    RANK,
    SCORE,
    SELECT,
    TRAIN,
    TUNE,
    TUNE_ONLY,
    WEIGH,
    card,
    config,
    empty_task_path,
    refuse,
    remove,
    text,
    truncate,
    unreadable,
    workspace,
    workspace_copy,
)

COMMANDS = [
    # A required argument is missing or empty.
    ("score --pool {pool} --out {out}", "task", ConfigError),
    ("score --task {task} --out {out}", "pool", ConfigError),
    ("adapt {run} --steps 2", "--model", ConfigError),
    ("finetune --model {model} --out {out}", "--task", ConfigError),
    ("finetune --task {card} --out {out}", "--model", ConfigError),
    (RANK + "--encoder ''", "--encoder", ConfigError),
    (RANK + "--out=", "--out", ConfigError),
    ("weigh ''", "weigh", ConfigError),
    ("run quickstart.yaml --set task= model=null size=huge", "task", ConfigError),
    # A path does not exist.
    ("score --task {folder}/nope.txt --pool {pool} --out {out}", "nope.txt", DataError),
    ("score --task {task} --pool '{folder}/*.nope' --out {out}", "*.nope", DataError),
    (RANK + "--data {folder}/nope --task chemprot", "nope", DataError),
    ("weigh {folder}/nope", "nope", ArtifactError),
    (TRAIN + "--model {folder}/nope", "nope", ArtifactError),
    (TRAIN + "--weights {folder}/nope", "nope", ArtifactError),
    (TUNE + "--task {folder}/nope.yaml", "nope.yaml", ConfigError),
    ("predict {labeller} {folder}/nope.txt", "nope.txt", DataError),
    ("files average {model} {folder}/nope --alpha 0.5 --out {out}", "nope", ArtifactError),
    (
        "files average {model} {model} --alpha auto --on {folder}/nope --out {out}",
        "nope",
        ArtifactError,
    ),
    ("files average {model} {model} --alpha 2 --out {out}", "alpha", ConfigError),
    ("files average {model} {model} --alpha auto --out {out}", "on=", ConfigError),
    ("files average {model} {model} --alpha 0.5 --on {run} --out {out}", "on=", ConfigError),
    (
        "files average {model} dana-mini --alpha 0.5 --out {out}",
        ("dana-mini", "architecture"),
        ConfigError,
    ),
    ("run {folder}/nope.yaml", "nope.yaml", ConfigError),
    ("init {folder}/nope.csv --pool {pool} --out {out}", "nope.csv", DataError),
    ("init {task} --pool {folder}/nope --out {out}", "nope", DataError),
    ("task list --task-path {folder}/crads", ("crads", "did you mean", "cards"), ConfigError),
    # A path is something else.
    ("weigh {task}", "task.jsonl", ArtifactError),
    ("weigh {run}/pool --out {out}", "scores", ArtifactError),
    (TRAIN + "--model {folder}/cards", "cards", ArtifactError),
    (TRAIN + "--weights {run}/pool", "pool", ArtifactError),
    ("adapt {run} --model {model} --out {run}/pool", "pool", ArtifactError),
    (TUNE + "--task {task}", "task.jsonl", ConfigError),
    ("predict {model} {pool}", "model", ArtifactError),
    ("report {folder}/cards", "cards", ArtifactError),
    ("run {card}", "unknown key", ConfigError),
    ("run {folder}/cards", "recipe.yaml", ConfigError),
    ("init {pool} --pool {pool} --label source --out {run}", ("run", "--out"), ArtifactError),
    ("init {task} --pool {pool} --out {out}", "--label", ConfigError),
    ("init {pool} --pool {pool} --label sourc --out {out}", "did you mean 'source'?", ConfigError),
    ("init {pool} --pool {pool} --folds 90 --out {out}", ("90 folds", "--folds"), ConfigError),
    # A name is unknown; the nearest is suggested.
    ("score --task chemport --pool {pool} --out {out}", "did you mean 'chemprot'?", DataError),
    (RANK + "--task toys --task-path {folder}/cards", "did you mean 'toy'?", DataError),
    (RANK + "--set 'ranking.detectors=[ifrest]'", "did you mean 'iforest'?", PluginError),
    (SELECT + "cascade:detector=knm", "did you mean 'knn'?", PluginError),
    (RANK + "--set 'ranking.detectors=[pyod:Nope]'", "Nope", PluginError),
    (RANK + "--set selection.encodr=1", "did you mean 'encoder'?", ConfigError),
    (RANK + "--text-field nope", "nope", DataError),
    (RANK + "--decontaminate nope", "nope", ConfigError),
    (TUNE_ONLY + "--preset quik", "quik", ConfigError),
    (TUNE_ONLY + "--track nope", "trackers='nope': must be an installed tracker", ConfigError),
    (
        TUNE_ONLY + "--set finetune.learning_rate=fast",
        "learning_rate='fast': must be above 0, or auto",
        ConfigError,
    ),
    (TUNE_ONLY + "--set finetune.steps=-1", "steps=-1: must be at least 0", ConfigError),
    (
        TUNE_ONLY + "--set finetune.pooling=markers",
        "pooling='markers': must be cls or mean",
        ConfigError,
    ),
    (TRAIN + "--set adapt.execution.trackers=[nope]", "nope", ConfigError),
    ("adapt {run} --out {out} --from-scratch huge", "size", ConfigError),
    ("adapt {run} --from-scratch tiny --unweighted", "--unweighted has no effect", ConfigError),
    (
        "adapt {run} --from-scratch tiny --resize-embeddings",
        "--resize-embeddings has no effect",
        ConfigError,
    ),
    ("adapt {run} --from-scratch tiny --model {model}", "--model has no effect", ConfigError),
    ("adapt {run} --from-scratch tiny --weights {run}/weights", "--weights has no", ConfigError),
    ("adapt {run} --model {model} --out .", ".: not empty", ArtifactError),
    ("run quikstart", "did you mean 'quickstart'?", ConfigError),
    ("run quickstart.yaml --set arms=[nope]", "nope", ConfigError),
    # A parameter of a component is wrong.
    (RANK + "--set 'ranking.detectors=[knn:k=0]'", "k=0", ConfigError),
    (RANK + "--set 'ranking.detectors=[knn,knn]'", "knn", ConfigError),
    (RANK + "--geometry center+l3", "l3", ConfigError),
    (RANK + "--units window:0", "window:0", ConfigError),
    (RANK + "--units window:64", "tokenizer", ConfigError),
    ("plugins check selector cascade:keep=2", "keep", ConfigError),
    # A number or a word is not allowed where text is read first; see SETTINGS for the others.
    (RANK + "--set ranking.seeds=many", "ranking.seeds", ConfigError),
    (RANK + "--set nope", "nope", ConfigError),
    (RANK + "--set 'selection.units=[1'", "selection.units", ConfigError),
    (SCORE + "--shard 5/4", "5/4", ConfigError),
    (SCORE + "--shard 1/2", "task", ArtifactError),
    (TRAIN + "--max-tokens 4096", "max_tokens", ConfigError),
    (WEIGH + "--below -1000", "below=-1000", DataError),
    (WEIGH + "--balance genres", "genres", ConfigError),
    # A flag has no effect, or contradicts another.
    (PREDICT.replace("--out {out}.jsonl", "--json"), "--json", ConfigError),
    (WEIGH + "--budget '5 tokens'", "tokenizer", ConfigError),
    (WEIGH + "--below 0 --policy sampled", "below", ConfigError),
    (WEIGH + "--budget '10 documents' --set weigh.stream=true", "stream=true", ConfigError),
    ("weigh {run} --beta 0.5", "beta", Contradiction),
    ("weigh {run} {folder}/other --out {out}", "2 runs", ConfigError),
    (TRAIN + "--tokens 100 --steps 2", "tokens", ConfigError),
    (TRAIN + "--unweighted --weights {run}/weights", "--unweighted", ConfigError),
    (TRAIN + "--objective next_sentence --layout unpadded", "next_sentence", ConfigError),
    (EVALUATE + "a={model} a={labeller}", "a", ConfigError),
    ("report {run} --out {out}", "--compare", ConfigError),
    ("report --compare {run} {run}/weights/.. --out {out}", "run", ConfigError),
    (PREDICT + "--out {out}.xml", "--out", ConfigError),
    (PREDICT + "--out {pool}", "pool.jsonl", ArtifactError),
]

SETTINGS = """
selection=3 selection.pool_share=2 selection.pool_share=.nan selection.store_dtype=float8
selection.language=english selection.max_target_units=0 selection.encoder=null inputs.text_documents=page
on_bad_record=ignore arms=[dana,dana]
hygiene.ngram=0 hygiene.near_duplicates=0.995 hygiene.near_duplicates=0 hygiene.sample=0 hygiene.sample=1.01
ranking.seeds=0 ranking.folds=1 ranking.prevalence=1 ranking.protocol=mine
weigh.policy=best weigh.beta=0 weigh.beta=most weigh.beta=1.4 weigh.beta=.nan weigh.gamma=0 weigh.gamma=1.5
weigh.sharpness=.inf weigh.sharpness=-1 weigh.midpoint=.nan weigh.below=.nan weigh.min_tail=99 weigh.shrink=perhaps
weigh.gamma=1e12 weigh.balance=nowhere:0= weigh.budget=50 weigh.budget=50pages weigh.budget=0units
pretrain.vocabulary=3 pretrain.vocabulary=2000000 pretrain.max_positions=2000000 pretrain.max_tokens=4000
pretrain.dropout=2
seeds.adaptations=0 seeds.finetunings=0
finetune.seeds=0 finetune.seeds=[0,0] finetune.epochs=0 finetune.batch_size=0 finetune.max_tokens=1 finetune.max_train=0
finetune.evaluate=middle finetune.warmup=1 finetune.save=perhaps finetune.learning_rate=.inf
"""

FILES = [
    # Text.
    (RANK, "task.jsonl", text("task.jsonl", ""), DataError),
    (RANK, "task.jsonl:1", text("task.jsonl", "{not json\n"), DataError),
    (RANK, ("task.jsonl:1", "'text'"), text("task.jsonl", '{"body": "x"}\n'), DataError),
    (RANK, "task.jsonl", text("task.jsonl", b'{"text": "\xff\xfe"}\n'), DataError),
    (RANK, "task", text("task.jsonl", '{"text": "Only one sentence."}\n'), DataError),
    (RANK, "pool.jsonl", text("pool.jsonl", b"\x00\x01\x02\x03" * 50), DataError),
    (RANK + "--pool {bad}.docx", "bad.docx", text("bad.docx", "what is this"), DataError),
    (RANK + "--pool {bad}", "bad", lambda at: at.bad.mkdir(), DataError),
    (RANK + "--pool {bad}", "bad", lambda at: at.bad.symlink_to(at.folder / "gone"), DataError),
    (RANK + "--task {bad}.jsonl", "bad.jsonl", unreadable("bad.jsonl"), DataError),
    # Recipes.
    (RANK + "--config {bad}.yaml", "bad.yaml:2", text("bad.yaml", "a: [1\n"), ConfigError),
    (
        RANK + "--config {bad}.yaml",
        ("bad.yaml", "weigh.beata"),
        text("bad.yaml", "weigh: {beata: 1}\n"),
        ConfigError,
    ),
    # Folders that cannot be written.
    (RANK + "--out {task}/deeper", "task.jsonl", lambda at: None, None),
    (RANK + "--out /proc/nope", "/proc/nope", lambda at: None, None),
    (RANK + "--store {task}", "task.jsonl", lambda at: None, ConfigError),
    (RANK, "pool", text("out/pool/mine.txt", "somebody's own file"), ArtifactError),
    (TRAIN + "--out /proc/nope", "/proc/nope", lambda at: None, None),
    (
        TRAIN + "--out {bad}",
        "is a file or a link",
        lambda at: at.bad.symlink_to(at.folder),
        ArtifactError,
    ),
    # Damaged artifacts.
    ("weigh {run}", "recipe.yaml", text("run/recipe.yaml", "a: [1"), ConfigError),
    (
        "weigh {run} --out {out}",
        "scores",
        text("run/scores/__dana__/manifest.json", "{"),
        ArtifactError,
    ),
    (
        "weigh {run} --out {out}",
        "part-00000.parquet",
        truncate("run/scores/part-00000.parquet"),
        ArtifactError,
    ),
    (
        "weigh {run} --out {out}",
        "scores",
        remove("run/scores/part-00000.parquet"),
        ArtifactError,
    ),
    ("weigh {run} --out {out}", "pool", remove("run/pool"), ArtifactError),
    (AUTO, "ranking", text("run/ranking/__dana__/manifest.json", "[]"), ArtifactError),
    (TRAIN, "weights", remove("run/weights"), ArtifactError),
    (
        "report {run}",
        "metrics.json",
        text("run/finetune/toy/base/metrics.json", "{"),
        ArtifactError,
    ),
    # Checkpoints.
    (TRAIN, "model", truncate("model/model.safetensors"), ArtifactError),
    (TRAIN, "model", text("model/config.json", "[]"), ArtifactError),
    (TRAIN, "model", config(hidden_size=64), ArtifactError),
    (TRAIN, "tokenizer", remove("model/tokenizer.json"), ArtifactError),
    (PREDICT, "labeller", truncate("labeller/model.safetensors"), ArtifactError),
    # Task cards and their data; tests/tasks has a row per key.
    (TUNE, "toy.yaml", text("cards/toy.yaml", ""), ConfigError),
    (TUNE, "metric", card(metric="bleu"), ConfigError),
    (TUNE, "bird", card(labels=["fruit", "metal"]), DataError),
    (
        TUNE,
        ("train.jsonl:1", "fruit"),
        card(kind="regression", metric="mae", labels=None),
        DataError,
    ),
    (TUNE, "dev", remove("cards/toy/dev.jsonl"), DataError),
    (TUNE, "train.jsonl:1", text("cards/toy/train.jsonl", "{\n"), DataError),
    ("task check {card}", "dev.jsonl", text("cards/toy/dev.jsonl", "\n"), DataError),
]

ENVIRONMENT = [
    ("WORLD_SIZE", "1.5", TRAIN, "WORLD_SIZE", ConfigError),
    ("RANK", "-1", "plugins list", "RANK", ConfigError),
    ("DANA_DATA", "/nope", RANK + "--task chemprot", "/nope", DataError),
    ("DANA_TASK_PATH", "/nope", RANK + "--task words", "/nope", ConfigError),
]


@pytest.mark.parametrize("line", [TRAIN, TUNE, PREDICT, SELECT + "random"])
def test_what_the_rows_change_is_accepted(line, workspace_copy, capfd):
    """Else they would be refused for another reason; the lines of rank, score and weigh made the workspace."""
    assert main(workspace_copy.line(line)) == 0


@pytest.mark.parametrize(("line", "names", "error"), COMMANDS, ids=[row[0] for row in COMMANDS])
def test_command_lines_that_are_refused(line, names, error, workspace, capfd, monkeypatch):
    monkeypatch.chdir(workspace.folder)
    refuse(line, names, workspace, capfd, error=error)


@pytest.mark.parametrize("setting", SETTINGS.split())
def test_a_value_that_is_not_allowed_is_refused_by_its_key(setting):
    key = setting.partition("=")[0].rpartition(".")[2]
    with pytest.raises(ConfigError) as error:
        load(RunSettings, {}, [setting])
    assert f"{key}=" in str(error.value)


@pytest.mark.parametrize(
    ("line", "names", "damage", "error"),
    FILES,
    ids=[f"{at}-{row[1]}" for at, row in enumerate(FILES)],
)
def test_files_that_are_refused(line, names, damage, error, workspace_copy, capfd, monkeypatch):
    monkeypatch.chdir(workspace_copy.folder)
    damage(workspace_copy)
    refuse(line, names, workspace_copy, capfd, error=error)


@pytest.mark.parametrize(("name", "value", "line", "names", "error"), ENVIRONMENT)
def test_environments_that_are_refused(
    name, value, line, names, error, workspace, capfd, monkeypatch
):
    monkeypatch.setenv(name, value)
    refuse(line, names, workspace, capfd, error=error)


@contextmanager
def full_disk(size):
    """Let no file grow beyond a size."""
    import resource

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


LINUX = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="limits the size of files as Linux does"
)


@LINUX
@pytest.mark.parametrize("line", [SCORE, WEIGH])
def test_a_full_disk_is_one_line(line, workspace, capfd):
    with full_disk(1000):
        refuse(line, "too large", workspace, capfd)


@LINUX
@pytest.mark.parametrize(
    ("line", "size", "reason"),
    [
        (SCORE.replace("knn", "lof"), 9000, "cannot write the cache of embeddings"),
        (TUNE + "--save", 20_000, "File too large"),
        (TRAIN, 20_000, "File too large"),
    ],
)
def test_a_full_disk_under_safetensors_is_one_line_and_the_same_command_goes_on(
    line, size, reason, workspace_copy, capfd
):
    with full_disk(size):
        assert main(workspace_copy.line(line)) == 2
    output = capfd.readouterr().err
    assert (
        len([message for message in output.splitlines() if message.startswith("dana: error:")]) == 1
    )
    assert reason in output
    assert "Traceback" not in output
    assert main(workspace_copy.line(line)) == 0


def test_a_store_that_cannot_be_written_is_refused_after_the_texts(workspace, capfd):
    refuse(RANK + "--store /proc/nope", "/proc/nope", workspace, capfd, stays=("target", "pool"))


class Encodes:
    def identity(self):
        return {"encoder": "mine"}

    def encode(self, texts):
        return torch.ones(len(texts), 3)


class Fits:
    def fit(self, embeddings, seed):
        return self

    def to(self, device):
        return self


def fail(*inputs):
    return 1 / 0


# A line that names it, what a plug-in is, and its methods that are wrong.
PLUG_INS = {
    "FailsToEncode": (RANK + "--encoder NAME", Encodes, {"encode": fail}),
    "GivesOneRow": (
        RANK + "--encoder NAME",
        Encodes,
        {"encode": lambda self, texts: torch.ones(1, 3)},
    ),
    "FailsToIdentify": (RANK + "--encoder NAME", Encodes, {"identity": fail}),
    "FailsToBeMade": (RANK + "--encoder NAME", Encodes, {"__init__": fail}),
    "NotThere": (RANK + "--encoder NAME", None, {}),
    "FailsToFit": (RANK.replace("knn", "NAME"), Fits, {"fit": fail}),
    "FailsToScore": (RANK.replace("knn", "NAME"), Fits, {"score": fail}),
    "FailsToSelect": (SELECT + "NAME", Selector, {"learn": fail}),
    "IsNoSelector": (SELECT + "NAME", Fits, {}),
}


@pytest.mark.parametrize("name", PLUG_INS)
def test_plug_ins_that_fail_are_named_with_their_package(name, workspace_copy, capfd, monkeypatch):
    line, base, methods = PLUG_INS[name]
    module = ModuleType("somebodys")
    if base:
        setattr(module, name, type(name, (base,), {**methods, "__module__": "somebodys"}))
    monkeypatch.setitem(sys.modules, "somebodys", module)
    ours, entry = registry.entry_points, EntryPoint(name, f"somebodys:{name}", "")
    monkeypatch.setattr(registry, "entry_points", lambda group: [*ours(group=group), entry])
    stays = ("target", "pool", "embeddings")
    refuse(
        line.replace("NAME", name), ("somebody", name), workspace_copy, capfd, stays, PluginError
    )
