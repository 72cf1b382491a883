"""``dana init``: make the folder of a run from labelled texts, a pool of other documents, and texts without labels."""

import json
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml

from dana.core.config import RECIPE, require
from dana.core.device import find_device
from dana.core.errors import ArtifactError, ConfigError, DataError
from dana.core.files import folder_lock, make_parent, replace_folder, restore_folder, temp_dir
from dana.core.launch import cores
from dana.core.logging import format_duration, get_logger, messages
from dana.core.registry import OBJECTIVES as TRAINED
from dana.core.rng import generator
from dana.core.schemas import Document
from dana.core.settings import load
from dana.core.storage import is_url
from dana.corpus.head import sample_documents
from dana.corpus.inputs import Inputs
from dana.corpus.overlap import OverlapIndex
from dana.corpus.sources import STDIN
from dana.corpus.text import strip_markers, words
from dana.corpus.unit_stream import Units, split_documents
from dana.models.folder import check_checkpoint, load_config, load_own_tokenizer
from dana.models.heads import positions_of
from dana.models.pooling import read_pooling
from dana.models.reading import unread_share
from dana.scoring.scoring import build_selector
from dana.scoring.settings import Selection
from dana.stages.base import AUTO, SMALLEST, choose_base, default_steps
from dana.stages.pilot_steps import PILOT
from dana.stages.plan import summary_text
from dana.stages.recipe import read_recipe
from dana.stages.run import describe_tasks, plan_run
from dana.stages.settings import load_settings
from dana.tasks.hygiene import document_blocks
from dana.tasks.kinds import find_kind
from dana.tasks.kinds.regression import Regression
from dana.tasks.kinds.single_label import SingleLabel
from dana.tasks.kinds.token_labels import TokenLabels
from dana.tasks.labelled import LabelledTexts, Table, read_labelled
from dana.tasks.labels import Question
from dana.tasks.settings import BALANCED, Hygiene
from dana.tasks.table_columns import list_names
from dana.train.objectives.architectures import is_decoder, is_masked_model
from dana.train.objectives.vectors import VectorObjective
from dana.train.settings import UNLABELLED
from dana.weighting.settings import PAPERS_BETA, Budget

log = get_logger(__name__)

CLASSES_METRIC = "macro_f1"  # the metric of a card whose texts have one label each
# Classes are unbalanced if the largest has at least this many times the texts of the smallest. From
# there on, balanced weights raised the macro-F1 of a linear model of words on every task that was
# tried; with equal classes they change it by chance alone (docs/guide/labels.md).
UNBALANCED = 3
LONGEST_LABEL = 60  # in characters; of a longer label a line shows the beginning
LINE = "%-9s %s"  # format of a line of the log: what it is about, and what is said of it
CARD = "card.yaml"
TEXTS = "texts.parquet"
FILES = {CARD, TEXTS, RECIPE}
FAIL = "fail"  # value of on_bad_record that ends the command at a record that cannot be read
MOST_READ = 20_000  # documents of the pool that are read
SAMPLE = 1_000  # documents, and texts, that are compared
# Characters of the compared documents, and of the texts, so that books take a minute, too. If they
# have more, only the beginning of each is compared, as long for all.
MOST_CHARACTERS = 2_000_000
# A document is like the texts if its score is at most this quantile of the scores of held-out texts.
# A lower score is nearer.
LIKE_QUANTILE = 0.9
# Share of the letters that a tokenizer may read as unknown or one by one. On English of any kind it is
# at most .06 for the bases here, on German .13 to .17 for dana-mini, on other scripts above .5.
MOST_UNREAD = 0.1
THIRDS = 3  # parts of the texts, each held out once to estimate how many documents are like them
FEWEST_TEXTS = 60  # with fewer texts the quantile is unknown
SMALLEST_RATE = "0.001"  # learning rate of the smallest base
RATE = "0.0001"  # learning rate of other encoders
DECODER_RATE = "0.00001"  # learning rate of decoders (docs/guide/decoders.md)
RECIPE_TEMPLATE = """\
# dana run FOLDER does what stands here, dana run FOLDER --quick the first part of it (docs/guide/first-adaptation.md).
# Settings that differ from the defaults of docs/reference/settings.md; paths start from this folder.
out: .                 # results are written beside this file
task: card.yaml        # your texts and their folds
{findings}{texts}model: {model}   # to adapt; dana init takes the strongest installed one that adapts in five minutes
{arms}{jobs}{result}{class_weight}adapt: {adapt}
{weigh}"""
# The next three are lines for RECIPE_TEMPLATE.
POOL_ARMS = """\
arms: [random, dana]   # adapted on random text, and on as much of the text most like yours
"""
POOL_AND_UNLABELLED_ARMS = """\
arms: [random, dana, unlabelled] # adapted on random text, on text most like yours, and on your texts without labels
"""
UNLABELLED_ARMS = """\
arms: [unlabelled]     # adapted on your texts without labels, which are the pool, too: there is no other text
"""
WEIGH = """\
weigh: {weigh} # no more than adapt reads, and no more than a fifth of the pool
"""
# The next two are lines for RECIPE_TEMPLATE, and no templates themselves.
RESULT = """\
final: true            # end in a classifier, OUT/model, and an encoder, OUT/encoder: docs/guide/model.md
probe: {enabled: true} # what the vectors of each model say, not fine-tuned: docs/guide/probe.md
"""
WORDS_RESULT = """\
final: false           # words have labels: dana finetune --save keeps a model
"""
MASKED = "masked"
CAUSAL = "causal"
OBJECTIVES = (MASKED, "position", "crops", CAUSAL, AUTO)
TOKEN_OBJECTIVES = (MASKED, CAUSAL)  # their amounts of text are counted in tokens
TOKENS = 1_000_000  # that an adaptation by masked or causal reads
MAX_TOKENS = 128  # of an example
# A pilot takes about as long as so many adaptations: three trainings, probes, and a new head for a base
# that has none.
ADAPTATIONS_A_PILOT = 4
# On a CPU: larger passes take more memory and are no faster. No result depends on it.
EXECUTION_ON_CPU = ", execution: {micro_batch_tokens: 2048}"
# On a CPU: two single-threaded steps side by side do twice as much as one with two threads, for
# small models (docs/results/first-run.md). More would take more memory.
JOBS = """\
jobs: 2                # steps side by side; 1 takes less memory
"""
MOST_DOCUMENTS = 3_200  # of position and crops: more were not tried (docs/results/objectives.md)
# Settings of an adaptation by its objective, in YAML. _adapt_settings adds a learning rate to masked and
# causal, and the number of steps to the others. The others are evaluated once, as an evaluation takes as
# long as a step or two. The batch size of auto is that of position and crops, also where the pilot
# chooses masked.
ADAPT = {
    MASKED: f"tokens: {TOKENS}, batch_size: 32",
    CAUSAL: f"objective: causal, tokens: {TOKENS}, batch_size: 32",
    "position": "objective: position, learning_rate: null, evaluations: 1",
    "crops": "objective: crops, learning_rate: null, evaluations: 1",
    AUTO: "objective: auto, batch_size: 64, learning_rate: null, evaluations: 1",
}


def init(  # noqa: PLR0913, keywords of a public call
    table: Table,
    pool: str | Path | Sequence[str | Path] | None = None,
    out: str | Path | None = None,
    text: str | None = None,
    label: str | Sequence[str] | None = None,
    group: str | None = None,
    test: Table | None = None,
    folds: int | None = None,
    model: str = AUTO,
    objective: str | None = None,
    inputs: Inputs | Mapping[str, Any] | None = None,
    text_pair: str | None = None,
    kind: str | None = None,
    labels: Sequence[str] | None = None,
    on_bad_record: str = FAIL,
    unlabelled: str | Path | Sequence[str | Path] | None = None,
) -> Path:
    """Prepare a run from a table of labelled texts and other text: a pool, texts without labels, or both.

    Args:
        table: Labelled texts: a pandas table; a file in any format that dana reads, ``-`` for
            standard input; or a folder with a folder of text files per label, also in folders
            train, dev and test.
        pool: Pool text to choose from: a file, folder, glob or URL, or several. None needs
            `unlabelled`, and chooses nothing.
        out: Folder to write: new, empty, or with nothing but the files of an earlier ``dana init``.
            None takes the table's name without its suffix, ``table`` for one in memory.
        text: Column of the text. Documents of the pool have their text in a field of this name, or
            in ``text``. None takes ``text``, or else the column with the most words.
        label: Column of the label; or several columns of 0 and 1, each for one label. None takes the
            column with a usual name; else the only column whose values repeat; else, if all columns
            whose values repeat hold only 0 and 1, all of these.
        group: Column of a group, for example an author, whose texts stay in one fold; None takes
            one whose values repeat and whose name says so (``doc_id``, ``author`` ...), ``none``
            no column.
        test: Labelled texts to test on, instead of folds.
        folds: Number of folds; None makes 5, or one fixed split above 5,000 rows.
        model: The model to adapt: a folder, a name that dana knows, or one of the Hub. ``auto``
            chooses by the speed of this device (:func:`dana.stages.base.choose_base`); the recipe
            then has the name of the choice.
        objective: What the arms learn: ``masked``, ``position``, ``crops``, ``causal``, or ``auto``,
            which ``dana run`` chooses by a pilot. None is ``auto`` for an encoder and labels of texts,
            ``causal`` for a decoder, else ``masked``.
        inputs: How the table is read, where looking at it finds something else: ``encoding``,
            ``separator``, ``quotes``, ``header``, ``skip_lines``.
        text_pair: Column of the second text, for labels of pairs of texts.
        kind: Kind of the label: ``single_label``, ``multi_label``, ``regression`` or
            ``token_labels``; None decides it by the values (:mod:`dana.tasks.labels`).
        labels: Names of the places of labels that are vectors of 0 and 1.
        on_bad_record: For records of the pool that cannot be read, or have no text: ``fail``, or
            ``skip``, which counts them and goes on, here and in ``dana run``. So for texts without
            labels.
        unlabelled: More texts of the kind that the table has, without labels: a file, folder, glob
            or URL, or several. The run has an arm that is adapted on them. Their text is in the field
            that is the table's column of the text, or in ``text``.

    Returns:
        The folder, for ``dana run``: with ``card.yaml``, ``texts.parquet`` and ``recipe.yaml``.

    Raises:
        ArtifactError: If the folder holds something else, or is a file.
        ConfigError: If there is neither a pool nor a text without labels, or the objective cannot
            train the model.
        DanaError: If the table, the pool or the texts without labels cannot be used.
    """
    _check_objective(objective)
    folder = _new_folder(table, out)
    _check_model(model)
    pool_sources = _sources("pool", pool)
    unlabelled_sources = _sources(UNLABELLED, unlabelled)
    if not (pool_sources or unlabelled_sources):
        raise ConfigError(
            "there is no text to adapt a model on: name text to choose from by --pool, or texts of the "
            f"same kind without labels by --{UNLABELLED}"
        )
    log.info(LINE, "reading", f"{folder.name}: the texts, and up to {MOST_READ:,} documents")
    pool_sample = None
    if pool_sources:
        pool_sample = _read_sample(pool_sources, _text_inputs(text), folder, on_bad_record)
    labelled = read_labelled(
        table,
        test,
        folds,
        inputs=_table_inputs(inputs),
        kind=kind,
        labels=labels,
        question=_question(table, pool_sources, unlabelled_sources),
        text=text,
        text_pair=text_pair,
        label=label,
        group=group,
    )
    tests = _describe_tests(labelled)
    reason_to_balance = _reason_to_balance(labelled)
    _log_texts(labelled, tests, reason_to_balance)
    unlabelled_sample = None
    if unlabelled_sources:
        column = labelled.columns.get("text")
        unlabelled_sample = _read_unlabelled(
            unlabelled_sources, text, column, folder, on_bad_record, has_pool=bool(pool_sources)
        )
    findings = [tests]
    training = _choose_training(model, objective, labelled.kind, pool_sample)
    if pool_sample is not None:
        survey = _compare(pool_sample, labelled)
        _refuse_own_texts(pool_sample, survey.holding_count)
        pool_lines = _describe_pool(pool_sample, survey, training)
        _log_lines("pool", pool_lines)
        findings += pool_lines
    if unlabelled_sample is not None:
        line = _describe_unlabelled(unlabelled_sample, labelled)
        log.info(LINE, "more", line)
        findings.append(line)
    unread = _unread_line(training.model, labelled)
    if unread:
        log.warning(LINE, "model", unread)
        findings.append(unread)
    class_weight = _class_weight_line(reason_to_balance)
    texts = _Texts(pool_sample, unlabelled_sample)
    recipe = _recipe_text(folder, texts, findings, training, labelled.kind, class_weight)
    _write_folder(folder, labelled, recipe)
    _log_plans(folder, training.seconds)
    return folder


def _check_objective(objective: str | None) -> None:
    """Refuse an objective that no recipe of ``dana init`` has.

    Raises:
        ConfigError: If so.
    """
    is_known = objective is None or objective in OBJECTIVES
    require(is_known, "objective", objective, f"one of {', '.join(OBJECTIVES)}")


def _new_folder(table: Table, out: str | Path | None) -> Path:
    """Return the folder to write.

    Raises:
        ArtifactError: If it is a file or a link, or holds a file that ``dana init`` does not write.
    """
    folder = Path(out or _default_name(table))
    name = folder.resolve().name
    require(
        name.isprintable(), "out", str(folder), "a name without line ends and control characters"
    )
    if folder.is_symlink():  # a link cannot be replaced whole by the folder that is written
        target = folder.resolve()
        raise ArtifactError(f"{folder}: is a symbolic link; name its folder: --out {target}")
    existing = restore_folder(folder)  # if a killed command had renamed it, by its name again
    if not existing.exists():
        return folder
    if not folder.is_dir():
        raise ArtifactError(f"{folder}: is a file; choose another --out")
    _refuse_other_files(folder)
    return folder


def _refuse_other_files(folder: Path) -> None:
    """Refuse to replace a folder with a file that ``dana init`` does not write, as results of a run.

    Raises:
        ArtifactError: If so.
    """
    others = {path.name for path in folder.iterdir()} - FILES
    if others:
        raise ArtifactError(
            f"{folder}: holds {min(others)}; name another folder by --out, or remove this one"
        )


def _default_name(table: Table) -> str:
    """Return the name of a table without its suffixes, for the folder that is made of it.

    A name without a suffix, as folders have, gets ``-run``, so that the table stays as it is.
    """
    if not isinstance(table, str | Path):
        return "table"
    if str(table) == STDIN:
        return "stdin"
    name = Path(table).name
    if name in ("", ".."):  # the table is "." or ".."
        name = Path(table).resolve().name
    visible_name = name.lstrip(".")
    stem = visible_name.partition(".")[0]
    if not stem:  # the root folder has no name
        return "table"
    has_suffix = stem != visible_name
    return stem if has_suffix else f"{stem}-run"


def _check_model(model: str) -> None:
    """Refuse a model that is named and cannot be opened.

    Raises:
        ArtifactError: If so.
    """
    if model != AUTO:
        check_checkpoint(model)
        read_pooling(model)  # raises if the checkpoint pools in a way that dana does not support


def _sources(setting: str, named: str | Path | Sequence[str | Path] | None) -> list[str]:
    """Return the sources of the text that a setting names; none if it names nothing.

    Args:
        setting: ``pool`` or ``unlabelled``.
        named: One source or several.

    Raises:
        ConfigError: If the setting is an empty list, or a source cannot be read again.
    """
    if named is None:
        return []
    sources = [named] if isinstance(named, str | Path) else named
    names = [str(source) for source in sources]
    require(bool(names), setting, names, "at least one file, folder, glob or URL")
    if STDIN in names:
        raise ConfigError(f"--{setting} -: dana run reads the text again; save it in a file first")
    return names


def _text_inputs(text: str | None, *further: Any) -> Inputs:
    """Return how documents are read: in which fields their text is.

    Args:
        text: Name of the field; a record without it is read from ``text``. None reads ``text``.
        further: Names of fields that are read where these are missing; what is no text is left out.
    """
    names = [name for name in (text, *Inputs().text_field, *further) if isinstance(name, str)]
    return Inputs(text_field=list(dict.fromkeys(names)))  # each name once


class _Sample(NamedTuple):
    """What was read of a pool, or of texts without labels.

    Attributes:
        sources: Files, folders, globs and URLs.
        inputs: How its records become documents.
        on_bad_record: What is done at records that cannot be read as documents: ``fail`` or ``skip``.
        documents: The first documents of each file.
        size: Number of all documents, about.
    """

    sources: list[str]
    inputs: Inputs
    on_bad_record: str
    documents: list[Document]
    size: float


class _Texts(NamedTuple):
    """What a run has beside the labelled texts; one of them may be missing.

    Attributes:
        pool: Text to choose from.
        unlabelled: Texts of the same kind, without labels.
    """

    pool: _Sample | None
    unlabelled: _Sample | None

    @property
    def last(self) -> _Sample:
        """The sample that was read last, whose way of reading holds for both."""
        sample = self.unlabelled or self.pool
        assert sample is not None  # init refuses a call without any
        return sample


def _read_sample(sources: list[str], inputs: Inputs, folder: Path, on_bad_record: str) -> _Sample:
    """Read the first documents of a pool, or of texts without labels.

    Args:
        sources: Files, folders, globs and URLs.
        inputs: How records become documents.
        folder: Folder of the run, which is not read.
        on_bad_record: ``fail`` or ``skip``.

    Raises:
        ConfigError: If a source is a streamed data set, or there is no document.
        DataError: If a source cannot be read.
    """
    documents, size = sample_documents(
        sources, folder, inputs=inputs, on_bad_record=on_bad_record, count=MOST_READ
    )
    return _Sample(sources, inputs, on_bad_record, documents, size)


def _read_unlabelled(
    sources: list[str],
    text: str | None,
    column: Any,
    folder: Path,
    on_bad_record: str,
    has_pool: bool,
) -> _Sample:
    """Read the first of the texts without labels.

    Their text is in the field that is the table's column of the text, or in ``text``. One setting says
    for all text of a run which of two fields is read, and beside a pool it is ``text``.

    Args:
        sources: See :func:`_read_sample`.
        text: Name of the field, if the user gave one.
        column: The table's column of the text; None without one.
        folder: See :func:`_read_sample`.
        on_bad_record: See :func:`_read_sample`.
        has_pool: Whether the run has a pool.

    Raises:
        ConfigError: If there is a pool and a record has both fields, with different text; or see
            :func:`_read_sample`.
        DataError: See :func:`_read_sample`.
    """
    column_first = _text_inputs(text or column)
    sample = _read_sample(sources, column_first, folder, on_bad_record)
    if not has_pool:
        return sample
    column_last = _text_inputs(text, column)
    if column_last == column_first:
        return sample
    as_pool = _read_sample(sources, column_last, folder, on_bad_record)
    for document, other in zip(sample.documents, as_pool.documents, strict=False):
        if document.text != other.text:
            raise ConfigError(
                f"{', '.join(sources)}: has text in the field {column!r}, as the table has it, and in the field "
                f"'text', as a pool has it; name the one to read by --text"
            )
    return as_pool


def _table_inputs(inputs: Inputs | Mapping[str, Any] | None) -> Inputs | None:
    """Return how the table is read; a mapping is checked and read as these settings."""
    if isinstance(inputs, Mapping):
        return load(Inputs, inputs, origin="inputs")
    return inputs


def _question(table: Table, pool: Sequence[str], unlabelled: Sequence[str]) -> Question:
    """Return the words in which an error asks for what the labels do not tell.

    They are the command line for a file, and the keyword for a table in memory.
    """
    if not isinstance(table, str | Path):
        return Question()
    command = f"dana init {shlex.quote(str(table))}"
    for flag, sources in (("pool", pool), (UNLABELLED, unlabelled)):
        if sources:
            command += f" --{flag} {shlex.join(sources)}"
    # Question calls str.format on both strings, so braces in the user's own words are doubled.
    command = command.replace("{", "{{").replace("}", "}}")
    return Question(f"{command} --kind {{kind}}", f"{command} --labels {{words}}")


def _log_lines(name: str, lines: Sequence[str]) -> None:
    """Log lines of which the first has a name before it."""
    for number, line in enumerate(lines):
        log.info(LINE, "" if number else name, line)


def _log_texts(labelled: LabelledTexts, tests: str, reason_to_balance: str) -> None:
    """Say what was found in the table, and how its texts are tested.

    Args:
        labelled: The table.
        tests: From :func:`_describe_tests`.
        reason_to_balance: From :func:`_reason_to_balance`.
    """
    count = len(labelled.texts)
    found = f"{count:,} of {labelled.rows:,} rows, {_describe_labels(labelled)}"
    _log_lines("texts", [found, *labelled.notes])
    if reason_to_balance:
        what = "texts are weighed so that all classes count alike, as macro-F1 counts them"
        setting = f"class_weight: {BALANCED} in {RECIPE}"
        log.info(LINE, "weights", f"{reason_to_balance}: {what} ({setting})")
    log.info(LINE, "test", tests)


def _reason_to_balance(labelled: LabelledTexts) -> str:
    """Return why classes are balanced; empty where they are not.

    They are balanced if each text has one label, which macro-F1 measures, and the largest class has
    at least :data:`UNBALANCED` times the texts of the smallest.
    """
    if labelled.kind != SingleLabel.name:
        return ""
    counts = labelled.texts_by_label
    by_size = list(counts)  # the most frequent first
    largest = by_size[0]
    smallest = by_size[-1]
    ratio = counts[largest] / counts[smallest]
    if ratio < UNBALANCED:
        return ""
    return f"{_shown(largest)} has {ratio:.1f} times the texts of {_shown(smallest)}"


def _shown(name: object) -> str:
    """Return a label as a line shows it: without line ends, and cut if it is long."""
    words = " ".join(str(name).split())
    return words if len(words) <= LONGEST_LABEL else f"{words[:LONGEST_LABEL]} ..."


def _describe_labels(labelled: LabelledTexts) -> str:
    """Say which labels there are, and of how many texts."""
    values = labelled.texts["label"]
    if labelled.kind == Regression.name:
        return f"with numbers from {values.min():g} to {values.max():g}"
    by_label = labelled.texts_by_label
    listed = list_names(f"{_shown(name)} ({size})" for name, size in by_label.items())
    if labelled.kind == SingleLabel.name:
        return f"in {len(by_label)} classes: {listed}"
    if labelled.kind == TokenLabels.name:
        return f"whose words have {len(by_label)} labels: {listed}"
    # Several labels a text.
    without = int((values.map(len) == 0).sum())
    return f"with {len(by_label)} labels: {listed}; {without:,} with none of them"


def _describe_tests(labelled: LabelledTexts) -> str:
    """Describe in a line how texts are tested."""
    fold = labelled.texts["fold"]
    tested_count = int((fold >= 0).sum())  # -1 is only trained on
    folds = int(fold.max()) + 1
    split = f"in {folds} folds, each text once" if folds > 1 else "in one fixed split"
    return f"{tested_count:,} texts, {split}"


class Survey(NamedTuple):
    """How documents of a pool compare with labelled texts.

    Attributes:
        holding_count: Number of documents that hold a labelled text, by the rule of decontamination.
        alike_shares: Smallest and largest estimate of the share of the other documents that are like
            the texts, from three divisions of the texts. A document is like them if it scores, by
            the selector ``lexical``, at most as high as 90 % of held-out texts do. None with fewer
            than 60 texts, or without other documents.
    """

    holding_count: int
    alike_shares: tuple[float, float] | None


def _compare(sample: _Sample, labelled: LabelledTexts) -> Survey:
    """Compare what was read of a pool with the texts of a table."""
    log.info(LINE, "comparing", f"{len(sample.documents):,} documents with your texts")
    return survey_pool(sample.documents, _plain_texts(labelled))


def _refuse_own_texts(sample: _Sample, holding_count: int, setting: str = "pool") -> None:
    """Refuse text that was read as a whole, and holds nothing but the labelled texts.

    Args:
        sample: What was read.
        holding_count: Number of its documents that hold a labelled text.
        setting: The setting that named it.

    Raises:
        DataError: If so.
    """
    count = len(sample.documents)
    if holding_count == count and count >= sample.size:
        raise DataError(
            f"{', '.join(sample.sources)}: all {count:,} documents hold your labelled texts, "
            f"which dana run leaves out; name other text by --{setting}"
        )


def _plain_texts(labelled: LabelledTexts) -> list[str]:
    """Return all texts as strings, second texts of pairs behind the first ones."""
    texts = [text if isinstance(text, str) else " ".join(text) for text in labelled.texts["text"]]
    if "text_pair" in labelled.texts:
        texts += [*labelled.texts["text_pair"]]
    return texts


def survey_pool(documents: Sequence[Document], texts: Sequence[str]) -> Survey:
    """Compare documents of a pool with labelled texts.

    Args:
        documents: The first documents of each file.
        texts: The labelled texts.
    """
    others = _without_texts(documents, texts)
    alike_shares = None
    if len(texts) >= FEWEST_TEXTS and others:
        with messages(quiet=True):  # of fits that only serve the estimate
            shares = _shares_alike(others, texts)
        alike_shares = (min(shares), max(shares))
    return Survey(len(documents) - len(others), alike_shares)


def _without_texts(documents: Sequence[Document], texts: Sequence[str]) -> list[Document]:
    """Return the documents that hold none of the texts."""
    rule = Hygiene()  # that of decontamination in dana run
    index = OverlapIndex.build({"texts": texts}, ngram=rule.ngram, sentence=rule.sentence)
    whole_texts = {words(text) for text in texts}  # however short
    others: list[Document] = []
    for block in document_blocks(documents):
        found = index.find([document.text for document in block])
        rows = {overlap.row for overlap in found}
        for row, document in enumerate(block):
            if row not in rows and words(document.text) not in whole_texts:
                others.append(document)
    return others


def _shares_alike(documents: Sequence[Document], texts: Sequence[str]) -> list[float]:
    """Return three estimates of the share of documents as near to the texts as 90 % of held-out texts.

    For each of them, another third of the texts is held out, and a selector is fitted to the others.
    A few words of these texts may decide much, so the estimates tell how far to trust them.
    """
    random = generator(0, "init", "pool")
    text_rows = random.permutation(len(texts))[:SAMPLE]
    some_texts = [Document(str(row), "", strip_markers(texts[row])) for row in text_rows]
    some_texts = _beginnings(some_texts)
    document_rows = random.permutation(len(documents))[:SAMPLE]
    some_documents = _beginnings([documents[row] for row in document_rows])
    pool = _cut_into_units(some_documents)
    # lexical uses no detector, but a selector is not built without the name of one.
    selector = build_selector("lexical", "knn", Selection())
    shares = []
    for third in range(THIRDS):
        held_out_texts = some_texts[third::THIRDS]
        fitted_texts = [text for row, text in enumerate(some_texts) if row % THIRDS != third]
        target = _cut_into_units(fitted_texts)
        held_out = _cut_into_units(held_out_texts)
        # The selector learns from samples of the pool, too, and says how large each has to be.
        samples = {}
        for name, size in selector.samples(len(target)).items():
            samples[name] = pool.rows(random.permutation(len(pool))[:size])
        model = selector.fit(target, samples, 0)
        scores_of_texts = _mean_by_document(model.score(held_out), held_out)
        scores_of_documents = _mean_by_document(model.score(pool), pool)
        is_alike = scores_of_documents <= np.nanquantile(scores_of_texts, LIKE_QUANTILE)
        shares.append(round(float(is_alike.mean()), 3))
    return shares


def _beginnings(documents: Sequence[Document]) -> list[Document]:
    """Cut documents that have too many characters together to the same length each."""
    if sum(len(document.text) for document in documents) <= MOST_CHARACTERS:
        return [*documents]
    length = MOST_CHARACTERS // len(documents)
    return [replace(document, text=document.text[:length]) for document in documents]


def _cut_into_units(documents: Sequence[Document]) -> Units:
    return Units.join(list(split_documents(documents, Selection().splitter())))


def _mean_by_document(scores: np.ndarray, units: Units) -> np.ndarray:
    """Return the mean score of each document's units, float64 of shape (documents,).

    A document without a unit has NaN. After the last document that has one, there are no values.
    """
    sums = np.bincount(units.owners, scores)
    counts = np.bincount(units.owners)
    means: np.ndarray = sums / counts
    return means


def default_objective(config: Any, kind: str) -> str:
    """Return the objective where the user names none.

    For an encoder and labels of texts it is ``auto``, so a pilot decides; for a decoder ``causal``; else
    ``masked``.

    Args:
        config: Configuration of the model.
        kind: Kind of the labels.
    """
    if is_decoder(config):
        return CAUSAL
    can_pilot = kind != TokenLabels.name and is_masked_model(config)
    return AUTO if can_pilot else MASKED


def _check_architecture(objective: str, config: Any) -> None:
    """Refuse a model that an objective cannot train; ``auto`` needs one that ``masked`` can.

    Raises:
        ConfigError: Says what does work with the model.
    """
    name = MASKED if objective == AUTO else objective
    TRAINED.create(name).auto_class(config)


def choose_budget(
    objective: str, documents: Sequence[Document], size: float, steps: int
) -> tuple[Budget, float]:
    """Choose how much text an arm selects.

    It is what its training reads, and at most a fifth of the pool. Text that is selected and not
    read would make the selection coarser than it need be.

    Args:
        objective: One of :data:`OBJECTIVES`.
        documents: A sample of the pool.
        size: Number of documents of the pool, about.
        steps: Steps of an adaptation by position or crops; each reads a batch of documents.

    Returns:
        The budget: tokens for masked and causal, which read tokens, else documents; and
        its share of the pool, about.
    """
    if objective in TOKEN_OBJECTIVES:
        kind = "tokens"
        read_amount = TOKENS
        pool_amount = size * _mean_tokens(documents)
    else:
        kind = "documents"
        read_amount = min(steps * VectorObjective.batch_size, MOST_DOCUMENTS)
        pool_amount = size
    fifth_of_pool = round(PAPERS_BETA * pool_amount)
    selected = max(1, min(read_amount, fifth_of_pool))
    return Budget(selected, kind), min(1.0, selected / pool_amount)


def _mean_tokens(documents: Sequence[Document]) -> float:
    """Return the mean number of tokens of a document, estimated on about 1,000 of the sample.

    The tokenizer is the one by which the recipe's budget is counted, without special tokens.
    """
    some = documents[:: max(1, len(documents) // SAMPLE)]
    tokenizer = load_own_tokenizer(SMALLEST).backend_tokenizer
    tokenizer.no_truncation()
    texts = [document.text for document in some]
    encodings = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
    total = sum(len(encoding.ids) for encoding in encodings)
    return max(1.0, total / len(some))


class _Training(NamedTuple):
    """What the arms of a recipe adapt, how, and on how much text.

    Attributes:
        model: The model.
        objective: One of :data:`OBJECTIVES`.
        steps: Steps of position and crops.
        max_tokens: Longest example.
        budget: How much text an arm selects.
        share: Share of the pool that this is, about.
        seconds: Seconds of an adaptation on this device, about; None if the model was not timed.
    """

    model: str
    objective: str
    steps: int
    max_tokens: int
    budget: Budget
    share: float
    seconds: float | None


def _choose_training(
    model: str, objective: str | None, kind: str, sample: _Sample | None
) -> _Training:
    """Choose how the arms are adapted, as far as the user does not say it.

    Args:
        model: The model, or ``auto``.
        objective: One of :data:`OBJECTIVES`; None takes the default.
        kind: Kind of the labels.
        sample: What was read of the pool; None without a pool, of which nothing is selected then.
    """
    seconds = None
    if model == AUTO:
        model, seconds_by_base = choose_base()
        seconds = seconds_by_base.get(model)
        log.info(LINE, "model", f"{model}, which the recipe names from now on")
    config = load_config(model)
    objective = objective or default_objective(config, kind)
    _check_architecture(objective, config)
    # A model of unknown width takes the steps of a narrow one.
    steps = default_steps(getattr(config, "hidden_size", 0))
    budget, share = Budget(1, "documents"), 0.0
    if sample is not None:
        budget, share = choose_budget(objective, sample.documents, sample.size, steps)
    longest = min(MAX_TOKENS, positions_of(config))
    return _Training(model, objective, steps, longest, budget, share, seconds)


def _describe_pool(sample: _Sample, survey: Survey, training: _Training) -> list[str]:
    """Describe a pool: its size, what of it is like the texts or holds them, and how much is selected.

    Args:
        sample: What was read of the pool.
        survey: How it compares with the texts.
        training: How much of it an arm selects.

    Returns:
        A line each.
    """
    like = "an unknown share"
    if survey.alike_shares is not None:
        lowest, highest = [f"{share:.0%}" for share in survey.alike_shares]
        like = f"about {lowest}" if lowest == highest else f"{lowest} to {highest}"
    lines = [f"about {round(sample.size):,} documents; {like} is like your texts, by its words"]
    if survey.holding_count:
        first = f"the first {len(sample.documents):,}"
        lines.append(f"{survey.holding_count:,} of {first} hold your texts: left out by dana run")
    budget = training.budget
    selected = f"{budget.amount:,.0f} {budget.kind}"
    lines.append(f"the arms select {selected} each, about {training.share:.0%} of it")
    return lines


def _describe_unlabelled(sample: _Sample, labelled: LabelledTexts) -> str:
    """Describe the texts without labels: how many there are, and how many of them hold labelled texts.

    Raises:
        DataError: If all of them do.
    """
    count = len(sample.documents)
    holding_count = count - len(_without_texts(sample.documents, _plain_texts(labelled)))
    _refuse_own_texts(sample, holding_count, UNLABELLED)
    line = f"about {round(sample.size):,} texts without labels"
    if holding_count:
        line += f"; {holding_count:,} of the first {count:,} hold your texts: left out by dana run"
    return line


def _unread_line(model: str, labelled: LabelledTexts) -> str:
    """Say how much of the texts the model's tokenizer cannot read; empty if it reads nearly all.

    Args:
        model: The model.
        labelled: The texts, of which up to :data:`SAMPLE` are looked at.
    """
    tokenizer = load_own_tokenizer(model)
    if not tokenizer.is_fast:  # it does not tell where its pieces begin
        return ""
    texts = _plain_texts(labelled)
    some = [Document("", "", text) for text in texts[:: max(1, len(texts) // SAMPLE)]]
    share = unread_share(tokenizer, [document.text for document in _beginnings(some)])
    if share <= MOST_UNREAD:
        return ""
    return (
        f"{model} reads {share:.0%} of the letters of your texts as unknown or one by one: it knows "
        "little of their language or notation; --model NAME takes a model that was trained on it"
    )


def _adapt_settings(training: _Training) -> str:
    """Write the settings of an adaptation that differ from the defaults."""
    settings = ADAPT[training.objective]
    if training.objective == MASKED:
        rate = SMALLEST_RATE if training.model == SMALLEST else RATE
        settings += f", learning_rate: {rate}"
    elif training.objective == CAUSAL:
        settings += f", learning_rate: {DECODER_RATE}"
    else:
        settings += f", steps: {training.steps}"
    return f"{settings}, max_tokens: {training.max_tokens}"


def _class_weight_line(reason: str) -> str:
    """Write the line of the recipe that balances classes; empty without a reason to balance them."""
    if not reason:
        return ""
    what = "all classes count alike, as macro-F1 counts them, also in probe and baselines"
    return f"finetune: {{class_weight: {BALANCED}}} # {what}: {reason}\n"


def _recipe_text(
    folder: Path,
    texts: _Texts,
    findings: Sequence[str],
    training: _Training,
    kind: str,
    class_weight: str,
) -> str:
    """Write the recipe.

    Args:
        folder: Folder of the recipe, from which its paths start.
        texts: What is there beside the labelled texts.
        findings: What was found, a comment each.
        training: How the arms are adapted.
        kind: Kind of the labels.
        class_weight: Line that balances classes, or empty.
    """
    model = training.model
    if Path(model).is_dir() and not Path(model).is_absolute():
        model = os.path.relpath(model, folder)
    is_cpu = find_device().type == "cpu"
    execution = EXECUTION_ON_CPU if is_cpu else ""
    adapt = f"{_adapt_settings(training)}, warmup: 0.05{execution}"
    recipe = RECIPE_TEMPLATE.format(
        findings="".join(f"# {line}\n" for line in findings),
        texts=_text_lines(folder, texts),
        model=json.dumps(model, ensure_ascii=False),
        adapt="{" + adapt + "}",
        arms=_arms_line(texts),
        weigh=_weigh_line(training.budget) if texts.pool else "",
        result=WORDS_RESULT if kind == TokenLabels.name else RESULT,
        class_weight=class_weight,
        jobs=JOBS if is_cpu and cores() > 1 else "",
    )
    if texts.last.inputs != Inputs():
        fields = json.dumps({"text_field": texts.last.inputs.text_field}, ensure_ascii=False)
        recipe += f"inputs: {fields}\n"
    if texts.last.on_bad_record != FAIL:
        recipe += f"on_bad_record: {texts.last.on_bad_record}\n"
    return recipe


def _text_lines(folder: Path, texts: _Texts) -> str:
    """Write the lines of the recipe that name the pool and the texts without labels.

    Args:
        folder: Folder of the recipe, from which its paths start.
        texts: What is there.
    """
    # A run needs a pool: to hold out text of, and to warm up a new head on.
    named = {"pool": texts.pool or texts.unlabelled, UNLABELLED: texts.unlabelled}
    lines = ""
    for setting, sample in named.items():
        if sample is None:
            continue
        paths = []
        for source in sample.sources:
            is_fixed = is_url(source) or Path(source).is_absolute()
            paths.append(source if is_fixed else os.path.relpath(source, folder))
        lines += f"{setting}: {json.dumps(paths, ensure_ascii=False)}\n"
    return lines


def _arms_line(texts: _Texts) -> str:
    """Return the line of the recipe with the arms."""
    if texts.unlabelled is None:
        return POOL_ARMS
    return POOL_AND_UNLABELLED_ARMS if texts.pool else UNLABELLED_ARMS


def _weigh_line(budget: Budget) -> str:
    """Write the line of the recipe with the budget of the selection."""
    weigh = f"budget: {budget.amount:.0f} {budget.kind}"
    if budget.kind == "tokens":
        weigh += f", tokenizer: {SMALLEST}"
    return WEIGH.format(weigh="{" + weigh + "}")


def _card_values(folder: Path, labelled: LabelledTexts) -> dict[str, Any]:
    """Return the content of the task card."""
    card: dict[str, Any] = {
        "name": folder.resolve().name,
        "title": "Made by dana init",
        "version": 1,
    }
    if labelled.kind != SingleLabel.name:
        card["kind"] = labelled.kind
    if labelled.labels:
        card["labels"] = labelled.labels
    card["metric"] = metric_of(labelled)
    card["splits"] = {}
    card["data"] = {"file": Path(TEXTS).stem}
    if "text_pair" in labelled.texts:
        card["text_pair"] = "text_pair"
    card["folds"] = "fold"
    if "group" in labelled.texts:
        card["group"] = "group"
    card["made_from"] = {
        "columns": labelled.columns,
        **labelled.form,
        "rows": labelled.rows,
        "texts": labelled.texts_by_label,
        "notes": labelled.notes,
    }
    return card


def metric_of(labelled: LabelledTexts) -> str:
    """Return the metric of the card.

    It is macro-F1 for one label a text, else the kind's first metric that these labels define.
    """
    if labelled.kind == SingleLabel.name:
        return CLASSES_METRIC
    kind = find_kind(labelled.kind)
    labels = tuple(labelled.labels) if kind.has_labels else ()
    return kind(labels).defined_metrics[0]


def _write_folder(folder: Path, labelled: LabelledTexts, recipe: str) -> None:
    """Write card, texts and recipe in the place of an earlier folder, all of them or nothing.

    Raises:
        ArtifactError: If the folder holds anything else by now.
    """
    card = yaml.safe_dump(_card_values(folder, labelled), sort_keys=False, allow_unicode=True)
    with make_parent(folder), folder_lock(folder), temp_dir(folder) as draft:
        labelled.texts.to_parquet(draft / TEXTS, index=False)
        (draft / CARD).write_text(card, encoding="utf-8")
        (draft / RECIPE).write_text(recipe, encoding="utf-8")
        if folder.exists():  # a run may have begun in it since the command did
            _refuse_other_files(folder)
        replace_folder(draft, folder)
    log.info(LINE, "written", f"{folder}: {', '.join(sorted(FILES))}")


def _log_plans(folder: Path, seconds: float | None) -> None:
    """Say what a quick run and a whole run of the recipe can decide and will do, and how long their adaptations take.

    Args:
        folder: Folder of the recipe.
        seconds: Seconds of an adaptation, about; None if unknown.
    """
    values, _ = read_recipe(folder)
    settings = load_settings(values)
    for is_quick in (True, False):
        describe_tasks(settings, is_quick)
        run = plan_run(settings, quick=is_quick)
        time = ""
        if seconds is not None:
            names = [step.name.partition("/")[0] for step in run.steps]
            adaptations = names.count("adapt") + ADAPTATIONS_A_PILOT * names.count(PILOT)
            duration = format_duration(adaptations * seconds)
            time = f"; its adaptations take about {duration} here, if nothing else runs"
        log.info("%s%s%s", summary_text(run), " (--quick)" if is_quick else "", time)
