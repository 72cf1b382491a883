"""``dana run``: run a recipe as steps, from text to fine-tuned models, and report on the results."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dana.core.artifacts import Artifact, open_artifact
from dana.core.config import require
from dana.core.errors import ConfigError, DanaError
from dana.core.launch import on_rank_0
from dana.core.logging import get_logger
from dana.core.schemas import part_files
from dana.core.statistics import FIRST_LOOK
from dana.core.studies import load_parts
from dana.models.folder import load_config, load_own_tokenizer
from dana.models.pooling import read_pooling
from dana.report.run import is_control
from dana.scoring.inputs import PoolText, TargetText
from dana.scoring.scoring import build_selector
from dana.scoring.settings import Selection
from dana.stages.arms import Arm
from dana.stages.final_steps import arm_of_encoder, check_final, with_final
from dana.stages.finetune_steps import (
    WHOLE,
    TaskRun,
    baseline_step,
    cards_by_name,
    check_seeds,
    count_folds,
    folder_of_fold,
    loss_steps,
    refuse_mixed_precision,
    suffix,
    with_seed,
)
from dana.stages.harvest import CARD_NAME
from dana.stages.join import join_run
from dana.stages.pack import pack_stage
from dana.stages.pilot import choice_text, without_pilot
from dana.stages.pilot_steps import PILOT, pilot_name, pilot_steps
from dana.stages.plan import summary_text
from dana.stages.power import describe_power
from dana.stages.probe_steps import base_probe_steps, is_probed, probe_steps, retrieval_steps
from dana.stages.progress import Progress, milestones
from dana.stages.rank import RANKING, comparison_text, rank_stage
from dana.stages.recipe import HARVESTED_POOL, HARVESTED_TASK, write_recipe
from dana.stages.report import report_stage
from dana.stages.settings import RunSettings
from dana.stages.steps.run import Run
from dana.stages.steps.runner import execute
from dana.stages.steps.step import OutputOf, Step
from dana.stages.texts import check_names, held_out_folders, held_out_stage, open_texts
from dana.stages.training import (
    TrainingData,
    head_stage,
    pretrain_stage,
    require_saved_head,
)
from dana.stages.weigh import WeighSettings, first_look
from dana.tasks.card import find_card, load_card
from dana.tasks.examples import is_text
from dana.train.settings import AdaptSettings, PretrainSettings
from dana.weighting.settings import parse_balance

log = get_logger(__name__)

# Settings used by the steps that read text and that warm up a head; other settings can change
# without a rerun.
OF_TEXTS = ("out", "task", "pool", "data", "on_bad_record", "inputs", "hygiene")
OF_HEAD = ("objective", "seed", "max_tokens", "denominator", "execution", "head_warmup")


# What a quick run does of a recipe: these arms, and so many of its adaptations.
QUICK_ARMS = {"random", "dana"}
QUICK_ADAPTATIONS = 3


def run_recipe(settings: RunSettings, quick: bool = False, remake: bool = False) -> Path:
    """Run every step of a recipe and report on them; existing artifacts are reused.

    Args:
        settings: Settings of the run.
        quick: Whether to end earlier: see :func:`plan_run`. A run without goes on from there.
        remake: Whether artifacts of other settings are replaced instead of refused.

    Returns:
        Path of ``report.html``. Beside it, ``results.csv`` has one row per arm, task, metric and
        seed.

    Raises:
        ConfigError: If the task is neither a task card nor text.
        DanaError: If steps failed, after all others are done.
    """
    run = plan_run(settings, quick)
    refuse_mixed_precision(run)
    _describe_tasks(settings, quick)
    log.info("%s", summary_text(run))
    progress = Progress(run.folder, milestones(run))

    def tell(step: Step, output: str) -> None:
        _show_selection(step, output)
        if step.name.partition("/")[0] == PILOT:
            log.info("pilot     %s", choice_text(Path(output)))
        progress.tell(step)

    execute(run, settings.jobs, tell, remake)
    out = Path(settings.out)
    write_recipe(settings, out)
    arms = [arm.name for arm in _arms_to_run(settings, quick)]
    on_rank_0(lambda: join_run(out, ["base", *arms]))
    return on_rank_0(lambda: report_stage(out))


def _describe_tasks(settings: RunSettings, quick: bool = False) -> None:
    """Log the labels and texts of each task, and what differences so many texts can decide.

    Args:
        settings: Settings of the run.
        quick: Whether the run ends earlier: see :func:`plan_run`.
    """
    folds = count_folds(settings)
    has_texts = _has_texts_alone(settings)
    if has_texts:
        hint = "for labels: dana init, or a task card"
        what = f"has no labels: arms are compared by the loss of held-out text ({hint})"
        log.info("task      %s %s", settings.task, what)
    cards = settings.cards
    if not cards and settings.harvest is None and not has_texts:
        cards = [settings.task]
    for name in cards:
        own_folds = {name: folds[name]} if name in folds else {}
        count = _count_adaptations(settings, own_folds)
        lines = describe_power(
            settings.finetune.fields_of(load_card(name)),
            settings.data,
            count=count,
            quick=min(count, QUICK_ADAPTATIONS) if quick else None,
            is_folded=name in folds,
            is_probed=settings.probe.enabled,
            max_train=settings.finetune.max_train,
        )
        for number, line in enumerate(lines):
            log.info("%-9s %s", "" if number else "task", line)


def _count_adaptations(settings: RunSettings, folds: Mapping[str, int]) -> int:
    """Return how many adaptations, or folds, a whole run has."""
    return min([*folds.values(), settings.seeds.adaptations])


def _show_selection(step: Step, output: str) -> None:
    """Log a first look at the text that an arm selects, of the first adaptation."""
    arm = step.labels.get("arm", "")
    if step.name == f"weigh/{arm}" != "weigh/random":
        log.info("selected  %s: %s", arm, first_look(open_artifact(Path(output), "weights")))


def plan_run(settings: RunSettings, quick: bool = False) -> Run:
    """Plan the steps of a recipe, after checking that every component in it exists.

    Args:
        settings: Settings of the run.
        quick: Whether to plan a part of the same steps: of the arms only ``random`` and ``dana``
            (with what they come after), if the recipe has both, and at most three adaptations or
            folds. Tasks that are probed are not fine-tuned.

    Raises:
        DanaError: If a component is unknown; names the arm.
    """
    check_seeds(settings)
    with _naming("model"):
        if settings.model:
            load_config(settings.model)
            read_pooling(settings.model)
    with _naming("selection"):
        settings.selection.splitter()
    selectors = {}
    for arm in settings.described_arms:
        if arm.selects:
            with _naming(f"arms.{arm.name}"):
                selectors[arm.name] = _selector_of(arm, settings)
    steps = list(_steps(settings, selectors, quick))
    if settings.final:
        steps = _with_model(steps, settings, selectors, quick)
    return Run(Path(settings.out), tuple(steps))


@contextmanager
def _naming(key: str) -> Iterator[None]:
    """Begin the message of an error with the key of the recipe that it is about."""
    try:
        yield
    except DanaError as error:
        raise type(error)(f"{key}: {error}") from error


def _with_model(
    steps: Sequence[Step],
    settings: RunSettings,
    selectors: dict[str, tuple[str, str]],
    quick: bool,
) -> list[Step]:
    """Add the steps that end a run in a model and an encoder."""
    read = _with_harvest(settings)
    cards = _cards_of(settings, read)
    check_final(settings, cards)
    arm = arm_of_encoder(_arms_to_run(settings, quick))
    [card] = cards.values()
    folds = count_folds(settings).get(card, 0)
    of_all_texts: list[Step] = []
    if arm is not None and read.task in count_folds(settings):
        names = {step.name for step in steps}
        of_all_texts = list(_steps_of_all_texts(settings, selectors, arm, cards, names))
    return list(with_final(steps, settings, cards, arm, folds, of_all_texts, quick))


def _steps_of_all_texts(
    settings: RunSettings,
    selectors: dict[str, tuple[str, str]],
    arm: Arm,
    cards: Mapping[str, str],
    names: Collection[str],
) -> Iterator[Step]:
    """Yield the steps that select and adapt with all labelled texts, the adaptation of an arm last.

    Args:
        settings: Settings of the run.
        selectors: Specs of the selector and detector of every arm.
        arm: The arm.
        cards: Card of each task.
        names: Names of the steps of the run.
    """
    read = _with_harvest(settings)
    folds = count_folds(settings)
    by_name = {one.name: one for one in settings.described_arms}
    arms = [arm]
    while arms[0].after:
        arms.insert(0, by_name[arms[0].after])
    yield from _task_steps(settings, _settings_of_texts(read), selectors, WHOLE, folds[read.task])
    yield from _weights(settings, arms, selectors, names, WHOLE, WHOLE)
    yield from pilot_steps(settings, arms, cards, WHOLE, WHOLE, folds)
    for step in _adapt_steps(settings, arms, WHOLE, WHOLE):
        if not step.name.startswith("gate/"):
            yield step


def _arms_to_run(settings: RunSettings, quick: bool) -> list[Arm]:
    """Return all arms, or those of a quick run; see :func:`plan_run`."""
    arms = {arm.name: arm for arm in settings.described_arms}
    if not quick or not arms.keys() >= QUICK_ARMS:
        return list(arms.values())
    names = set(QUICK_ARMS)
    for name in QUICK_ARMS:
        while arms[name].after:
            name = arms[name].after
            names.add(name)
    return [arm for arm in arms.values() if arm.name in names]


def _selector_of(arm: Arm, settings: RunSettings) -> tuple[str, str]:
    """Return the specs of an arm's selector and detector, both checked; the detector is empty if none is used."""
    detector = arm.detector or settings.detector
    check_names(replace(settings, selector=arm.selector, detector=detector))
    takes = "detector" in build_selector(arm.selector, detector, settings.selection).uses
    if arm.detector and not takes:
        raise ConfigError(
            f"detector={arm.detector!r} has no effect with selector {arm.selector}; remove it"
        )
    return arm.selector, detector if takes else ""


def _with_harvest(settings: RunSettings) -> RunSettings:
    """Point the task and the pool of a run to the output of its harvest step, if it has one."""
    if settings.harvest is None:
        return settings
    out = Path(settings.out)
    pool = [str(out / HARVESTED_POOL)]
    return replace(settings, harvest=None, task=str(out / HARVESTED_TASK), pool=pool)


def _steps(
    settings: RunSettings, selectors: dict[str, tuple[str, str]], quick: bool
) -> Iterator[Step]:
    """Yield all steps in the order of their dependencies, what costs seconds first.

    After the baselines and the probe of the base come the first adaptations of all arms with their
    probes, which are what a quick run does; then their fine-tunings; then one adaptation after the
    other. So a run that was stopped has the same adaptations of all arms.

    Args:
        settings: Settings of the run.
        selectors: Specs of each arm's selector and detector.
        quick: See :func:`plan_run`.
    """
    folds = count_folds(settings)
    read = _with_harvest(settings)
    cards = _cards_of(settings, read)
    count = _count_adaptations(settings, folds)
    before: tuple[str, ...] = ()
    if settings.harvest is not None:
        arguments = {"folder": Path(settings.out) / "data", "settings": settings.harvest}
        yield Step("harvest", "dana.stages.harvest:harvest_stage", arguments)
        before = ("harvest",)
    yield from _first_steps(settings, cards, count, folds, before)
    texts = _settings_of_texts(read)
    yield Step("texts", f"{__name__}:read_texts", {"settings": texts}, before)
    study_steps = [step for _, steps in load_parts("steps") for step in steps(read, texts)]
    yield from study_steps
    yield _base_step(settings)
    plan = _Plan(settings, selectors, texts, cards, folds, {step.name for step in study_steps})
    results: list[str] = []
    for block in _blocks(settings, cards, count):
        if quick and block[0] >= QUICK_ADAPTATIONS:
            return
        for index in block:
            steps = list(_adaptation_steps(plan, index, quick))
            results += [step.name for step in steps if step.name.startswith("loss/")]
            yield from steps
        for index in block:
            tunings = list(
                _finetune_steps(settings, _cards_to_tune(plan, quick), plan, index, quick)
            )
            results += [step.name for step in tunings]
            yield from tunings
            if settings.seeds.stop_early and not quick and FIRST_LOOK <= index + 1 < count:
                yield _look_step(plan, index, count, results)


@dataclass(frozen=True)
class _Plan:
    """What the steps of every adaptation have in common.

    Attributes:
        settings: Settings of the run.
        selectors: Specs of each arm's selector and detector.
        texts: Settings of reading text.
        cards: Card of each task by its name; empty without labels.
        folds: Number of folds by card, of those that have some.
        tables: Names of the steps of studies.
    """

    settings: RunSettings
    selectors: dict[str, tuple[str, str]]
    texts: RunSettings
    cards: Mapping[str, str]
    folds: Mapping[str, int]
    tables: Collection[str]

    def fold_of(self, index: int) -> int:
        """Return the fold that the target text of an adaptation leaves out."""
        return index if self.settings.task in self.folds else 0

    def models(self, arms: Sequence[Arm], index: int) -> dict[str, str]:
        """Return the name of the step that makes each arm's model of one adaptation, the base first."""
        makers = {
            arm.name: f"adapt/{arm.name}{suffix(index)}" if arm.mix else "base" for arm in arms
        }
        return {"base": "base", **makers}


def _cards_of(settings: RunSettings, read: RunSettings) -> dict[str, str]:
    """Return the card of each task of a run by its name; none for text without labels."""
    if _has_texts_alone(read):
        return {}
    names = {read.task: CARD_NAME} if settings.harvest is not None else {}
    return cards_by_name(read.cards or [read.task], names)


def _settings_of_texts(read: RunSettings) -> RunSettings:
    """Return the settings that decide which texts are read, all others as they are by default."""
    texts = replace(RunSettings(), **{name: getattr(read, name) for name in OF_TEXTS})
    cut = replace(Selection(), seed=read.selection.seed, language=read.selection.language)
    divided = [card for card in read.cards if load_card(card).is_divided]
    return replace(texts, selection=cut, cards=divided)


def _first_steps(
    settings: RunSettings,
    cards: Mapping[str, str],
    count: int,
    folds: Mapping[str, int],
    before: tuple[str, ...],
) -> Iterator[Step]:
    """Yield the steps that cost seconds and need no pool: baselines, and the probe of the base.

    Args:
        settings: Settings of the run.
        cards: Card of each task.
        count: Number of adaptations or folds of a whole run.
        folds: Number of folds by card.
        before: Steps that make the cards.
    """
    for task, card in cards.items() if settings.baseline_names else ():
        yield baseline_step(settings, task, card, count if card in folds else None, before)
    yield from base_probe_steps(settings, cards, range(count), folds, before)


def _base_step(settings: RunSettings) -> Step:
    """Make the step that prepares the model that the arms adapt."""
    arguments: dict[str, Any] = {
        "out": Path(settings.out),
        "model": settings.model,
        "size": settings.size,
        "pretrain": settings.pretrain,
        "adapt": _of_head(settings),
    }
    return Step("base", f"{__name__}:base_model", arguments, ("texts",))


def _blocks(settings: RunSettings, cards: Mapping[str, str], count: int) -> list[range]:
    """Divide the adaptations into those that are fine-tuned together.

    If a task is probed, the first ones, which a quick run has, are all adapted and probed before any is
    fine-tuned: the probe answers in minutes. Else each adaptation is fine-tuned before the next.
    """
    first = 1
    if any(is_probed(settings, card) for card in cards.values()):
        first = min(count, QUICK_ADAPTATIONS)
    return [range(first), *(range(index, index + 1) for index in range(first, count))]


def _cards_to_tune(plan: _Plan, quick: bool) -> dict[str, str]:
    """Return the cards of the tasks that are fine-tuned; a quick run fine-tunes what has no probe."""
    return {
        task: card
        for task, card in plan.cards.items()
        if not (quick and is_probed(plan.settings, card))
    }


def _adaptation_steps(plan: _Plan, index: int, quick: bool) -> Iterator[Step]:
    """Yield the steps of one adaptation of all arms, up to the probes of their models.

    Args:
        plan: What all adaptations have in common.
        index: Index of the adaptation.
        quick: See :func:`plan_run`.
    """
    repeat = with_seed(plan.settings, index)
    arms = _arms_to_run(repeat, quick)
    fold = plan.fold_of(index)
    out = Path(repeat.out)
    models = plan.models(arms, index)
    if fold == index:
        yield from _task_steps(repeat, plan.texts, plan.selectors, fold)
    yield from _weights(repeat, arms, plan.selectors, plan.tables, index, fold)
    yield from pilot_steps(repeat, arms, plan.cards, index, fold, plan.folds)
    yield from _adapt_steps(repeat, arms, index, fold)
    if not plan.cards:
        for arm in arms:
            if arm.mix:
                require_saved_head(arm.adapt)
        for arm_name, model in models.items():
            yield from loss_steps(repeat, arm_name, OutputOf(model), index)
    held_out = dict(zip(("target", "pool"), held_out_folders(out), strict=True))
    held_out["target"] = held_out_folders(folder_of_fold(out, fold))[0]
    yield from probe_steps(plan.settings, plan.cards, models, index, plan.folds)
    if index == 0:
        yield from retrieval_steps(plan.settings, models, held_out)


def _look_step(plan: _Plan, index: int, count: int, results: Sequence[str]) -> Step:
    """Make the step that looks at the results so far, and may stop the run.

    Args:
        plan: What all adaptations have in common.
        index: Index of the newest adaptation.
        count: Number of adaptations of the whole run.
        results: Names of the steps that make the results so far.
    """
    arms = ["base", *(arm.name for arm in plan.settings.described_arms)]
    look = {
        "out": Path(plan.settings.out),
        "arms": list(dict.fromkeys(arms)),
        "adaptations": index + 1,
        "horizon": count,
    }
    stage = "dana.stages.report:look_stage"
    return Step(f"look/{index}", stage, look, tuple(results), stops=True)


def _finetune_steps(
    settings: RunSettings, cards: Mapping[str, str], plan: _Plan, index: int, quick: bool
) -> Iterator[Step]:
    """Yield the steps that fine-tune each arm's model of one adaptation on each task.

    Args:
        settings: Settings of the run.
        cards: Card of each task that is fine-tuned.
        plan: What all adaptations have in common.
        index: Index of the adaptation.
        quick: See :func:`plan_run`.
    """
    models = plan.models(_arms_to_run(settings, quick), index)
    for task, card in cards.items():
        for arm, maker in models.items():
            tuning = TaskRun(
                OutputOf(maker),
                card,
                settings.finetune,
                Path(settings.out) / "finetune" / task / arm,
                f"{task}/{arm}",
                settings.data,
                {"task": task, "arm": arm},
            )
            yield from tuning.steps(index, settings.seeds.of_adaptation(index), card in plan.folds)


def _has_texts_alone(settings: RunSettings) -> bool:
    """Return whether a run has a task without labels, whose arms are compared by their losses on held-out text."""
    is_alone = bool(settings.task) and not settings.cards and settings.harvest is None
    return is_alone and is_text(settings.task) and find_card(settings.task) is None


def _task_steps(
    settings: RunSettings,
    texts: RunSettings,
    selectors: dict[str, tuple[str, str]],
    fold: int,
    tested: int | None = None,
) -> Iterator[Step]:
    """Yield the steps of the target text of a run, or of one fold: reading and ranking.

    Args:
        settings: Settings of the run.
        texts: Settings of the reading of texts.
        selectors: Specs of each arm's selector and detector.
        fold: The fold, which names steps and folders.
        tested: The fold whose texts are left out, if it has another number.
    """
    folder = folder_of_fold(Path(settings.out), fold)
    ending = suffix(fold)
    if fold:
        left_out = fold if tested is None else tested
        arguments = {"settings": texts, "folder": folder / "target", "fold": left_out}
        yield Step(f"texts{ending}", "dana.stages.texts:read_target", arguments, ("texts",))
    if any(detector == "auto" for _, detector in selectors.values()):
        weigh = WeighSettings(beta=settings.weigh.share)
        ranking = replace(
            texts, selection=settings.selection, ranking=settings.ranking, weigh=weigh
        )
        arguments = {"settings": ranking, "fold_folder": folder}
        yield Step(f"rank{ending}", f"{__name__}:rank_texts", arguments, (f"texts{ending}",))


def _of_head(settings: RunSettings) -> AdaptSettings:
    """Return the settings of the arms that decide the base model."""
    adapt = without_pilot(settings.adapt)
    of_base = OF_HEAD if settings.model else ()
    return replace(AdaptSettings(), **{name: getattr(adapt, name) for name in of_base})


def _weights(
    settings: RunSettings,
    arms: Sequence[Arm],
    selectors: dict[str, tuple[str, str]],
    tables: Collection[str],
    index: int,
    fold: int,
) -> Iterator[Step]:
    """Yield the steps of scores, shared by arms with equal selectors, and of weights, for one adaptation.

    Args:
        settings: Settings of the run.
        arms: The arms to run.
        selectors: Specs of the selector and detector of every arm of the recipe. Equal scores have
            the name of the first, whether it is to run or not.
        tables: Names of the steps of studies; an arm that balances its budget over one of them
            waits for it.
        index: Index of the adaptation.
        fold: Fold that its target text leaves out.
    """
    owners: dict[tuple[str, str], str] = {}
    for name, specs in selectors.items():
        owners.setdefault(specs, name)
    scored: set[tuple[str, str]] = set()
    for arm in arms:
        if not arm.selects:
            continue
        specs = selectors[arm.name]
        score_step = _score_step(settings, owners[specs], specs, index, fold)
        if specs not in scored:
            scored.add(specs)
            yield score_step
        yield _weigh_step(settings, arm, score_step.name, tables, index)


def _score_step(
    settings: RunSettings, owner: str, specs: tuple[str, str], index: int, fold: int
) -> Step:
    """Make the step that scores the pool.

    Args:
        settings: Settings of the run.
        owner: Name of the arm that the scores are named after.
        specs: Specs of its selector and detector.
        index: Index of the adaptation.
        fold: Fold that its target text leaves out.
    """
    selector, detector = specs
    out = Path(settings.out)
    arms_of_adaptation = folder_of_fold(out, index)
    scores = arms_of_adaptation / "arms" / owner / "scores"
    if selector == settings.selector_spec and detector in ("", settings.detector):
        scores = arms_of_adaptation / "scores"  # where dana score writes
    arguments = {
        "out": out,
        "fold_folder": folder_of_fold(out, fold),
        "selector": selector,
        "detector": detector,
        "folder": scores,
        "allowed": settings.allow_below_chance,
        "selection": settings.selection,
    }
    before = "rank" if detector == "auto" else "texts"
    return Step(
        f"score/{owner}{suffix(index)}",
        "dana.stages.score:score_read",
        arguments,
        (f"{before}{suffix(fold)}",),
    )


def _weigh_step(
    settings: RunSettings, arm: Arm, score_step: str, tables: Collection[str], index: int
) -> Step:
    """Make the step that turns the scores of an arm into weights.

    Args:
        settings: Settings of the run.
        arm: The arm.
        score_step: Name of the step that makes its scores.
        tables: Names of the steps of studies.
        index: Index of the adaptation.

    Raises:
        ConfigError: If the arm balances its budget over a table that is not there.
    """
    out = Path(settings.out)
    arguments = {
        "scores": OutputOf(score_step),
        "pool": out / "pool",
        "settings": arm.weigh,
        "allowed": settings.allow_below_chance,
        "folder": folder_of_fold(out, index) / "arms" / arm.name / "weights",
    }
    if arm.weigh and arm.weigh.balance:
        table = parse_balance(arm.weigh.balance).table
        is_known = table in tables or part_files(out / table) or part_files(Path(table))
        what = f"a table of groups, in {out} or at a path"
        require(bool(is_known), "balance", arm.weigh.balance, what)
        if table in tables:
            arguments["groups"] = OutputOf(table)
    return Step(
        f"weigh/{arm.name}{suffix(index)}",
        "dana.stages.weigh:weigh_stage",
        arguments,
        labels={"arm": arm.name},
    )


def _adapt_steps(
    settings: RunSettings, arms: Sequence[Arm], index: int, fold: int
) -> Iterator[Step]:
    """Yield the steps that look at the text of each selection, and adapt each arm's model, for one adaptation."""
    out = Path(settings.out)
    ending = suffix(index)
    before = (f"texts{suffix(fold)}",)
    looked_at = []
    for arm in arms:
        if not arm.mix:
            continue
        folder = folder_of_fold(out, index) / "arms" / arm.name
        labels = {"arm": arm.name}
        inputs = {
            "pool": out / "pool",
            "weights": OutputOf(f"weigh/{arm.name}{ending}") if arm.selects else None,
            "target_heldout": held_out_folders(folder_of_fold(out, fold))[0],
            "pool_heldout": held_out_folders(out)[1],
        }
        selection = (arm.selector, arm.detector, arm.weigh)
        if arm.selects and not is_control(arm.name) and selection not in looked_at:
            looked_at.append(selection)
            gate = {
                **inputs,
                "model": OutputOf("base"),
                "settings": without_pilot(arm.adapt),
                "out": folder / "gate",
            }
            stage = "dana.stages.gate:gate_stage"
            yield Step(f"gate/{arm.name}{ending}", stage, gate, before, labels)
        training: dict[str, Any] = {
            **inputs,
            "model": OutputOf(f"adapt/{arm.after}{ending}" if arm.after else "base"),
            "settings": arm.adapt,
            "out": folder / "adapted",
        }
        stage = "dana.stages.training:adapt_stage"
        if arm.adapt.is_auto:
            stage = "dana.stages.pilot:adapt_chosen"
            training["pilot"] = OutputOf(pilot_name(settings, index))
        if without_pilot(arm.adapt).make_objective().cuts_sentences:
            training["language"] = settings.selection.language
        yield Step(f"adapt/{arm.name}{ending}", stage, training, before, labels)


def read_texts(settings: RunSettings) -> Artifact:
    """Read both texts of a run and return the pool; see :func:`dana.stages.texts.open_texts`."""
    return open_texts(settings, selects=False)[1].artifact


def rank_texts(settings: RunSettings, fold_folder: Path) -> Artifact:
    """Rank the detectors on the target text of a run, or of a fold, and log the comparison.

    Args:
        settings: Settings of the run.
        fold_folder: Folder with the target text, which gets the ranking.
    """
    ranking = rank_stage(
        TargetText.open(fold_folder / "target"),
        PoolText.open(Path(settings.out) / "pool"),
        settings.selection,
        settings.ranking,
        fold_folder / RANKING,
        settings.weigh.share,
    )
    log.info("%s", comparison_text(ranking.manifest))
    return ranking


def base_model(
    out: Path, model: str | None, size: str, pretrain: PretrainSettings, adapt: AdaptSettings
) -> str:
    """Prepare the model that the arms adapt, and tokenise the pool for it once.

    Args:
        out: Folder of the run.
        model: Folder or Hub name; None trains one from scratch.
        size: Size of a model from scratch.
        pretrain: Settings of training from scratch.
        adapt: Settings of the arms, which define how a missing language-model head is warmed up.

    Returns:
        Folder or Hub name of the model; that of `model` if it has a language-model head.
    """
    pool = out / "pool"
    of_target, of_pool = held_out_folders(out)
    held_out_stage(pool, of_pool)
    if model is None:
        trained = pretrain_stage(size, pool, of_target, of_pool, pretrain, out / "base")
        base = str(trained.path)
    else:
        base = head_stage(model, TrainingData(pool, None, of_target, of_pool), adapt, out / "base")
    pack_stage(pool, load_own_tokenizer(base))
    return base
