"""The commands that train models and use them.

They are ``dana adapt``, ``finetune``, ``probe``, ``predict`` and ``task``.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dana.cli.flags import (
    MANY,
    AddCommand,
    Flag,
    add_command,
    add_dry_run,
    add_group,
    add_inputs,
    add_remake,
    local_folder,
    plain_flags,
)
from dana.cli.settings import next_command, settings_folder, settings_from
from dana.core.errors import CheckWarning, ConfigError
from dana.core.files import paths_below
from dana.core.logging import is_main_process
from dana.core.text_table import tabulate

if TYPE_CHECKING:
    from dana.core.artifacts import Artifact
    from dana.stages.evaluate import Checkpoint
    from dana.stages.settings import RunSettings

SWITCH = {"nargs": 0, "const": True}
SIZES = "train a tokenizer and an encoder of this size instead: tiny, mini, small, medium, base"
ADAPT = [
    Flag("--model", "model", "checkpoint to adapt: a folder or a Hub name"),
    Flag("--from-scratch", "size", SIZES),
    *plain_flags("steps tokens epochs schedule", "adapt."),
    Flag(
        "--mix",
        "adapt.mix",
        "shares of the text by kind, such as '{selected: 0.7, pool: 0.3}'; also task",
    ),
    Flag(
        "--objective",
        "adapt.objective",
        "masked (masked:mask_rate=0.3), position, crops, next_sentence, causal, translation or distill:teacher=MODEL",
    ),
    *plain_flags("batch_size max_tokens learning_rate", "adapt."),
    Flag(
        "--denominator",
        "adapt.denominator",
        "batch, weight_sum or token_count: docs/design.md, Loss",
    ),
    *plain_flags("seed", "adapt."),
    *plain_flags("resume", "adapt.execution."),
    Flag("--layout", "adapt.execution.layout", "padded or unpadded; auto: by the device"),
    Flag("--track", "adapt.execution.trackers", "log to trackers: tensorboard, wandb", MANY),
]
DISTILL = plain_flags("steps learning_rate seed", "adapt.")
STATIC = "static"  # a student that is no checkpoint
CARDS = plain_flags("data task_path+")
WEIGHT = (
    "balanced: all classes count alike, whatever their number of texts; none (default: the card's)"
)
PRESET = "hyper-parameters: auto (by the checkpoint), or the card's paper, default or quick"
FINETUNE = [
    Flag("--task", "cards", "names or YAML files of task cards", MANY),
    *CARDS,
    Flag(
        "--text-field",
        "finetune.text_field",
        "field of the text, instead of the card's; a.b for a nested one",
    ),
    Flag("--label-field", "finetune.label_field", "field of the label, instead of the card's"),
    Flag("--id-field", "finetune.id_field", "field that names an example, instead of the card's"),
    Flag("--class-weight", "finetune.class_weight", WEIGHT),
    Flag("--seeds", "finetune.seeds"),
    Flag("--preset", "finetune.preset", PRESET),
    Flag(
        "--save",
        "finetune.save",
        "keep the model of the best seed, by development score, in OUT-model",
        SWITCH,
    ),
    Flag("--track", "finetune.trackers", "log each seed to trackers: tensorboard, wandb", MANY),
    Flag("--jobs", "jobs", "steps that run in parallel, each in its own process"),
    Flag("--out", "out", "folder of the result"),
]
PROBE = [
    Flag("--task", "cards", "names or YAML files of task cards", MANY),
    *CARDS,
    *FINETUNE[3:6],
    Flag("--sizes", "probe.sizes", options={"nargs": "+", "type": int}),
    *plain_flags("draws max_tokens", "probe."),
    Flag("--class-weight", "probe.class_weight", WEIGHT),
    Flag("--jobs", "jobs", "steps that run in parallel, each in its own process"),
    Flag("--out", "out", "folder of the result"),
]
READING = {
    "text_field": "field with the text, or a.b (default: the card's, or text)",
    "text_pair_field": "field with the second text, for a model of pairs (default: the card's)",
    "id_field": "field with the id (default: id, or the file and line)",
    "text_documents": "what one text of a .txt file is: line, paragraph, file or auto (default)",
    "on_bad_record": "fail (default) or skip records that cannot be read",
}


def add_training(add: AddCommand) -> None:
    """Add the command.

    Args:
        add: ``add_parser`` of the command line's subparsers.
    """
    folder = "pool/, weights/ and target/"
    adapt = add_command(add, "adapt", _adapt, ADAPT, folder=folder, reads=["pretrain"], json=True)
    adapt.set_defaults(processes=True)
    add_remake(adapt)
    adapt.add_argument(
        "--weights", type=local_folder, help="folder of the weights (default: DIR/weights)"
    )
    adapt.add_argument(
        "--unweighted", action="store_true", help="train on the whole pool with weight 1"
    )
    out = "folder of the model (default: DIR/adapted, or DIR/base with --from-scratch)"
    adapt.add_argument("--out", dest="to", metavar="OUT", type=local_folder, help=out)
    adapt.add_argument(
        "--push-to-hub",
        metavar="NAME",
        help="also upload the folder, privately, as organisation/name",
    )
    adapt.add_argument(
        "--resize-embeddings",
        action="store_true",
        help="give tokens that the model has no rows for the mean of their pieces' rows, in OUT-base",
    )

    distill = add_command(add, "distill", _distill, DISTILL, reads=["selection"], json=True)
    add_remake(distill)
    distill.add_argument(
        "teacher", metavar="TEACHER", help="the encoder to learn from: a folder or a Hub name"
    )
    students = f"{STATIC}, a vector for each token; or the checkpoint to train"
    distill.add_argument("student", metavar="STUDENT", help=students)
    runs = "a run's folder, of dana run or dana weigh"
    distill.add_argument(
        "--on", dest="folder", type=local_folder, required=True, metavar="RUN", help=runs
    )
    distill.add_argument(
        "--weights",
        type=local_folder,
        help="folder of the weights (default: RUN/weights, or those of the arm dana)",
    )
    distill.add_argument(
        "--out",
        dest="to",
        type=local_folder,
        metavar="OUT",
        help="folder of the model (default: RUN/distilled)",
    )


def add_tasks(add: AddCommand) -> None:
    """Add the commands.

    Args:
        add: ``add_parser`` of the command line's subparsers.
    """
    finetune = add_command(add, "finetune", _finetune, FINETUNE, reads=("model",), json=True)
    finetune.set_defaults(processes=True)
    add_remake(finetune)
    models = "checkpoints to fine-tune: folders or Hub names, or NAME=MODEL"
    finetune.add_argument("--model", dest="models", nargs="+", metavar="MODEL", help=models)
    push = "also upload the model of --save, privately, as organisation/name"
    finetune.add_argument("--push-to-hub", metavar="NAME", help=push)
    probe = add_command(add, "probe", _probe, PROBE, reads=("model", "finetune"), json=True)
    probe.set_defaults(processes=True)
    add_remake(probe)
    add_dry_run(probe)
    models = "checkpoints to probe: folders or Hub names, or NAME=MODEL"
    probe.add_argument("--model", dest="models", nargs="+", metavar="MODEL", help=models)
    predict = add_command(add, "predict", _predict, settings=False, json=True)
    predict.add_argument(
        "model",
        help="folder of a run or of a model, or a classifier of the Hub",
    )
    predict.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="files, folders, globs or URLs of text, hf: names, or - for standard input",
    )
    predict.add_argument(
        "--out",
        type=Path,
        help="a .csv, .parquet or .jsonl file (default: JSON lines to standard output)",
    )
    for name, text in READING.items():
        predict.add_argument(f"--{name.replace('_', '-')}", help=text)
    add_inputs(predict)
    _add_task_cards(add)


def _adapt(args: argparse.Namespace) -> dict[str, Any]:
    """Continue pretraining a language model on the weighted text.

    After a stop or kill the same command resumes from the newest checkpoint; SIGTERM and SIGUSR1
    save first and end with exit code 75. Several processes: accelerate launch --config_file
    accelerate_configs/X.yaml recipes/adapt.py.

    Writes DIR/adapted, a Hugging Face folder that from_pretrained opens without dana, with
    training.jsonl: the loss on held-out target text and on held-out pool text before, during and
    after training.

    --from-scratch SIZE trains a WordPiece tokenizer and a new encoder on DIR/pool by the same
    loop, into DIR/base. Its settings are those of the section pretrain; flags such as --steps fill
    them.
    """
    from dana.core.config import require
    from dana.core.remake import call_remaking
    from dana.stages.recipe import settings_of_call
    from dana.stages.texts import held_out_folders
    from dana.stages.training import adapt_stage, pretrain_stage

    folder = args.folder
    is_new = args.size is not None
    if args.unweighted and args.weights:
        raise ConfigError("--weights has no effect with --unweighted; remove one of them")
    if is_new:
        _refuse_flags_of_a_model(args)
    settings = settings_from(args)
    usual = folder / ("base" if is_new else "adapted")
    out = args.to or usual
    texts = held_out_folders(folder)
    pool = folder / "pool"

    def pretrain() -> "Artifact":
        given = settings_of_call(settings, args.explicit, ["pretrain"])
        return pretrain_stage(settings.size, pool, *texts, settings.pretrain, out, given)

    def adapt() -> "Artifact":
        weights = None
        if not args.unweighted:
            weights = args.weights or folder / "weights"
        given = settings_of_call(settings, args.explicit, ["model", "adapt"])
        language = settings.selection.language
        model = str(settings.model)
        if args.resize_embeddings:
            from dana.stages.convert import resized_model

            model = resized_model(model, out.with_name(f"{out.name}-base"))
        return adapt_stage(model, pool, weights, *texts, settings.adapt, out, given, language)

    if not is_new:
        form = "the checkpoint to adapt: a folder or a Hub name"
        require(bool(settings.model), "--model", settings.model, form)
    artifact = call_remaking(pretrain if is_new else adapt, args.remake)
    print(f"written: {artifact.path}")
    answer = {"model": artifact.path, "counts": artifact.manifest["counts"]}
    answer |= publish(artifact.path, args.push_to_hub, "model")
    if is_new:
        print(next_command("adapt", folder, "--model", artifact.path))
    else:
        note = "or, with labelled data, dana finetune: docs/guide/finetuning.md"
        print(next_command("report", folder, note=note))
    return answer


def _refuse_flags_of_a_model(args: argparse.Namespace) -> None:
    """Refuse flags that say how a model is adapted, where a new one is trained.

    Raises:
        ConfigError: Names the flag.
    """
    for name in ("model", "weights", "unweighted", "resize_embeddings"):
        if getattr(args, name):
            flag = f"--{name.replace('_', '-')}"
            raise ConfigError(f"{flag} has no effect with --from-scratch; remove one of them")


def _distill(args: argparse.Namespace) -> dict[str, Any]:
    """Teach a small model the vectors that an encoder gives to the text that a run selected.

    The student static has a vector for each token of the teacher, and of a text their mean: no
    transformer runs, so it encodes hundreds of times as many texts a second. It opens in
    sentence-transformers. It takes what the teacher takes to read up to 100,000 sentences once.

    A checkpoint as student is trained by the objective distill, as by dana adapt --objective
    distill:teacher=TEACHER, which also runs on several processes. See docs/guide/distillation.md.

      dana distill tickets/encoder static --on tickets --out tickets-static
      dana distill all-mpnet-base-v2 minilm --on runs/notes --steps 150
    """
    from dana.core.remake import call_remaking

    settings = settings_from(args)
    out = args.to or args.folder / "distilled"
    is_static = args.student == STATIC
    artifact = call_remaking(
        lambda: _student(args, settings, out, is_static=is_static), args.remake
    )
    print(f"written: {artifact.path}")
    answer = {"model": artifact.path, "counts": artifact.manifest["counts"]}
    if is_static:
        from dana.stages.distill import cosine_text

        answer["cosine"] = artifact.manifest["cosine"]
        found = cosine_text(artifact.manifest["cosine"])
        print(f"mean cosine with the teacher's vectors on held-out sentences: {found}")
    return answer


def _student(
    args: argparse.Namespace, settings: "RunSettings", out: Path, *, is_static: bool
) -> "Artifact":
    """Make the student of ``dana distill``."""
    from dana.stages.distill import find_weights, static_stage, taught_settings
    from dana.stages.recipe import settings_of_call
    from dana.stages.texts import held_out_folders
    from dana.stages.training import TrainingData, adapt_stage

    folder = args.folder
    texts = held_out_folders(folder)
    weights = args.weights or find_weights(folder)
    language = settings.selection.language
    if is_static:
        given = {key for key in args.explicit if key.startswith("adapt.")} - {"adapt.seed"}
        if given:
            raise ConfigError(f"{min(given)} has no effect with the student static; remove it")
        data = TrainingData(folder / "pool", weights, *texts, language=language)
        return static_stage(args.teacher, data, out, settings.adapt.seed)
    adapt = taught_settings(settings.adapt, args.teacher, args.explicit)
    call = settings_of_call(settings, args.explicit, ["adapt"])
    return adapt_stage(args.student, folder / "pool", weights, *texts, adapt, out, call, language)


def publish(folder: Path, name: str | None, kind: str) -> dict[str, str]:
    """Upload a model to the Hub if a name is set, on the first process.

    Returns:
        Its URL as ``hub``; empty if nothing was uploaded.
    """
    if not name or not is_main_process():
        return {}
    from dana.stages.training import publish_stage

    url = publish_stage(folder, name, kind)
    print(f"uploaded: {url}")
    return {"hub": url}


def _finetune(args: argparse.Namespace) -> dict[str, Any]:
    """Fine-tune checkpoints on labelled tasks, once per seed.

    With the same seed all checkpoints share the initial head and the order of the data. Writes
    OUT/metrics.json (one row per seed, mean, standard deviation with ddof 1, n) and
    OUT/predictions.parquet. --save also writes OUT-model: a Hugging Face folder with the model of
    the best seed by development score, for dana predict.

    Several --model or --task are ranked: a result each in OUT/finetune/TASK/NAME,
    OUT/leaderboard.csv (per checkpoint and task: mean, standard deviation with ddof 1, 95 %
    interval over seeds), leaderboard.json (with provenance) and report.html. A checkpoint is named
    by the last part of its path, or by NAME=MODEL; one that is named base is compared with the
    others, pair by pair over seeds and test examples.

    After a kill the same command resumes with what is missing; SIGTERM and SIGUSR1 end with exit
    code 75. More --seeds, checkpoints or tasks extend a finished result. See
    docs/guide/finetuning.md.

      dana finetune --model base=bert-base-uncased mine=runs/mine/adapted --task chemprot acl_arc
      --out runs/board
    """
    from dana.core.config import require
    from dana.stages.evaluate import Checkpoint
    from dana.tasks.card import load_card
    from dana.tasks.examples import fold_count

    settings = settings_from(args)
    models = args.models or [settings.model or ""]
    require(all(models), "--model", models, "the checkpoint to fine-tune: a folder or a Hub name")
    require(bool(settings.cards), "--task", settings.cards, "at least one card")
    several = len(models) > 1 or len(settings.cards) > 1
    is_saved = settings.finetune.save and not several
    hint = "used with --save, which writes the model, one --model and one --task"
    require(is_saved or not args.push_to_hub, "--push-to-hub", args.push_to_hub, hint)
    if args.push_to_hub:
        for card in map(load_card, settings.cards):
            hint = f"left out: {card.name} has folds, and --save keeps a model of each"
            require(fold_count(card, settings.data) <= 1, "--push-to-hub", args.push_to_hub, hint)
    if several:
        checkpoints = [Checkpoint.parse(model) for model in models]
        return _evaluate(checkpoints, settings, args.remake)
    model = Checkpoint.parse(models[0]).model
    answer = _finetune_one(model, settings, settings_folder(args, settings), args.remake)
    return answer | publish(Path(f"{answer['out']}-model"), args.push_to_hub, "classifier")


def _finetune_one(model: str, settings: "RunSettings", run: Path, remake: bool) -> dict[str, Any]:
    """Fine-tune one checkpoint on one task; `run` is the run's folder."""
    from dana.core.artifacts import read_json
    from dana.stages.finetune import finetune_stage, finetune_text

    out = Path(settings.out)
    artifact = finetune_stage(
        model,
        settings.cards[0],
        settings.finetune,
        out,
        settings.data,
        with_baselines=True,
        remake=remake,
        jobs=settings.jobs,
    )
    print(finetune_text(artifact))
    print(f"\nwritten: {artifact.path}")
    if run != artifact.path:
        print(next_command("report", run))
    folder = Path(f"{artifact.path}-model")
    if folder.is_dir():  # with folds there is one of each
        print(f"model:   dana predict {folder} FILE labels text with the best seed")
    return {"out": artifact.path, **read_json(artifact.path / "metrics.json")}


def _evaluate(
    checkpoints: Sequence["Checkpoint"], settings: "RunSettings", remake: bool
) -> dict[str, Any]:
    """Fine-tune every checkpoint on every task and rank them."""
    from dana.core.artifacts import read_json
    from dana.stages.evaluate import leaderboard, run_evaluate

    table = run_evaluate(checkpoints, settings, remake)
    print(leaderboard(table))
    for file in paths_below(Path(settings.out), "baselines/*/*/metrics.json"):
        baseline = read_json(file)
        score = f"{baseline['metric']} {baseline['mean']:.4f}"
        print(f"baseline {file.parent.name} on {baseline['task']}: {score}")
    for name in ("leaderboard.csv", "leaderboard.json", "report.html"):
        print(f"written: {Path(settings.out) / name}")
    return {"out": settings.out, "results": table.to_dict("records")}


def _probe(args: argparse.Namespace) -> dict[str, Any]:
    """Probe checkpoints on labelled tasks without training them: what do their vectors say?

    The vectors are pooled as the checkpoint's modules.json says, else by the mean. A linear model
    is fitted to 50, 100, 200, 500 and all labels, in ten draws that all checkpoints share, and
    tested on all test texts; beside it the nearest labelled texts vote. Seconds for a small model
    on 500 texts. A task whose words have labels has no probe. A static model of dana distill is
    probed like a checkpoint; its texts are never cut.

    Writes OUT/probe/TASK/NAME/FOLD, OUT/report.html and its tables. A checkpoint is named by the
    last part of its path, or by NAME=MODEL; one that is named base is compared with the others,
    draw by draw over test texts. The same command resumes. See docs/guide/probe.md.

      dana probe --model base=dana-mini mine=runs/mine/adapted --task chemprot --out runs/probe
    """
    from dana.core.config import require
    from dana.stages.evaluate import Checkpoint
    from dana.stages.plan import plan_text
    from dana.stages.run_probe import plan_probe, probe_text, run_probe

    settings = settings_from(args)
    models = args.models or [settings.model or ""]
    require(all(models), "--model", models, "the checkpoint to probe: a folder or a Hub name")
    require(bool(settings.cards), "--task", settings.cards, "at least one card")
    checkpoints = [Checkpoint.parse(model) for model in models]
    if args.dry_run:
        print(plan_text(plan_probe(checkpoints, settings), names_all=True))
        return {"out": settings.out}
    table = run_probe(checkpoints, settings, args.remake)
    folder = Path(settings.out)
    print(probe_text(folder))
    print(f"\nwritten: {folder / 'report.html'}")
    return {"out": folder, "results": table.to_dict("records")}


def _predict(args: argparse.Namespace) -> dict[str, Any]:
    """Label new text with the model of a run, or with a fine-tuned one.

    MODEL is the folder of dana run, of its model, of dana finetune --save, or any sequence
    classifier of transformers. FILE has any format that dana reads (docs/guide/inputs.md); - is
    standard input. Columns are those of the table that dana init read; encoding and separator
    are found by looking. One row per text: id, text (and text_pair for a model of pairs), label,
    probability, and whether the text is unlike those that the model of a run was trained on, whose
    share is said.

      dana predict tickets new.csv --out labelled.csv
      dana predict runs/chem/finetune-model abstracts.jsonl --out labelled.parquet
      dana predict runs/chem/finetune-model notes.txt | head
    """
    from dana.core.config import require
    from dana.stages.predict import (
        NewText,
        check_out,
        label_texts,
        open_text_model,
        to_lines,
        write_predictions,
    )
    from dana.stages.settings import inputs_from

    given = {name: getattr(args, name) for name in READING}
    options = {name: value for name, value in given.items() if value is not None}
    text = NewText(args.files, form=inputs_from(args.inputs), **options)
    form = "with --out; without, each line is JSON"
    require(args.out is not None or not args.json, "--json", args.json, form)
    text.check_files()
    if args.out is not None:
        check_out(args.out, text)
    model = open_text_model(args.model)
    tables = label_texts(model, text)
    if args.out is None:
        for table in tables:
            sys.stdout.write(to_lines(table))
        return {}
    written = write_predictions(tables, args.out, model.columns.separator)
    print(f"written: {args.out} ({written['texts']:,} texts)")
    return {"out": args.out, **written}


def _add_task_cards(add: AddCommand) -> None:
    """Add the group of commands for task cards."""
    tasks = add_group(
        add, "task", "labelled tasks, each described by a card: list, show, check, words"
    )
    listing = add_command(tasks, "list", _list, CARDS, settings=False, json=True)
    listing.add_argument("--tag", metavar="TAG", help="only the cards with this tag")
    show = add_command(tasks, "show", _show, CARDS, settings=False)
    check = add_command(tasks, "check", _check, CARDS, settings=False)
    words = add_command(tasks, "words", _words, CARDS, settings=False, json=True)
    for parser in (show, check, words):
        parser.add_argument("name", metavar="NAME", help="a task card's name or YAML file")
    pool = (
        "text whose overlap with the test split is measured: files, folders, globs, URLs or "
        "hf: names"
    )
    check.add_argument("--pool", nargs="+", default=(), metavar="FILE", help=pool)
    words.add_argument(
        "--model", required=True, metavar="MODEL", help="model to adapt: a folder or a Hub name"
    )
    text = "text that would be trained on: files, folders, globs, URLs or hf: names"
    words.add_argument("--pool", nargs="+", default=(), metavar="FILE", help=text)
    check.add_argument("--strict", action="store_true", help="exit code 1 if there is a warning")


def _list(args: argparse.Namespace) -> dict[str, Any]:
    """List the task cards, one per line.

    Columns: metric, number of labels, expected examples per split, whether the data is local, on
    the Hub or missing, and tags.
    """
    from dana.tasks import card, finder, tables

    finder.add_to_task_path(args.task_path or [])
    rows = tables.card_rows(map(card.load_card, finder.card_names()), args.data, args.tag)
    print(tabulate(rows))
    return {"tasks": rows}


def _show(args: argparse.Namespace) -> None:
    """Show a card as it is used, its file and the files of its data."""
    from dana.tasks import card, finder, tables

    finder.add_to_task_path(args.task_path or [])
    print(tables.card_text(card.load_card(args.name), args.data), end="")


def _check(args: argparse.Namespace) -> None:
    """Check a task's data: read every split and report on it.

    Reports sizes, label shares, lengths, empty texts, duplicates and texts shared by splits; each
    warning says what to do.

      dana task check acl_arc --pool 'pool/*.jsonl.gz'
    """
    from dana.stages.check_task import check_task
    from dana.tasks.finder import add_to_task_path

    add_to_task_path(args.task_path or [])
    check = check_task(args.name, args.data, args.pool)
    print(check)
    if args.strict and check.warnings:
        raise CheckWarning(f"{args.name}: has warnings, see above ({len(check.warnings)})")


def _words(args: argparse.Namespace) -> dict[str, Any]:
    """Show the words of a task that a model breaks into pieces, and what new tokens would save.

    Words of the training texts, and of --pool, of several pieces: those in the most pieces, those
    that save the most tokens, and the share of the tokens that 100, 1,000 and 5,000 new tokens
    would save. dana adapt --set adapt.vocabulary=N adds N of them to the model. Test texts are not
    read.

      dana task words chemprot --model minilm --pool 'pool/*.jsonl.gz'
    """
    from dana.stages.words import task_words
    from dana.tasks.finder import add_to_task_path

    add_to_task_path(args.task_path or [])
    words = task_words(args.name, args.model, args.data, args.pool)
    print(words)
    return {"broken": words.broken, "saving": words.saving, "savings": words.savings}
