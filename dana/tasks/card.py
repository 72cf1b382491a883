"""Task cards: a labelled task described in YAML, read and checked; adding a task is adding one file to ``tasks/``."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from string import Formatter
from typing import Any

from dana.core.config import load, require
from dana.core.errors import ConfigError, DataError, suggestion
from dana.tasks.finder import YAML, card_files, card_values
from dana.tasks.kinds import DEFAULT, find_kind
from dana.tasks.kinds.base import Kind
from dana.tasks.settings import PRESETS, Preset

SPLITS = ("train", "dev", "test")
SPLIT = "{split}"  # in the name of a card's file
SUFFIXES = tuple(f"{kind}{packed}" for kind in (".jsonl", ".csv", ".tsv", ".parquet") for packed in ("", ".gz", ".zst"))
HUB_SPLITS = {"dev": "validation"}
COMMIT = re.compile("[0-9a-f]{40}")
TAG = re.compile("[a-z][a-z0-9-]*")


@dataclass(frozen=True)
class Template:
    """A text with the places of fields in it.

    Attributes:
        parts: What stands as it is, each with the field that comes after it; None after the last.
    """

    parts: tuple[tuple[str, str | None], ...]

    @classmethod
    def parse(cls, template: str) -> "Template":
        """Read ``{title} {body}``; ``{meta.title}`` is a field within another, ``{{`` a brace.

        Raises:
            ConfigError: If no field is named, or braces do not match.
        """
        allowed = "a text with fields in braces, as in '{title} {body}'"
        try:
            found = list(Formatter().parse(template))
        except ValueError:
            found = []
        named = [(name, spec, conversion) for _, name, spec, conversion in found if name is not None]
        good = bool(named) and all(name.strip() and not spec and not conversion for name, spec, conversion in named)
        require(good, "template", template, allowed)
        return cls(tuple((literal, name) for literal, name, _, _ in found))

    @classmethod
    def of_field(cls, name: str) -> "Template":
        """The text of a single field as it is."""
        return cls((("", name),))

    @property
    def fields(self) -> list[str]:
        """The fields that it names, each once."""
        return list(dict.fromkeys(name for _, name in self.parts if name is not None))

    def fill(self, values: Mapping[str, str]) -> str:
        """The text with the values of the fields in their places."""
        return "".join(literal + ("" if name is None else values[name]) for literal, name in self.parts)


@dataclass(frozen=True)
class TaskCard:
    """One labelled task: what is asked of a text, or of a pair of texts, and where its data is.

    Attributes:
        name: Short name.
        title: One line.
        version: Raised when a change of the card changes results.
        labels: The full label set; metrics average over all of it. Empty where the kind has none.
        metric: What the task is judged by, one of its kind's.
        splits: Expected number of examples by split, or a list of accepted numbers.
        data: ``local``: name of the folder with the splits; ``file``: instead, a file without its suffix, in which
            ``{split}`` stands for train, dev or test; one without it holds all splits, which a hash of the id parts;
            ``hub``: ``org/name[@commit][:config]``, read at that commit.
        text: Field that holds the text; ``meta.body`` for one within another.
        text_pair: Field that holds the second text, where the label is of two texts.
        template: Makes the text of several fields instead, ``{title} {body}``.
        label: Field that holds the label.
        id: Field that names an example, which every record must have; None takes ``id`` where there is one.
        direction: Whether ``higher`` or ``lower`` is better, as the metric has it.
        kind: What the target is: a name of :mod:`dana.tasks.kinds`.
        unseen_test: Leave out test examples whose text is also in train or dev.
        presets: Hyper-parameters by name; always ``paper``, ``default`` and ``quick``.
        aliases: Other names.
        notes: Licence, provenance, what to beware of.
        citation: Where the task comes from.
        tags: What it is about and of which kind, lower-case words; no result depends on them.
        origins: The YAML file, then those that it includes.
    """

    name: str
    title: str
    version: int
    labels: list[str]
    metric: str
    splits: dict[str, int | list[int]]
    data: dict[str, str]
    text: str = "text"
    text_pair: str | None = None
    template: str | None = None
    label: str = "label"
    id: str | None = None
    direction: str = "higher"
    kind: str = DEFAULT
    unseen_test: bool = False
    presets: dict[str, Preset] = field(default_factory=lambda: dict(PRESETS))
    aliases: list[str] = field(default_factory=list)
    notes: str = ""
    citation: str = ""
    tags: list[str] = field(default_factory=list)
    origins: list[Path] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.target.check_card(self.metric, self.template, self.text_pair)
        right = self.target.metrics[self.metric]
        require(self.direction == right, "direction", self.direction, f"{right}, as {self.metric} is better so")
        require(set(self.splits) <= set(SPLITS), "splits", list(self.splits), f"among {', '.join(SPLITS)}")
        allowed = ({"local"}, {"file"}, {"hub"}, {"local", "hub"}, {"file", "hub"})
        require({*self.data} in allowed, "data", self.data, "local or file, hub, or one of these and hub")
        _, at, commit = self.data.get("hub", "").partition(":")[0].partition("@")
        pinned = not at or COMMIT.fullmatch(commit)
        form = "org/name[@commit][:config], the commit of 40 hexadecimal digits, because a branch moves"
        require(bool(pinned), "data.hub", self.data.get("hub"), form)
        words = all(TAG.fullmatch(tag) for tag in self.tags) and len(set(self.tags)) == len(self.tags)
        require(words, "tags", self.tags, "lower-case words with hyphens, all different")
        require(self.template is None or self.text == "text", "text", self.text, "left out beside template")
        require(self.text_pair is None or bool(self.text_pair.strip()), "text_pair", self.text_pair, "a field's name")
        self.whole_text  # noqa: B018, which checks the template

    @classmethod
    def read(cls, path: Path) -> "TaskCard":
        """Read a card.

        Raises:
            ConfigError: Naming file, key and what is allowed.
        """
        values, origins = card_values(path)
        origin = " with ".join(map(str, origins))
        kind = find_kind(str(values.get("kind", DEFAULT)))
        if "origins" in values:
            raise ConfigError(f"{origin}: origins={values['origins']!r}: must be left out")
        labels = values.get("labels", [])
        if not isinstance(labels, list):
            raise ConfigError(f"{origin}: labels={labels!r}: must be a list")
        # YAML reads 0, 1, yes and no as numbers and truths; in the data a label is what it is called.
        given = {**values, "labels": [str(label) for label in labels]}
        given.setdefault("direction", kind.metrics.get(str(values.get("metric")), "higher"))
        presets = _presets(origin, given.pop("presets", {}))
        return replace(load(cls, given, origin=origin), presets=presets, origins=origins)

    @property
    def whole_text(self) -> Template:
        """What makes the text of a record: mostly a single field."""
        return Template.of_field(self.text) if self.template is None else Template.parse(self.template)

    @property
    def target(self) -> Kind:
        """What is asked of a text."""
        return find_kind(self.kind)(tuple(self.labels))

    @property
    def sign(self) -> int:
        """1 where a higher score is better, -1 where a lower one is."""
        return 1 if self.direction == "higher" else -1

    @property
    def text_identity(self) -> dict[str, Any]:
        """What the texts read from given files depend on: the version, and the fields that are not the usual ones."""
        given = {name: getattr(self, name) for name in ("text", "text_pair", "template", "id", "kind")}
        usual = {"text": "text", "kind": DEFAULT}
        own = {name: value for name, value in given.items() if value != usual.get(name)}
        return {"version": self.version, **own}

    @property
    def is_one_file(self) -> bool:
        """Whether one file holds all splits, so that a hash of each example's id says which it is in."""
        return "file" in self.data and SPLIT not in self.data["file"]

    def expected(self, split: str) -> list[int]:
        """The accepted numbers of examples of a split; empty if the card says nothing of it."""
        counts = self.splits.get(split, [])
        return counts if isinstance(counts, list) else [counts]

    def preset(self, name: str) -> Preset:
        """A preset by name.

        Raises:
            ConfigError: If the card has none of this name.
        """
        if name not in self.presets:
            known = suggestion(name, self.presets)
            raise ConfigError(f"preset={name!r}: task {self.name} has no such preset{known}")
        return self.presets[name]

    def files(self, data: str | None, splits: Sequence[str]) -> list[str]:
        """The sources of some splits, as :func:`dana.corpus.readers.read_records` takes them.

        Args:
            data: Folder that holds the splits, or the card's folder. Without it, the YAML files' own folders
                and ``$DANA_DATA/tasks`` are searched for the card's folder; then the Hub is named, if the
                card does.
            splits: Of train, dev and test.

        Raises:
            DataError: If the data is nowhere; says where it was looked for and how to provide it.
        """
        return [self._source(data, split) for split in splits]

    def _source(self, data: str | None, split: str) -> str:
        own_file = self.data.get("file")
        *folders, stem = Path(own_file).parts if own_file else (self.data.get("local", self.name), SPLIT)
        below = Path(*folders)
        places = [Path(data) / below, Path(data)] if data else [origin.parent / below for origin in self.origins]
        if (shared := os.environ.get("DANA_DATA")) and not data:
            places.append(Path(shared) / ("" if own_file else "tasks") / below)
        paths = list(dict.fromkeys(str(place / stem.replace(SPLIT, split)) for place in places))
        for path in paths:
            for suffix in SUFFIXES:
                if Path(path + suffix).is_file():
                    return path + suffix
        if "hub" in self.data and not data:
            name, _, config = self.data["hub"].partition(":")
            return f"hf:{name}:{config}:{HUB_SPLITS.get(split, split)}"
        looked = ", ".join(f"{path}.jsonl[.gz]" for path in paths)
        put = f"{own_file}.jsonl into $DANA_DATA" if own_file else f"them in $DANA_DATA/tasks/{below}"
        raise DataError(
            f"task {self.name}: no {split} data (looked for {looked}); "
            f"name the folder with train, dev and test by --data, or put {put}"
        )


def _presets(origin: str, values: Any) -> dict[str, Preset]:
    """The presets every task has, with what the card says put in, and the card's own."""
    if not isinstance(values, dict) or not all(isinstance(given, dict) for given in values.values()):
        raise ConfigError(f"{origin}: presets={values!r}: must map names to hyper-parameters")
    own = {
        name: load(Preset, {**asdict(PRESETS.get(name, Preset())), **given}, origin=f"{origin}: presets.{name}")
        for name, given in values.items()
    }
    return {**PRESETS, **own}


def find_card(name: str) -> TaskCard | None:
    """The card of a name or YAML file; None if it is neither, so that it may be a text file.

    Raises:
        ConfigError: If the YAML file is missing or not a card, or of :func:`dana.tasks.finder.card_files`.
    """
    if name.endswith(YAML):
        return TaskCard.read(Path(name))
    path = card_files().get(name)
    return TaskCard.read(path) if path else None


def load_card(name: str) -> TaskCard:
    """The card of a name or YAML file.

    Raises:
        ConfigError: If there is none; the nearest name is suggested.
    """
    card = find_card(name)
    if card is None:
        known = suggestion(name, card_files())
        raise ConfigError(f"unknown task {name!r}{known} A card of your own is the path of a YAML file")
    return card
