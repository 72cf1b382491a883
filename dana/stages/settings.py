"""Settings of a whole run, one section per step, as in the YAML of a recipe; flags of commands fill them in."""

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, model_validator
from pydantic_core import ArgsKwargs

from dana.core.errors import ConfigError, PluginError, SettingError
from dana.core.settings import (
    Bool,
    Count,
    Int,
    OneOf,
    build,
    hints_of,
    load,
    settings_model,
    unknown_key,
)
from dana.core.storage import check_url, is_url
from dana.core.studies import load_parts, missing_studies
from dana.corpus.inputs import Inputs
from dana.finetuning.settings import METHODS, ProbeSettings
from dana.finetuning.settings import FinetuneSettings as FinetuneSettings
from dana.scoring.settings import RankSettings, Selection
from dana.stages.arms import Arm, parse_arms
from dana.tasks.finder import add_to_task_path
from dana.tasks.settings import MOST_SEEDS, Hygiene
from dana.train.settings import UNLABELLED, AdaptSettings, PretrainSettings
from dana.weighting.settings import WeighSettings

BASELINES = ("majority", "tfidf", "vectors")
NO_ARMS = ["base"]  # of a command that adapts one model: a recipe's arms may not fit its mixture


@settings_model
class RunSeeds:
    """Repetitions of a run, so that the spread of scores includes selection, adaptation and fine-tuning."""

    adaptations: Annotated[Int, Field(ge=1, le=MOST_SEEDS)] = 5
    """Number of adaptations of each arm, every one with a selection and a seed of its own. With a
    card that has folds, one per fold, and at most as many as it has folds."""
    finetunings: Annotated[Int, Field(ge=1, le=MOST_SEEDS)] = 2
    """Number of fine-tunings of each adapted model. The base is fine-tuned as often as all models
    of an arm together, with the same seeds."""
    stop_early: Bool = False
    """Look at the results after each adaptation from the third on; run no further one once every
    question is decided or would hardly be. p and intervals allow for the looks, also if the run is
    continued without."""

    def __post_init__(self) -> None:
        if self.stop_early and self.adaptations <= 3:
            remedy = "above 3, as many as the first look has, with stop_early"
            raise SettingError("adaptations", self.adaptations, remedy)

    def of_adaptation(self, index: int) -> list[int]:
        """Return the seeds of the fine-tunings of one adaptation, from 0."""
        return list(range(index * self.finetunings, (index + 1) * self.finetunings))


@settings_model
class RunSettings:
    """Settings of a run, one section per step: texts, selection, ranking, weights, training, fine-tuning.

    A recipe also has a section for every installed study, by the study's name; see :meth:`section`.
    """

    out: str = "runs/run"
    """Folder of the run."""
    task: str = ""
    """A card's name, a card's YAML file, or text: a file, glob, folder or URL of one."""
    pool: list[str] = field(default_factory=list)
    """Files, globs, folders, URLs of these (s3://, gs://, hf:// ...), or
    hf:name[@revision][:config][:split]."""
    unlabelled: list[str] = field(default_factory=list)
    """More texts of the task's own kind, without labels, for the arm unlabelled: files, folders, globs
    or URLs, read as the pool is. Evaluation texts in them are left out."""
    data: str | None = None
    """Folder that holds a card's data, where it is not under DANA_DATA."""
    task_path: list[str] = field(default_factory=list)
    """Folders whose task cards are found by name, beside the shipped ones and those under
    DANA_TASK_PATH."""
    on_bad_record: Annotated[str, OneOf(("fail", "skip"))] = "fail"
    """fail or skip (counted)."""
    inputs: Inputs = field(default_factory=Inputs)
    """How records of the pool and of plain target text become documents."""
    hygiene: Hygiene = field(default_factory=Hygiene)
    """What is kept away from training: text of evaluation splits, near duplicates."""
    selection: Selection = field(default_factory=Selection)
    """How text is cut, embedded and placed."""
    ranking: RankSettings = field(default_factory=RankSettings)
    """How the zoo is ranked."""
    selector: str | None = None
    """Spec of the selector. None is auto, which chooses or fuses selectors; or detector, if a
    detector is given."""
    detector: str = "auto"
    """Spec of the detector for selectors that use one, or auto, the choice of the ranking."""
    allow_below_chance: Bool = False
    """Also use what ranks held-out target text below chance."""
    weigh: WeighSettings = field(default_factory=WeighSettings)
    """How scores become weights."""
    model: str | None = None
    """The checkpoint to adapt, a folder or a Hub name; empty trains one from scratch."""
    size: str = "tiny"
    """Size of a base from scratch: tiny, mini, small, medium or base."""
    pretrain: PretrainSettings = field(default_factory=PretrainSettings)
    """Training of a base from scratch."""
    adapt: AdaptSettings = field(default_factory=AdaptSettings)
    """Continued pretraining of every arm."""
    arms: list[str] | dict[str, Any] = field(default_factory=lambda: ["pool", "random", "dana"])
    """What is compared with the base: ready-made arms by name (pool, random, dana, task, unlabelled,
    task+random, task+dana), or a mapping of names to pool, task, unlabelled or {mix: SHARES, after:
    ARM, selector: SPEC, detector: SPEC, weigh: {what differs}, adapt: {what differs}}."""
    cards: list[str] = field(default_factory=list)
    """Task cards to fine-tune on; empty takes `task`."""
    finetune: FinetuneSettings = field(default_factory=FinetuneSettings)
    """The fine-tuning, the same for every arm."""
    probe: ProbeSettings = field(default_factory=ProbeSettings)
    """The frozen probe, the same for every arm."""
    seeds: RunSeeds = field(default_factory=RunSeeds)
    """How often an arm is adapted, and each adapted model fine-tuned."""
    baselines: str | list[str] = field(default_factory=lambda: list(BASELINES))
    """Simple models that an adapted one must beat: majority, tfidf, vectors; or none."""
    pilot: Annotated[str, OneOf(("first", "every"))] = "first"
    """With objective auto: first chooses for all folds or adaptations by the training texts of the
    first, every chooses for each by its own."""
    final: Bool = False
    """End in a model: the best of what the run tests, fitted to all labelled texts, in OUT/model, and
    the adapted encoder in OUT/encoder. dana init turns it on."""
    candidates: list[str] = field(default_factory=lambda: ["contrastive"])
    """Ways of fine-tuning that are tried for the model at the end beside `finetune.method`, of the base
    and of the adapted model, one seed a fold: contrastive, where each text has one label; empty for
    none. Each has its own hyper-parameters."""
    jobs: Count = 1
    """Number of steps of the recipe that run in parallel, each in a process of its own; launched
    processes share the steps instead. dana init writes 2 for a CPU."""

    studies: dict[str, Any] = field(default_factory=dict, repr=False)
    """The section of every installed study, by its name; in a recipe they stand beside the others."""

    @model_validator(mode="before")
    @classmethod
    def _gather_studies(cls, given: Any) -> Any:
        """Move the sections of studies, which stand beside the others, into :attr:`studies`."""
        values = dict(given.kwargs or {}) if isinstance(given, ArgsKwargs) else dict(given)
        known = hints_of(cls)
        sections = values.pop("studies", {})
        for key in values:
            if key not in known:
                raise ConfigError(unknown_key(str(key), str(key), known))
        models = study_models()
        sections = sections | {name: values.pop(name) for name in models if name in values}
        values["studies"] = {
            name: _section(model, sections.get(name, {}), name) for name, model in models.items()
        }
        return values

    @classmethod
    def more_sections(cls) -> dict[str, type]:
        """Return the keys of a recipe that are not fields: the sections of studies."""
        return study_models()

    def __post_init__(self) -> None:
        if not self.out.strip():
            raise SettingError("out", self.out, "a folder")
        if is_url(self.out):
            raise SettingError("out", self.out, "a local folder; copy it to a URL when it is whole")
        for url in filter(is_url, (self.task, *self.pool, *self.unlabelled)):
            check_url(url)
        if self.model == "auto":
            form = "a name or a folder; dana init --model auto chooses one and writes its name here"
            raise SettingError("model", self.model, form)
        for name in ("pool", UNLABELLED):
            sources = getattr(self, name)
            if not all(source.strip() for source in sources):
                form = "files, folders, globs, URLs or hf: names, none of them empty"
                raise SettingError(name, sources, form)
        _ = self.described_arms  # checks them
        if not set(self.baseline_names) <= set(BASELINES):
            names = ", ".join(BASELINES)
            raise SettingError("baselines", self.baselines, f"none, or a list of some of {names}")
        is_twice = len(set(self.candidates)) < len(self.candidates)
        if is_twice or not set(self.candidates) <= set(METHODS):
            form = f"a list of some of {', '.join(METHODS)}, each once, or []"
            raise SettingError("candidates", self.candidates, form)

    def section(self, study: str) -> Any:
        """Return the section of a study.

        Raises:
            PluginError: If the study is missing.
        """
        if reason := missing_studies().get(study):
            raise PluginError(f"study {study}: {reason}")
        return self.studies[study]

    @property
    def usual_store(self) -> str:
        """Default cache of embeddings: the run's own, ``OUT/embeddings``."""
        return str(Path(self.out) / "embeddings")

    @property
    def selector_spec(self) -> str:
        """Spec of the selector, with its default."""
        return self.selector or ("auto" if self.detector == "auto" else "detector")

    @property
    def baseline_names(self) -> list[str]:
        """The baselines of every task; empty for ``none``."""
        names = [self.baselines] if isinstance(self.baselines, str) else self.baselines
        return [] if names == ["none"] else names

    @property
    def described_arms(self) -> tuple[Arm, ...]:
        """Every arm with its settings."""
        return parse_arms(self.arms, self.selector_spec, self.weigh, self.adapt)


@cache
def study_models() -> dict[str, type]:
    """Return the class of the settings of every study that has some, by the study's name."""
    models = {}
    for study, model in load_parts("settings"):
        is_checked = hasattr(model, "__pydantic_validator__")  # else a plug-in's plain dataclass
        models[study.name] = model if is_checked else settings_model(model)
    return models


def _section(model: type, values: Any, name: str) -> Any:
    """Build the section of a study, with its name in messages."""
    if isinstance(values, Mapping):
        return build(model, values, f"{name}.")
    if not isinstance(values, model):
        raise SettingError(name, values, "a mapping of settings")
    return values


def load_settings(
    values: dict[str, Any], overrides: Sequence[str] = (), origin: str = "settings"
) -> RunSettings:
    """Build the settings of a run as :func:`dana.core.settings.load` does, and find the cards of its task path."""
    settings = with_store(load(RunSettings, values, overrides, origin))
    add_to_task_path(settings.task_path)
    return settings


def with_store(settings: RunSettings) -> RunSettings:
    """Resolve the cache of embeddings to a folder or None; the default is :attr:`RunSettings.usual_store`."""
    store = settings.selection.store
    if store is None:
        store = settings.usual_store
    elif store == "none":
        store = None
    return replace(settings, selection=replace(settings.selection, store=store))


def inputs_from(overrides: Sequence[str]) -> Inputs:
    """Make the settings of reading from ``key=value``, for commands without a recipe.

    Raises:
        ConfigError: If a key is unknown or a value is not allowed.
    """
    return load(Inputs, {}, overrides, origin="--inputs")
