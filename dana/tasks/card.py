"""Read and check task cards, which describe labelled tasks in YAML.

A new task is one new file in ``tasks/``.
"""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from string import Formatter
from typing import Annotated, Any

from dana.core.config import require
from dana.core.errors import ConfigError, DataError, SettingError, suggestion
from dana.core.lines import COMPRESSIONS
from dana.core.settings import Bool, Count, Int, OneOf, load, settings_model
from dana.corpus.inputs import Inputs
from dana.corpus.sources import is_saved
from dana.tasks.finder import YAML, card_files, card_values
from dana.tasks.kinds import DEFAULT, find_kind
from dana.tasks.kinds.base import Kind, label_name
from dana.tasks.kinds.multi_label import MultiLabel
from dana.tasks.settings import BALANCED, PRESETS, Preset

SPLITS = ("train", "dev", "test")
# What decides a result, beside the data.
DECISIVE = (
    "name",
    "version",
    "kind",
    "labels",
    "metric",
    "text",
    "text_pair",
    "template",
    "label",
    "unseen_test",
)
SPLIT = "{split}"  # in the name of a card's file


def _with_compressions(*suffixes: str) -> list[str]:
    """Return suffixes, each plain first and then with every compression."""
    found = []
    for suffix in suffixes:
        found.append(suffix)
        found += [f"{suffix}{compression}" for compression in COMPRESSIONS]
    return found


# Suffixes of a card's files, in the order in which they are looked for.
SUFFIXES = (
    *_with_compressions(".jsonl", ".csv", ".tsv"),
    *(".parquet", ".arrow", ".xlsx", ".xls", ".ods"),
    *_with_compressions(".json", ".ndjson", ".txt"),
)
HUB_SPLITS = {"dev": "validation"}
COMMIT = re.compile("[0-9a-f]{40}")
TAG = re.compile("[a-z][a-z0-9-]*")


@dataclass(frozen=True)
class Template:
    """A text with placeholders for fields.

    Attributes:
        parts: Literal texts, each with the field after it; None after the last.
    """

    parts: tuple[tuple[str, str | None], ...]

    @classmethod
    def parse(cls, template: str) -> "Template":
        """Parse ``{title} {body}``; ``{meta.title}`` is a nested field, ``{{`` a brace.

        Raises:
            ConfigError: If it has no field, or braces do not match.
        """
        try:
            parts = list(Formatter().parse(template))
        except ValueError:
            parts = []
        has_fields = False
        are_plain = True
        for _, name, spec, conversion in parts:
            if name is None:
                continue
            has_fields = True
            if not name.strip() or spec or conversion:
                are_plain = False
        form = "a text with fields in braces, as in '{title} {body}'"
        require(has_fields and are_plain, "template", template, form)
        return cls(tuple((literal, name) for literal, name, _, _ in parts))

    @classmethod
    def of_field(cls, name: str) -> "Template":
        """Make the template of a single field."""
        return cls((("", name),))

    @property
    def fields(self) -> list[str]:
        """The names of its fields, each once."""
        names = [name for _, name in self.parts if name is not None]
        return list(dict.fromkeys(names))

    def fill(self, values: Mapping[str, str]) -> str:
        """Replace the placeholders by the values of the fields."""
        text = ""
        for literal, name in self.parts:
            text += literal
            if name is not None:
                text += values[name]
        return text


@settings_model
class TaskCard:
    """A labelled task of texts or pairs of texts: its labels, metric, fields and data."""

    name: str
    """Short name."""
    title: str
    """One line."""
    version: Int
    """Increased when a change of the card changes results."""
    labels: list[str]
    """The full label set; metrics average over all of it. Empty for kinds without labels."""
    metric: str
    """The main metric, one of its kind's."""
    splits: dict[str, Int | list[Int]]
    """Expected number of examples by split, or a list of accepted numbers."""
    data: dict[str, str]
    """local: name of the folder with the splits. file: instead, a file name without suffix; {split}
    in it is replaced by train, dev or test; a file without it holds all splits, divided by a hash
    of the id. hub: org/name[@commit][:config], read at that commit."""
    text: str = "text"
    """Field of the text; meta.body is a nested field."""
    text_pair: str | None = None
    """Field of the second text, for labels of pairs of texts."""
    template: str | None = None
    """Makes the text from several fields instead, {title} {body}."""
    label: str | list[str] = "label"
    """Field of the label; for several labels a text also a list of fields of 0 and 1, one for each
    of labels, in their order."""
    id: str | None = None
    """Field of the example's id, required in every record; None uses id where a record has it."""
    folds: str | None = None
    """Field of a text's fold, beside file without {split}: an integer from 0; -1 for a text that
    only trains. Each fold is the test split once."""
    group: str | None = None
    """Field of a text's group, for example its author or document. The probe fits to a group or
    predicts it, never both; fine-tuning follows the splits alone."""
    train: Count | None = None
    """Number of training texts to use, chosen by a hash of the id; None uses all."""
    test: Annotated[str, OneOf(("rest",))] | None = None
    """rest: also test the training texts that are not used and are new, in all at most 10,000
    texts, chosen by a hash of the id; None tests the test split."""
    direction: str = "higher"
    """higher or lower, whichever is better for the metric."""
    kind: str = DEFAULT
    """Kind of the label: a name of dana.tasks.kinds."""
    class_weight: Annotated[str, OneOf((BALANCED,))] | None = None
    """balanced: probes, linear baselines and fine-tuning weigh the texts of a class by the inverse
    of their number, so that all classes count alike, as in macro-F1; None weighs all texts
    alike."""
    unseen_test: Bool = False
    """Leave out test examples whose text is also in train or dev."""
    presets: dict[str, Preset] = field(default_factory=lambda: dict(PRESETS))
    """Hyper-parameters by name; always paper, default and quick."""
    aliases: list[str] = field(default_factory=list)
    """Other names."""
    notes: str = ""
    """Licence, provenance, caveats."""
    citation: str = ""
    """Source of the task."""
    tags: list[str] = field(default_factory=list)
    """Lower-case words for topic and type; results do not depend on them."""
    inputs: Inputs = field(default_factory=Inputs)
    """How its files are read, where looking at them finds something else: encoding, separator,
    quotes, header, skip_lines, as under inputs of a recipe."""
    made_from: dict[str, Any] = field(default_factory=dict)
    """What dana init found in the table: columns, separator, whether it has a header, number of
    rows, texts by label, notes. Results do not depend on it; dana predict reads columns by it."""
    origins: list[Path] = field(default_factory=list)
    """The YAML file, then the files that it includes."""

    def __post_init__(self) -> None:
        is_one_part = "/" not in self.name and "\\" not in self.name
        is_named = self.name.isprintable() and self.name not in ("", ".", "..")
        if not is_one_part or not is_named:
            raise SettingError("name", self.name, "a name that a folder can have")
        self.label_kind.check_card(self.metric, self.template, self.text_pair)
        better = self.label_kind.metrics[self.metric]
        if self.direction != better:
            form = f"{better}, the better direction of {self.metric}"
            raise SettingError("direction", self.direction, form)
        if self.class_weight is not None and not self.label_kind.has_labels:
            form = f"left out for kind={self.kind}: numbers have no classes"
            raise SettingError("class_weight", self.class_weight, form)
        self._check_label_fields()
        if not set(self.splits) <= set(SPLITS):
            raise SettingError("splits", list(self.splits), f"among {', '.join(SPLITS)}")
        self._check_data()
        if len(set(self.tags)) < len(self.tags) or not all(map(TAG.fullmatch, self.tags)):
            raise SettingError("tags", self.tags, "lower-case words with hyphens, all different")
        if self.template is not None and self.text != "text":
            raise SettingError("text", self.text, "left out beside template")
        if self.text_pair is not None and not self.text_pair.strip():
            raise SettingError("text_pair", self.text_pair, "a field's name")
        if self.train is not None and self.folds:
            raise SettingError("train", self.train, "left out with folds")
        if self.train is None and self.test:
            raise SettingError("train", self.train, "the number to train on, as test=rest")
        self.whole_text  # noqa: B018, which checks the template

    def _check_label_fields(self) -> None:
        if isinstance(self.label, str):
            return
        if self.kind != MultiLabel.name:
            form = f"one field for kind={self.kind}; a list is for {MultiLabel.name}"
            raise SettingError("label", self.label, form)
        if len(self.label) != len(self.labels) or len(set(self.label)) < len(self.label):
            count = len(self.labels)
            raise SettingError("label", self.label, f"{count} different fields, one for each label")

    @property
    def label_fields(self) -> list[str]:
        """The fields that hold the label, one or several."""
        return [self.label] if isinstance(self.label, str) else self.label

    def _check_data(self) -> None:
        key_sets = ({"local"}, {"file"}, {"hub"}, {"local", "hub"}, {"file", "hub"})
        if {*self.data} not in key_sets:
            raise SettingError("data", self.data, "local or file, or hub, or both")
        if not all(name.strip() for name in self.data.values()):
            raise SettingError("data", self.data, "names that are not empty")
        if SPLIT in str(self._file_pattern.parent):
            form = "a path with {split} in its last part only"
            raise SettingError("data.file", self.data["file"], form)
        dataset, _, _ = self.data.get("hub", "").partition(":")
        _, separator, commit = dataset.partition("@")
        if separator and not COMMIT.fullmatch(commit):
            form = "org/name[@commit][:config], with a commit of 40 hexadecimal digits"
            raise SettingError("data.hub", self.data["hub"], f"{form} (a branch can change)")
        if self.folds is not None and not (self.folds.strip() and self.is_one_file):
            form = "a field's name, beside data: {file: NAME} without {split}"
            raise SettingError("folds", self.folds, form)

    @classmethod
    def read(cls, path: Path) -> "TaskCard":
        """Read a card.

        Raises:
            ConfigError: Names file, key and allowed values.
        """
        values, origins = card_values(path)
        origin = " with ".join(map(str, origins))
        try:
            kind = find_kind(str(values.get("kind", DEFAULT)))
        except ConfigError as error:
            raise ConfigError(f"{origin}: {error}") from error
        if "origins" in values:
            raise ConfigError(
                f"{origin}: origins={values['origins']!r}: not a key of task cards; remove it"
            )
        labels = values.get("labels", [])
        if not isinstance(labels, list):
            raise ConfigError(f"{origin}: labels={labels!r}: must be a list")
        try:
            values = {**values, "labels": list(map(label_name, labels))}
        except ValueError as error:
            raise ConfigError(
                f"{origin}: labels: {error}; write words, in quotes where they are no plain ones"
            ) from error
        values.setdefault("direction", kind.metrics.get(str(values.get("metric")), "higher"))
        presets = _presets(origin, values.pop("presets", {}))
        return replace(load(cls, values, origin=origin), presets=presets, origins=origins)

    @property
    def whole_text(self) -> Template:
        """The template that makes the text of a record, often of a single field."""
        if self.template is None:
            return Template.of_field(self.text)
        return Template.parse(self.template)

    @property
    def label_kind(self) -> Kind:
        """The kind of the label, with this card's labels."""
        return find_kind(self.kind)(tuple(self.labels))

    @property
    def sign(self) -> int:
        """1 if a higher score is better, -1 if a lower one is."""
        return 1 if self.direction == "higher" else -1

    @property
    def text_identity(self) -> dict[str, Any]:
        """The card's part of the fingerprint of its texts.

        It has the version, and the fields that differ from the defaults.
        """
        identity: dict[str, Any] = {"version": self.version}
        defaults = {"text": "text", "kind": DEFAULT}
        for name in ("text", "text_pair", "template", "id", "kind"):
            value = getattr(self, name)
            if value != defaults.get(name):
                identity[name] = value
        return {**identity, **self.partition, **self.inputs.identity()}

    @property
    def decisive(self) -> dict[str, Any]:
        """The fields that decide a result, besides the division of texts (:attr:`partition`)."""
        fields = {name: getattr(self, name) for name in DECISIVE} | {"id": self.id or "id"}
        if self.class_weight is not None:
            fields["class_weight"] = self.class_weight
        return fields | self.inputs.identity()

    @property
    def partition(self) -> dict[str, Any]:
        """The keys that divide the labelled texts anew."""
        keys = {"folds": self.folds, "train": self.train, "test": self.test}
        return {name: value for name, value in keys.items() if value is not None}

    @property
    def is_divided(self) -> bool:
        """Whether texts outside the published test split are tested, too.

        They are with ``folds`` or ``test: rest``.
        """
        return bool(self.folds or self.test)

    @property
    def evaluation_splits(self) -> tuple[str, ...]:
        """The splits with texts that are evaluated on."""
        return SPLITS if self.test else ("dev", "test")

    @property
    def is_one_file(self) -> bool:
        """Whether one file holds all splits; a hash of each example's id then decides its split."""
        return "file" in self.data and SPLIT not in self.data["file"]

    def accepted_sizes(self, split: str) -> list[int]:
        """Return the accepted numbers of examples of a split; empty if the card gives none."""
        counts = self.splits.get(split, [])
        return counts if isinstance(counts, list) else [counts]

    def preset(self, name: str) -> Preset:
        """Return a preset by name.

        Raises:
            ConfigError: If the card has no preset of this name.
        """
        if name not in self.presets:
            hint = suggestion(name, self.presets)
            raise ConfigError(f"preset={name!r}: task {self.name} has no such preset{hint}")
        return self.presets[name]

    def files(self, data: str | None, splits: Sequence[str]) -> list[str]:
        """Find the sources of some splits, as :func:`dana.corpus.readers.read_records` takes them.

        Args:
            data: Folder of the splits, or the parent of the card's folder. Without it, the card's
                folder is searched beside the YAML files and in ``$DANA_DATA/tasks``; then on the
                Hub, if the card names it.
            splits: Some of train, dev and test.

        Raises:
            DataError: If the data is missing; names the paths that were searched, and how to
                provide it.
        """
        return [self._source(data, split) for split in splits]

    def _source(self, data: str | None, split: str) -> str:
        """Find the source of a split: a file, a saved folder, or a data set on the Hub."""
        paths = self._candidate_paths(data, split)
        hub_split = HUB_SPLITS.get(split, split)
        for path in paths:
            for suffix in SUFFIXES:
                if Path(path + suffix).is_file():
                    return path + suffix
            hub_name = self._file_pattern.name.replace(SPLIT, hub_split)
            for folder in (Path(path), Path(path).with_name(hub_name)):
                if is_saved(folder):
                    return str(folder)
        if "hub" in self.data and not data:
            name, _, config = self.data["hub"].partition(":")
            return f"hf:{name}:{config}:{hub_split}"
        candidates = ", ".join(f"{path}.jsonl[.gz]" for path in paths)
        target = f"them into $DANA_DATA/tasks/{self._file_pattern.parent}"
        if self.data.get("file"):
            target = f"{self.data['file']}.jsonl into $DANA_DATA"
        raise DataError(
            f"task {self.name}: no {split} data (looked for {candidates}); "
            f"pass the folder with train, dev and test as --data, or put {target}"
        )

    @property
    def _file_pattern(self) -> Path:
        """Path of the card's files below a folder of data, without suffix, with ``{split}``."""
        file = self.data.get("file")
        return Path(file) if file else Path(self.data.get("local", self.name), SPLIT)

    def _candidate_paths(self, data: str | None, split: str) -> list[str]:
        """List the paths, without suffix, at which the file of a split is looked for."""
        below = self._file_pattern.parent
        data_root = os.environ.get("DANA_DATA")
        if data:
            folders = [Path(data) / below, Path(data)]
        else:
            folders = [origin.parent / below for origin in self.origins]
            if data_root:
                has_file = bool(self.data.get("file"))
                root = Path(data_root) if has_file else Path(data_root) / "tasks"
                folders.append(root / below)
        name = self._file_pattern.name.replace(SPLIT, split)
        return list(dict.fromkeys(str(folder / name) for folder in folders))


def _presets(origin: str, values: Any) -> dict[str, Preset]:
    """Merge a card's presets into the default ones."""
    is_mapping = isinstance(values, dict)
    if (
        not is_mapping
        or not all(isinstance(name, str) for name in values)
        or not all(isinstance(preset, dict) for preset in values.values())
    ):
        raise ConfigError(f"{origin}: presets={values!r}: must map names to hyper-parameters")
    presets = dict(PRESETS)
    for name, preset in values.items():
        default = PRESETS.get(name, Preset())
        merged = {**asdict(default), **preset}
        presets[name] = load(Preset, merged, origin=f"{origin}: presets.{name}")
    return presets


def find_card(name: str) -> TaskCard | None:
    """Find a card by name or YAML file; None if it is neither and may be a file of text.

    Raises:
        ConfigError: If the YAML file is missing or not a card; or see
            :func:`dana.tasks.finder.card_files`.
    """
    if name.endswith(YAML):
        return TaskCard.read(Path(name))
    path = card_files().get(name)
    return TaskCard.read(path) if path else None


def load_card(name: str) -> TaskCard:
    """Read a card by name or YAML file.

    Raises:
        ConfigError: If there is no such card; suggests the nearest name.
    """
    card = find_card(name)
    if card is None:
        raise ConfigError(
            f"unknown task {name!r}{suggestion(name, card_files())}. Or pass the path of a YAML card"
        )
    return card
