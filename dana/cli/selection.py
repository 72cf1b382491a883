"""The commands that select text: ``dana score`` and ``dana weigh``."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dana.cli.flags import (
    AddCommand,
    Flag,
    add_command,
    add_remake,
    local_folder,
    plain_flags,
)
from dana.cli.settings import next_command, settings_from

if TYPE_CHECKING:
    from dana.core.artifacts import Artifact
    from dana.stages.settings import RunSettings

TEXTS = [
    *plain_flags("task pool+ data task_path+"),
    Flag(
        "--on-bad-record",
        "on_bad_record",
        "what to do with a record that cannot be read: fail or skip",
    ),
    *plain_flags("text_field+ id_field text_documents", "inputs."),
    *plain_flags("decontaminate+ near_duplicates sample", "hygiene."),
    Flag(
        "--encoder",
        "selection.encoder",
        "minilm, static, hashing, words:FILE, or transformer:NAME_OR_FOLDER",
    ),
    *plain_flags("geometry units language seed store", "selection."),
    Flag("--out", "out"),
]
OF_TEXTS = ("task", "pool", "data", "on_bad_record", "inputs", "hygiene")  # settings
SELECTOR = (
    "auto, lexical, moore_lewis, random, detector (the best by comparison), detector:knn ... "
    "(dana plugins list selector)"
)
ALLOW = Flag("--allow-below-chance", "allow_below_chance", options={"nargs": 0, "const": True})
SCORE = [*TEXTS, Flag("--selector", "selector", SELECTOR), ALLOW]
WEIGH = [ALLOW, *plain_flags("policy beta budget below balance gamma sharpness midpoint", "weigh.")]


def add_selection(add: AddCommand) -> None:
    """Add the commands.

    Args:
        add: ``add_parser`` of the command line's subparsers.
    """
    score = add_command(
        add, "score", _score, SCORE, reads=("ranking", "weigh", "detector"), json=True
    )
    score.set_defaults(processes=True)
    add_remake(score)
    part = score.add_mutually_exclusive_group()
    part.add_argument(
        "--rank-only", action="store_true", help="only compare the detectors, into OUT/ranking"
    )
    part.add_argument(
        "--prepare", action="store_true", help="only read the texts and fit the selector"
    )
    part.add_argument(
        "--shard", metavar="I/N", help="only score the I-th of N shares of the prepared text"
    )
    part.add_argument("--merge", action="store_true", help="only join the scores of the shards")
    weigh = add_command(add, "weigh", _weigh, WEIGH, folder="scores/ and pool/", json=True)
    weigh.add_argument("others", type=local_folder, nargs="*", help=argparse.SUPPRESS)
    add_remake(weigh)
    weights = "folder of the weights (default: DIR/weights)"
    weigh.add_argument("--out", dest="to", metavar="OUT", type=local_folder, help=weights)


def _rank(settings: "RunSettings", remake: bool) -> dict[str, Any]:
    """Compare the detectors on the texts of a run and print the comparison."""
    from dana.core.remake import call_remaking
    from dana.stages.rank import TABLE, comparison_text, is_below_chance, run_rank
    from dana.stages.recipe import write_recipe

    artifact = call_remaking(lambda: run_rank(settings), remake)
    write_recipe(settings, Path(settings.out))
    print(comparison_text(artifact.manifest))
    choice = artifact.manifest["chosen"]
    if is_below_chance(artifact.manifest):
        choice = "none: below chance"
    print(f"\nchosen: {choice}   written: {artifact.path / TABLE}")
    words = ("score", "--out", settings.out, "--selector", "detector")
    print(next_command(*words, note="without --selector: auto"))
    return {
        "ranking": artifact.path,
        "chosen": artifact.manifest["chosen"],
        "detectors": artifact.manifest["detectors"],
    }


def _score(args: argparse.Namespace) -> dict[str, Any]:
    """Score every unit of the pool against the task; higher = more foreign.

    Writes OUT/pool (the documents), OUT/target, OUT/scores/part-*.parquet (doc_id, source, unit,
    start, end, score; start and end are characters in the document) and
    OUT/scores/__dana__/held_out_target.parquet, the same for held-out target text.
    pandas.read_parquet("OUT/scores") opens the table.

    Scores by which held-out target text is more foreign than pool text (interval of AUROC below
    0.5) are refused.

    After a kill the same command resumes with the missing shards. Several processes: torchrun, or
    on GPUs accelerate launch, of recipes/score.py with the same flags. Several machines: --prepare
    on one, then --shard 1/N ... N/N on any, then --merge. The bytes are the same in every case.

    --rank-only compares the detectors and scores nothing: it fits each as --selector detector does,
    in five folds over the task's documents, and writes OUT/ranking/ranking.csv. recall: the share
    of held-out target units in the selected share (weigh.beta) of the pool, with a 95 %
    interval over documents. Of the detectors within one standard error of the best, the most stable
    is chosen. --set ranking.detectors=[knn,lof] names some.
    """
    from dana.core.remake import call_remaking
    from dana.stages.recipe import write_recipe
    from dana.stages.score import open_prepared, prepare_scoring, run_score

    settings = settings_from(args)
    answer: dict[str, Any] = {"out": settings.out, "selector": settings.selector_spec}
    if args.rank_only:
        return _rank(settings, args.remake)
    if args.prepare:
        scoring = call_remaking(lambda: prepare_scoring(settings), args.remake)
        write_recipe(settings, Path(settings.out))
        print(f"prepared: {scoring.shard_folder.path}")
        shards = "or 1/N to N/N on N machines"
        print(next_command("score", "--out", settings.out, "--shard", "1/1", note=shards))
    elif args.shard:
        from dana.core.launch import Share

        share = Share.parse(args.shard)
        scoring = open_prepared(settings)
        _check_prepared(args, settings)
        scoring.score(scoring.load_prepared(), share)
        print(f"scored:  share {args.shard}")
        words = ("score", "--out", settings.out, "--merge")
        print(next_command(*words, note="when all shares are scored"))
    else:
        if args.merge:
            scoring = open_prepared(settings)
            _check_prepared(args, settings)
            artifact = call_remaking(scoring.merge, args.remake)
        else:
            artifact = call_remaking(lambda: run_score(settings), args.remake)
        print(f"written: {artifact.path} ({artifact.manifest['counts']['units']:,} units)")
        write_recipe(settings, Path(settings.out))
        print(next_command("weigh", settings.out))
        answer |= {"scores": artifact.path, "units": artifact.manifest["counts"]["units"]}
    return answer


def _check_prepared(args: argparse.Namespace, settings: "RunSettings") -> None:
    """Refuse other texts than those of --prepare.

    With --shard and --merge the sources are not read.

    Raises:
        ConfigError: Names the flag or key.
    """
    from dana.core.config import flatten
    from dana.core.errors import ConfigError
    from dana.core.settings import load
    from dana.stages.recipe import read_run_recipe, recipe_values
    from dana.stages.settings import RunSettings

    folder = Path(settings.out)
    former = load(RunSettings, read_run_recipe(folder))
    prepared = dict(flatten(recipe_values(former, folder)))
    for key, value in flatten(recipe_values(settings, folder)):
        is_of_texts = key.partition(".")[0] in OF_TEXTS
        if is_of_texts and prepared.get(key) != value:
            name = args.flags.get(key, key)
            raise ConfigError(
                f"{name} {value!r}: --prepare read other texts; remove it or prepare again"
            )


def _weigh(args: argparse.Namespace) -> dict[str, Any]:
    """Turn scores into weights in [0, 1]; 1 = in-domain.

    segments  keep the best segments of consecutive units with weight 1, drop the rest (the paper's headline system)
    sigmoid   weigh every unit by 1 / (1 + exp(-C (alpha - A))); A is its score, standardised over the pool
    sampled   draw segments with probability proportional to that weight, then train on them with weight 1

    Writes DIR/weights/part-*.parquet; for segments and sampled also the selected text, one JSON
    line per run of adjacent units, in DIR/weights/__dana__/selected.jsonl.gz. Estimates from the
    scores of held-out target text how much of the selected text is in-domain.

    --balance TABLE divides the budget over the groups of a table (doc_id, unit, group) in DIR or at
    a path, so that the selected text is not of one topic; the others get what a group cannot use.
    """
    from dana.core.errors import ConfigError
    from dana.core.remake import call_remaking
    from dana.stages.recipe import settings_of_call
    from dana.stages.weigh import weigh_stage, weights_text

    folder = args.folder
    if args.others:
        runs = " ".join(str(run) for run in (folder, *args.others))
        raise ConfigError(
            f"{runs}: {1 + len(args.others)} runs; dana weigh takes one, weigh each alone"
        )
    settings = settings_from(args)
    out = args.to or folder / "weights"

    def weigh() -> "Artifact":
        return weigh_stage(
            folder / "scores",
            folder / "pool",
            settings.weigh,
            out,
            allowed=settings.allow_below_chance,
            given=settings_of_call(settings, args.explicit, ["weigh"]),
        )

    artifact = call_remaking(weigh, args.remake)
    print(weights_text(artifact))
    elsewhere: list[object] = []
    if out != folder / "weights":
        elsewhere = ["--weights", out, "--out", folder / f"adapted-{out.name}"]
    model = settings.model or "bert-base-uncased"
    print(next_command("adapt", folder, "--model", model, "--steps", 1000, *elsewhere))
    return {
        "weights": artifact.path,
        "units": artifact.manifest["counts"]["units"],
        "in_domain": artifact.manifest["in_domain"],
    }
