"""Adapt a checkpoint to weighted text and fine-tune checkpoints on labelled tasks."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from dana.api.inputs import Texts, write_card
from dana.api.keywords import Folder, full_names, run_folder, settings_of, with_messages
from dana.core.artifacts import Artifact
from dana.core.config import require
from dana.core.errors import DataError
from dana.core.remake import call_remaking
from dana.stages.recipe import settings_of_call

if TYPE_CHECKING:
    import pandas as pd
    from datasets import Dataset

    from dana.stages.evaluate import Checkpoint

Model = str | Path | tuple[Any, Any]
ADAPT = ("adapt", "inputs", "hygiene", "on_bad_record", "data")
FINETUNE = ("finetune", "data", "task_path")
EVALUATE = (*FINETUNE, "jobs")
PROBE = (
    "probe",
    "data",
    "task_path",
    "jobs",
    "finetune.max_train",
    "finetune.text_field",
    "finetune.label_field",
    "finetune.id_field",
)


@with_messages
def adapt(
    model: Model,
    task: Texts | None = None,
    pool: Texts | None = None,
    weights: "Folder | pd.DataFrame | None" = None,
    out: Folder | None = None,
    unweighted: bool = False,
    remake: bool = False,
    **settings: Any,
) -> tuple[Any, Any]:
    """Continue pretraining a checkpoint on weighted pool text.

    Args:
        model: Folder or Hub name of a checkpoint; or a transformers model and its tokenizer, as a pair.
        task: Text of the task, of which a held-out part is evaluated; None takes that of the run's folder.
        pool: Pool text of the weights; None takes that of the run's folder.
        weights: Table from :func:`dana.weigh`, or a folder of one; None takes that of the run's folder.
        out: Folder of the run; the model goes to ``OUT/adapted``, as by ``dana adapt``. None uses a temporary one.
        unweighted: Whether to train on the whole pool with weight 1.
        remake: Whether to replace what was made from other texts or settings, instead of refusing.
        **settings: Keys of the section ``adapt`` of a recipe (``steps``, ``batch_size``, ``learning_rate`` …), and of
            ``inputs`` and ``hygiene`` if texts are given.

    Returns:
        The model with its pretraining head, and its tokenizer.

    Raises:
        ConfigError: For a wrong keyword, or if there are no weights.
        DataError: If columns of the table are missing.
        DanaError: See :func:`dana.stages.training.adapt_stage`.
    """
    from dana.stages.texts import held_out_folders, open_texts
    from dana.stages.training import adapt_stage
    from dana.train.hf_trainer import load_model

    with ExitStack() as stack:
        run = stack.enter_context(run_folder(out))
        ready = settings_of("adapt", run, settings, ADAPT, task, pool, remake)
        where = None
        if not unweighted:
            where = call_remaking(lambda: weights_folder(weights, run, out), remake)
        require(not unweighted or weights is None, "weights", weights, "None with unweighted=True")
        checkpoint = stack.enter_context(saved_model(model))
        given = settings_of_call(ready, full_names(settings, ADAPT), ["adapt"])
        if isinstance(model, str | Path):
            given["model"] = checkpoint

        def train() -> Artifact:
            if task is not None or pool is not None:
                open_texts(ready, selects=False)
            return adapt_stage(
                checkpoint,
                run / "pool",
                where,
                *held_out_folders(run),
                ready.adapt,
                run / "adapted",
                given,
                ready.selection.language,
            )

        return load_model(call_remaking(train, remake).path)


@with_messages
def finetune(
    model: Model,
    task: Any,
    out: Folder | None = None,
    remake: bool = False,
    **settings: Any,
) -> "pd.DataFrame":
    """Fine-tune a checkpoint on a labelled task, once per seed.

    Args:
        model: As for :func:`adapt`.
        task: A task card's name or YAML file; or a mapping with ``train``, ``dev`` (or ``validation``) and ``test``,
            each a pandas table, a ``datasets.Dataset`` or a list of mappings with a text and a label.
        out: Folder of the result, as ``dana finetune --out`` writes it; None uses a temporary one.
        remake: Whether seeds of other settings are replaced, instead of refused.
        **settings: Keys of the section ``finetune`` of a recipe: ``seeds``, ``epochs``, ``text_field`` …; ``data`` and
            ``task_path`` of a card; and, for a mapping, ``kind`` of the label (``single_label``; ``multi_label``: a
            list, or text that holds several; ``regression``: a number; ``token_labels``: a list, one per word; None
            decides it by the labels), ``metric``, one of the kind's, ``labels``, the names of the places where a
            label is a vector of 0 and 1, and ``text_pair_field``, the second text of a pair. ``label_field`` may be
            a list of fields of 0 and 1, of which each is a label.

    Returns:
        One row per seed: ``seed``, ``score`` (the task's metric on test), ``dev_score``, every
        metric, ``seconds`` …

    Raises:
        ConfigError: For a wrong keyword, card or preset.
        DataError: If a split is missing, or a row has no text or label; names it.
        DanaError: See :func:`dana.stages.finetune.finetune_stage`.
    """
    import pandas as pd

    from dana.stages.finetune import finetune_stage, seed_rows

    extra = {
        name: settings.pop(name)
        for name in ("kind", "metric", "text_pair_field", "labels")
        if name in settings
    }
    label_field = settings.get("label_field")
    label_columns = [*label_field] if isinstance(label_field, list | tuple) else None
    if label_columns is not None:
        del settings["label_field"]
        is_rows = isinstance(task, Mapping) and len(label_columns) > 1
        require(is_rows, "label_field", label_field, "one name; several for a mapping of splits")
    ready = settings_of("finetune", None, settings, FINETUNE)
    with (
        run_folder(out) as folder,
        TemporaryDirectory(prefix="dana-") as beside,
        saved_model(model) as checkpoint,
    ):
        if isinstance(task, Mapping):
            names = ready.finetune
            fields: dict[str, Any] = {
                part: getattr(names, f"{part}_field") or part for part in ("text", "label", "id")
            }
            pair = extra.pop("text_pair_field", None)
            if pair:
                fields["text_pair"] = pair
            if label_columns is not None:
                fields["label"] = label_columns
            task = write_card(task, Path(beside), fields, **extra)
        else:
            is_card = isinstance(task, str | Path)
            require(
                is_card,
                "task",
                type(task).__name__,
                "a task card, or a mapping of train, dev and test",
            )
            for name, value in extra.items():
                require(value is None, name, value, "left out, because the task card sets it")
        folder_of_result = folder if out is not None else folder / "finetune"
        artifact = finetune_stage(
            checkpoint,
            str(task),
            ready.finetune,
            folder_of_result,
            ready.data,
            with_baselines=True,
            remake=remake,
        )
        return pd.DataFrame(seed_rows(artifact))


@with_messages
def evaluate(
    models: Mapping[str, Model] | Sequence[Folder],
    tasks: Folder | Sequence[Folder],
    out: Folder | None = None,
    remake: bool = False,
    **settings: Any,
) -> "pd.DataFrame":
    """Fine-tune every checkpoint on every task with the same seeds, and rank the checkpoints by their mean score.

    Args:
        models: Maps names to checkpoints, each a folder, a Hub name, or a pair of model and tokenizer; or a list of
            folders and Hub names, named by their last parts. If one is named ``base``, the report compares the others
            with it.
        tasks: One or more task cards, by name or YAML file.
        out: Folder of the run: ``leaderboard.csv``, ``leaderboard.json`` (with provenance), ``report.html``, and one
            folder per task and checkpoint, which are reused. None uses a temporary one.
        remake: Whether results of other settings are replaced, instead of refused.
        **settings: Keys of the section ``finetune`` of a recipe (``seeds``, ``preset`` …), ``data``, ``task_path`` and
            ``jobs``.

    Returns:
        One row per checkpoint and task: ``task``, ``checkpoint``, ``model``, ``metric``, ``mean``,
        ``std`` (ddof 1) over seeds, ``low`` and ``high`` (95 % t-interval over seeds), ``n`` and
        ``collapsed``.

    Raises:
        ConfigError: For a wrong keyword or card, or a checkpoint that is unknown or named twice.
        DanaError: See :func:`dana.stages.evaluate.run_evaluate`.
    """
    from dana.stages.evaluate import run_evaluate

    with ExitStack() as stack:
        folder = stack.enter_context(run_folder(out))
        ready = replace(
            settings_of("evaluate", None, settings, EVALUATE),
            out=str(folder),
            cards=_card_names(tasks),
        )
        return run_evaluate(_checkpoints(models, stack), ready, remake)


@with_messages
def probe(
    models: Mapping[str, Model] | Sequence[Folder],
    tasks: Folder | Sequence[Folder],
    out: Folder | None = None,
    remake: bool = False,
    **settings: Any,
) -> "pd.DataFrame":
    """Probe the frozen vectors of checkpoints on labelled tasks, without training them.

    Args:
        models: As for :func:`evaluate`.
        tasks: One or more task cards, by name or YAML file.
        out: Folder of the run: ``probe/TASK/NAME``, ``report.html`` and its tables. None uses a temporary one.
        remake: Whether results of other settings are replaced, instead of refused.
        **settings: Keys of the section ``probe`` of a recipe (``sizes``, ``draws`` …), ``max_train`` and the fields of
            the section ``finetune``, ``data``, ``task_path`` and ``jobs``.

    Returns:
        One row per task, checkpoint (``arm``) and ``measure``: ``metric``, ``labels``, ``draws``,
        ``mean``, ``low`` and ``high`` (95 % interval over test texts, and folds) …

    Raises:
        ConfigError: For a wrong keyword or card, a checkpoint that is unknown or named twice, or a
            task whose words have labels.
        DanaError: See :func:`dana.stages.run_probe.run_probe`.
    """
    from dana.stages.run_probe import run_probe

    with ExitStack() as stack:
        folder = stack.enter_context(run_folder(out))
        ready = replace(
            settings_of("probe", None, settings, PROBE), out=str(folder), cards=_card_names(tasks)
        )
        return run_probe(_checkpoints(models, stack), ready, remake)


def _card_names(tasks: Folder | Sequence[Folder]) -> list[str]:
    """Return the cards that a call names."""
    return [str(tasks)] if isinstance(tasks, str | Path) else [str(task) for task in tasks]


def _checkpoints(
    models: Mapping[str, Model] | Sequence[Folder], stack: ExitStack
) -> "list[Checkpoint]":
    """Name the checkpoints of a call; those in memory are saved until the stack ends."""
    from dana.stages.evaluate import Checkpoint

    is_valid = isinstance(models, Mapping) or (
        isinstance(models, Sequence) and not isinstance(models, str)
    )
    require(
        is_valid,
        "models",
        models,
        "a mapping of names to checkpoints, or a list of folders and Hub names",
    )
    if isinstance(models, Mapping):
        return [
            Checkpoint(name, stack.enter_context(saved_model(checkpoint)), _origin(checkpoint))
            for name, checkpoint in models.items()
        ]
    for model in models:
        require(
            isinstance(model, str | Path),
            "models",
            type(model).__name__,
            "folders and Hub names; a mapping gives others a name",
        )
    return [Checkpoint.parse(str(model)) for model in models]


def _origin(model: Model) -> str | None:
    """Name a model in memory for the table; its folder is temporary."""
    return None if isinstance(model, str | Path) else f"{type(model[0]).__name__} in memory"


def training_dataset(
    run: Folder,
    tokenizer: Any,
    weights: "Folder | pd.DataFrame | None" = None,
    max_tokens: int = 256,
    objective: str = "masked",
) -> "Dataset":
    """Build a ``datasets`` table of the weighted examples of a run on which ``dana adapt`` trains.

    Args:
        run: Folder of a run with weights.
        tokenizer: Tokenizer of the model.
        weights: Table or folder of weights; None takes those in the run's folder.
        max_tokens: Maximum tokens of an example, with special tokens.
        objective: Decides the special tokens of an example; see
            :class:`dana.train.hf_trainer.WeightedCollator`.

    Returns:
        ``input_ids`` (with special tokens), ``weight`` (above 0) and ``example_id`` (a hash of
        document and position that decides the masks). Held-out documents are excluded.

    Raises:
        ArtifactError: If the run has no pool, task or weights.
        ConfigError: If the tokenizer does not fit the objective, or `max_tokens` is too small.
    """
    from dana.core.artifacts import open_artifact
    from dana.stages.texts import held_out_folders
    from dana.stages.training import TrainingData, weighted_examples
    from dana.train.hf_trainer import check_tokenizer, examples_dataset

    check_tokenizer(tokenizer)
    folder = Path(run)
    open_artifact(folder / "pool", "pool", "dana score --task ... --pool ... --out DIR")
    where = weights_folder(weights, folder, run)
    data = TrainingData(folder / "pool", where, *held_out_folders(folder))
    return examples_dataset(weighted_examples(data, tokenizer, objective, max_tokens))


@contextmanager
def saved_model(model: Model) -> Iterator[str]:
    """Yield the folder or Hub name of a checkpoint; a model in memory is saved to a temporary folder."""
    if isinstance(model, str | Path):
        yield str(model)
        return
    pair = (
        isinstance(model, tuple)
        and len(model) == 2
        and all(hasattr(part, "save_pretrained") for part in model)
    )
    require(
        pair,
        "model",
        type(model).__name__,
        "a folder, a Hub name, or a pair of model and tokenizer",
    )
    with TemporaryDirectory(prefix="dana-") as beside:
        folder = Path(beside) / type(model[0]).__name__
        for part in model:
            part.save_pretrained(folder)
        yield str(folder)


def weights_folder(weights: "Folder | pd.DataFrame | None", run: Path, out: Folder | None) -> Path:
    """Return the folder of the weights; a table is written as an artifact in the run's folder."""
    if isinstance(weights, str | Path):
        return Path(weights)
    if weights is None:
        require(
            out is not None,
            "weights",
            None,
            "a table from dana.weigh, or left out with unweighted=True",
        )
        return run / "weights"
    import pandas as pd
    import pyarrow as pa

    from dana.core.artifacts import Draft, make
    from dana.core.schemas import WEIGHTS, write_parts

    is_table = isinstance(weights, pd.DataFrame)
    require(
        is_table, "weights", type(weights).__name__, "a pandas table from dana.weigh, or a folder"
    )
    missing = [name for name in WEIGHTS.names if name not in weights.columns]
    if missing:
        raise DataError(
            f"weights: no column {', '.join(missing)}, got {', '.join(map(str, weights.columns))}"
        )
    numbers = pd.to_numeric(weights["weight"], errors="coerce")
    for row, (value, number) in enumerate(zip(weights["weight"], numbers, strict=True)):
        if not 0 <= number < float("inf"):
            raise DataError(
                f"weights[{row}]: weight {value}: must be a finite number of at least 0"
            )
    columns = weights[WEIGHTS.names].assign(weight=numbers)
    rows = blake2b(
        pd.util.hash_pandas_object(columns, index=False).to_numpy("<u8").tobytes(), digest_size=16
    )

    def write(draft: Draft) -> None:
        table = pa.Table.from_pandas(columns, schema=WEIGHTS, preserve_index=False)
        draft.counts["units"] = write_parts([table], draft.path, WEIGHTS)

    return make(run / "inputs" / "weights", "weights", {"rows": rows.hexdigest()}, write).path
