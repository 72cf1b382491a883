"""Settings of a whole run, one section per step, as in the YAML of a recipe; flags of commands fill them in."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, make_dataclass, replace
from glob import has_magic
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dana.core.config import check_fields, load, merge_sections, read_yaml, require
from dana.core.errors import PluginError
from dana.core.logging import get_logger
from dana.core.shipped import find_recipe
from dana.core.storage import check_url, is_url
from dana.core.studies import load_parts, missing_studies
from dana.corpus.inputs import Inputs
from dana.finetuning.settings import FinetuneSettings as FinetuneSettings
from dana.scoring.settings import RankSettings, Selection
from dana.stages.arms import Arm, parse_arms
from dana.tasks.finder import add_to_task_path
from dana.tasks.settings import MOST_SEEDS, HarvestSettings, Hygiene
from dana.train.settings import AdaptSettings, PretrainSettings
from dana.weighting.settings import WeighSettings

log = get_logger(__name__)

RECIPE, INIT = "recipe.yaml", "init.json"  # in a folder of dana init
# What dana run --quick changes: a first answer within minutes.
QUICK: dict[str, Any] = {
    "arms": ["random", "dana"],
    "seeds": {"adaptations": 3, "stop_early": False},
    "adapt": {"tokens": 250_000, "steps": None, "epochs": None, "phases": []},
}
FLOORS = ("majority", "tfidf", "vectors")


@dataclass(frozen=True)
class RunSeeds:
    """Repetitions of a run, so that the spread of scores includes selection, adaptation and fine-tuning.

    Attributes:
        adaptations: Number of adaptations of each arm, every one with a selection and a seed of its
            own. With a card that has folds, one per fold, and at most as many as it has folds.
        finetunings: Number of fine-tunings of each adapted model. The base is fine-tuned as often
            as all models of an arm together, with the same seeds.
        stop_early: Look at the results after each adaptation from the third on; run no further one
            once every question is decided or would hardly be. p and intervals allow for the looks,
            also if the run is continued without.
    """

    adaptations: int = 5
    finetunings: int = 2
    stop_early: bool = False

    def __post_init__(self) -> None:
        check_fields(
            self, **dict.fromkeys(("adaptations", "finetunings"), f"from 1 to {MOST_SEEDS}")
        )
        fits = not self.stop_early or self.adaptations > 3
        require(
            fits,
            "adaptations",
            self.adaptations,
            "above 3, as many as the first look has, with stop_early",
        )

    def of(self, index: int) -> list[int]:
        """Return the seeds of the fine-tunings of one adaptation, from 0."""
        return list(range(index * self.finetunings, (index + 1) * self.finetunings))


@dataclass(frozen=True)
class CoreSettings:
    """Settings of a run, one section per step: texts, selection, ranking, weights, training, fine-tuning.

    :data:`RunSettings` adds a section for every installed study.

    Attributes:
        out: Folder of the run.
        task: A card's name, a card's YAML file, or text: a file, glob, folder or URL of one.
        general: Files, globs, folders, URLs of these (``s3://``, ``gs://``, ``hf://`` ...), or
            ``hf:name[@revision][:config][:split]``.
        data: Folder that holds a card's data, where it is not under ``DANA_DATA``.
        task_path: Folders whose task cards are found by name, beside the shipped ones and those
            under ``DANA_TASK_PATH``.
        on_bad_record: ``fail`` or ``skip`` (counted).
        inputs: How records of the general text and of plain task text become documents.
        hygiene: What is kept away from training: text of evaluation splits, near duplicates.
        harvest: Take task and general text from the installed Python distributions instead.
        selection: How text is cut, embedded and placed.
        ranking: How the zoo is ranked.
        selector: Spec of the selector. None is ``auto``, which chooses or fuses selectors; or
            ``detector``, if a detector is given.
        detector: Spec of the detector for selectors that use one, or ``auto``, the choice of the
            ranking.
        allow_below_chance: Also use what ranks held-out task text below chance.
        weigh: How scores become weights.
        model: The checkpoint to adapt, a folder or a Hub name; empty trains one from scratch.
        size: Size of a base from scratch: tiny, mini, small, medium or base.
        pretrain: Training of a base from scratch.
        adapt: Continued pretraining of every arm.
        arms: What is compared with the base: ready-made arms by name (general, random, dana, task,
            task+random, task+dana), or a mapping of names to ``general``, ``task`` or ``{mix:
            SHARES, after: ARM, selector: SPEC, detector: SPEC, weigh: {what differs}, adapt: {what
            differs}}``.
        cards: Task cards to fine-tune on; empty takes `task`.
        finetune: The fine-tuning, the same for every arm.
        seeds: How often an arm is adapted, and each adapted model fine-tuned.
        floors: Simple models that an adapted one must beat: majority, tfidf, vectors; or none.
        jobs: Number of cells of the recipe that run in parallel, each in a process of its own.
    """

    out: str = "runs/run"
    task: str = ""
    general: list[str] = field(default_factory=list)
    data: str | None = None
    task_path: list[str] = field(default_factory=list)
    on_bad_record: str = "fail"
    inputs: Inputs = field(default_factory=Inputs)
    hygiene: Hygiene = field(default_factory=Hygiene)
    harvest: HarvestSettings | None = None
    selection: Selection = field(default_factory=Selection)
    ranking: RankSettings = field(default_factory=RankSettings)
    selector: str | None = None
    detector: str = "auto"
    allow_below_chance: bool = False
    weigh: WeighSettings = field(default_factory=WeighSettings)
    model: str | None = None
    size: str = "tiny"
    pretrain: PretrainSettings = field(default_factory=PretrainSettings)
    adapt: AdaptSettings = field(default_factory=AdaptSettings)
    arms: list[str] | dict[str, Any] = field(default_factory=lambda: ["general", "random", "dana"])
    cards: list[str] = field(default_factory=list)
    finetune: FinetuneSettings = field(default_factory=FinetuneSettings)
    seeds: RunSeeds = field(default_factory=RunSeeds)
    floors: str | list[str] = field(default_factory=lambda: list(FLOORS))
    jobs: int = 1

    def __post_init__(self) -> None:
        require(bool((self.out or "").strip()), "out", self.out, "a folder")
        require(
            not is_url(self.out),
            "out",
            self.out,
            "a local folder; copy it to a URL when it is whole",
        )
        for url in filter(is_url, (self.task, *self.general)):
            check_url(url)
        check_fields(self, on_bad_record=("fail", "skip"), jobs="at least 1")
        is_complete = all(source.strip() for source in self.general)
        require(
            is_complete,
            "general",
            self.general,
            "files, folders, globs, URLs or hf: names, none of them empty",
        )
        _ = self.described_arms  # checks them
        names = ", ".join(FLOORS)
        require(
            set(self.floor_names) <= set(FLOORS),
            "floors",
            self.floors,
            f"none, or a list of some of {names}",
        )

    def section(self, study: str) -> Any:
        """Return the section of a study.

        Raises:
            PluginError: If the study is missing.
        """
        if reason := missing_studies().get(study):
            raise PluginError(f"study {study}: {reason}")
        return getattr(self, study)

    @property
    def usual_store(self) -> str:
        """Default cache of embeddings: the run's own, ``OUT/embeddings``."""
        return str(Path(self.out) / "embeddings")

    @property
    def selector_spec(self) -> str:
        """Spec of the selector, with its default."""
        return self.selector or ("auto" if self.detector == "auto" else "detector")

    @property
    def floor_names(self) -> list[str]:
        """The floors of every task; empty for ``none``."""
        names = [self.floors] if isinstance(self.floors, str) else self.floors
        return [] if names == ["none"] else names

    @property
    def described_arms(self) -> tuple[Arm, ...]:
        """Every arm with its settings."""
        return parse_arms(self.arms, self.selector_spec, self.weigh, self.adapt)


def _with_studies() -> type[CoreSettings]:
    """Build the settings class: those of the core and a section for every study that has settings."""
    sections = [
        (study.name, section, field(default_factory=section))
        for study, section in load_parts("settings")
    ]
    attributes = {"__doc__": CoreSettings.__doc__, "__module__": __name__}
    return make_dataclass(
        "RunSettings", sections, bases=(CoreSettings,), namespace=attributes, frozen=True
    )


if TYPE_CHECKING:
    RunSettings = CoreSettings
else:
    RunSettings = _with_studies()


def read_recipe(name: str | Path, quick: bool = False) -> tuple[dict[str, Any], Path]:
    """Read the recipe of a name, a file or a folder of ``dana init``; paths of the latter start from the folder.

    Args:
        name: A YAML file, the name of a recipe that ships with dana, or a folder with
            ``recipe.yaml``.
        quick: Replace the amount of work by that of :data:`QUICK`, in a folder ``quick`` below
            ``out``.

    Returns:
        The recipe's values and its file.

    Raises:
        ConfigError: If there is no such recipe.
    """
    folder = Path(name)
    path = folder / RECIPE if folder.is_dir() else find_recipe(name)
    require(
        path.is_file(),
        "recipe",
        str(name),
        f"a folder with {RECIPE}, which dana init writes, or a recipe's file",
    )
    values = read_yaml(path)
    if folder.is_dir() or (path.parent / INIT).is_file():
        values |= {
            key: _below(path.parent, values[key])
            for key in ("task", "general", "cards")
            if key in values
        }
        values["out"] = str(path.parent / values.get("out", "."))
    if quick:
        values = merge_sections(
            values, {**QUICK, "out": str(Path(values.get("out", "runs/run")) / "quick")}
        )
        log.info("quick     %s, in %s", json.dumps(QUICK).replace('"', ""), values["out"])
    return values, path


def _below(folder: Path, value: Any) -> Any:
    """Join a folder and the relative paths and patterns of a setting; names of cards, URLs and numbers stay."""
    if isinstance(value, list):
        return [_below(folder, one) for one in value]
    is_path = (
        isinstance(value, str)
        and not is_url(value)
        and bool((folder / value).exists() or has_magic(value))
    )
    return str(folder / value) if is_path else value


def load_settings(
    values: dict[str, Any], overrides: Sequence[str] = (), origin: str = "settings"
) -> RunSettings:
    """Build the settings of a run as :func:`dana.core.config.load` does, and find the cards of its task path."""
    settings = with_store(load(RunSettings, values, overrides, origin))
    add_to_task_path(settings.task_path)
    return settings


def with_store(settings: RunSettings) -> RunSettings:
    """Resolve the cache of embeddings to a folder or None; the default is :attr:`RunSettings.usual_store`."""
    spec = settings.selection.store
    store = settings.usual_store if spec is None else None if spec == "none" else spec
    return replace(settings, selection=replace(settings.selection, store=store))
