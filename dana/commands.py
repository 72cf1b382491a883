"""What each command of the command line does: fill settings, call one stage, say what was written and what is next."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dana.stages.settings import RunSettings

LISTS = {"general", "hygiene.decontaminate", "ranking.detectors", "cards"}


def settings_from(parsed: argparse.Namespace, **fixed: Any) -> "RunSettings":
    """Settings of the recipe, if one is named, then the flags, then key=value."""
    from dana.config import load, read_yaml
    from dana.stages.settings import RunSettings

    path = getattr(parsed, "recipe", None) or getattr(parsed, "config", None)
    values = {**(read_yaml(path) if path else {}), **fixed}
    overrides = []
    for setting in parsed.settings:
        given = getattr(parsed, setting)
        if given is not None:
            if setting in LISTS and isinstance(given, str):
                given = given.split(",") if setting == "ranking.detectors" else [given]
            overrides.append(f"{setting}={_as_yaml(given)}")
    return load(RunSettings, values, [*overrides, *parsed.overrides], origin=str(path) if path else "command line")


def _as_yaml(value: Any) -> str:
    import json

    return json.dumps(value) if isinstance(value, list) else str(value)


def quickstart(parsed: argparse.Namespace) -> None:
    """Run the whole job on text from this machine.

    Harvests the documentation of the installed Python packages, trains a tiny base, ranks the detectors, selects,
    adapts three arms on equal tokens, fine-tunes each over seeds and writes runs/quickstart/report.html. About
    ten minutes on two cores; run it again and it goes on where it was.
    """
    from dana.stages.quickstart import quickstart_settings, what_next
    from dana.stages.run import run

    settings = quickstart_settings(parsed.out, parsed.overrides)
    print(what_next(run(settings), settings))


def run_recipe(parsed: argparse.Namespace) -> None:
    """Run every step of a recipe.

    Each step leaves an artifact under the recipe's `out`; a rerun reuses what is there and was made from the
    same settings, and refuses what was made from others, naming the difference.
    """
    from dana.stages.run import run

    print(f"report: {run(settings_from(parsed))}")


def rank(parsed: argparse.Namespace) -> None:
    """Which detector tells this task from this general text?

    Fits every detector on nine tenths of the task's units and asks it to tell the last tenth from as many
    general units; repeats over seeds. Writes OUT/ranking.json and ranking.csv: F1 (task is the positive class), AUROC,
    average precision, F1 at the best threshold, stability between seeds, seconds. `dana score` takes the winner.
    """
    from dana.stages.rank import RANKING, table
    from dana.stages.run import rank as run_rank

    settings = settings_from(parsed)
    content = run_rank(settings)
    print(table(content))
    print(f"\nchosen: {content['chosen']}   written: {Path(settings.out) / RANKING}")
    print(f"next:   dana score with the same --task, --general and --out {settings.out}")


def score(parsed: argparse.Namespace) -> None:
    """Score every unit of the general text against the task; higher = more foreign.

    Writes OUT/corpus (the documents), OUT/task, OUT/scores/part-*.parquet (doc_id, source, unit, start, end, score;
    start and end are characters in the document) and OUT/scores/task.parquet, the same for held-out task text.

    Killed, the same command goes on with the shards that are missing. Several processes: accelerate launch
    recipes/score.py with the same flags. Several machines: --prepare on one, --shard 1/N ... N/N anywhere, --merge at
    last. The bytes are the same whoever did what.
    """
    from dana.stages.run import open_prepared, open_scoring
    from dana.stages.run import score as run_score

    settings = settings_from(parsed)
    if parsed.dry_run:
        from dana.stages.estimate import estimate

        print(estimate(settings))
    elif parsed.prepare:
        scoring = open_scoring(settings)
        scoring.prepare()
        print(f"prepared: {scoring.shards.path}\nnext:     the same flags with --shard 1/N ... N/N, then with --merge")
    elif parsed.shard:
        from dana.stages.team import Share

        share, scoring = Share.parse(parsed.shard), open_prepared(settings)
        scoring.score(scoring.prepared(), share)
        print(f"scored: share {parsed.shard}\nnext:   the same flags with --merge, when all shares are scored")
    else:
        artifact = open_prepared(settings).merge() if parsed.merge else run_score(settings)
        print(f"written: {artifact.path} ({artifact.manifest['counts']['units']:,} units)")
        print(f"next:    dana weigh {settings.out} --policy segments --beta 0.2")


def weigh(parsed: argparse.Namespace) -> None:
    """Turn scores into weights in [0, 1]; 1 = in-domain.

    segments  keep the best segments of consecutive units with weight 1, drop the rest (the paper's headline system)
    sigmoid   weigh every unit by 1 / (1 + exp(-C (alpha - standardised score)))
    sampled   draw segments with probability proportional to that weight, then train on them with weight 1

    Writes DIR/weights/part-*.parquet; for segments and sampled also selected.jsonl.gz, the kept text.
    """
    from dana.stages.weigh import weigh_stage

    folder = parsed.folder
    settings = settings_from(parsed).weigh
    artifact = weigh_stage(folder / "scores", folder / "corpus", settings, parsed.to or folder / "weights")
    counts = artifact.manifest["counts"]
    print(kept_table(counts["by_source"]))
    print(f"\nwritten: {artifact.path} (units: {counts['units']})")
    print(f"next:    dana adapt {folder} --model NAME_OR_FOLDER --steps 1000")


def kept_table(by_source: dict[str, dict[str, float]]) -> str:
    """What was kept by source, the largest part first."""
    kept = sum(row["kept_characters"] for row in by_source.values()) or 1
    whole = sum(row["characters"] for row in by_source.values()) or 1
    lines = [
        f"{'source':<28} {'units':>10} {'kept':>10} {'of its units':>13} {'of the corpus':>14} {'of what is kept':>16}"
    ]
    for source, row in sorted(by_source.items(), key=lambda item: -item[1]["kept_characters"]):
        shares = row["kept_units"] / row["units"], row["characters"] / whole, row["kept_characters"] / kept
        columns = " ".join(f"{share:>{width}.1%}" for share, width in zip(shares, (13, 14, 16), strict=True))
        lines.append(f"{source[:28]:<28} {row['units']:>10,.0f} {row['kept_units']:>10,.0f} {columns}")
    return "\n".join(lines)


def adapt(parsed: argparse.Namespace) -> None:
    """Continue pretraining a masked language model on the weighted text.

    Stopped or killed, the same command goes on from the newest checkpoint; SIGTERM and SIGUSR1 save first and end with
    exit code 75. Several processes: accelerate launch --config_file accelerate_configs/X.yaml recipes/adapt.py.

    Writes DIR/adapted, a Hugging Face folder that from_pretrained opens without dana, with training.jsonl: the loss
    on held-out task text and on held-out general text before, during and after.
    """
    from dana.config import require
    from dana.stages.adapt import adapt_stage
    from dana.stages.held_out import held_out_stage

    folder = parsed.folder
    settings = settings_from(parsed)
    require(bool(settings.model), "--model", settings.model, "the checkpoint to adapt: a folder or a Hub name")
    weights = None if parsed.unweighted else parsed.weights or folder / "weights"
    held_out = folder / "task" / "held_out", held_out_stage(folder / "corpus", folder / "held_out").path
    out = parsed.to or folder / "adapted"
    artifact = adapt_stage(str(settings.model), folder / "corpus", weights, *held_out, settings.adapt, out)
    print(f"written: {artifact.path}")
    if parsed.push_to_hub:
        from dana.stages.publish import publish_stage

        print(f"uploaded: {publish_stage(artifact.path, parsed.push_to_hub)}")
    print(f"next:    dana finetune --model {artifact.path} --task-card NAME --out {folder}/finetune")


def pack(parsed: argparse.Namespace) -> None:
    """Tokenise DIR/corpus with a checkpoint's tokenizer, into DIR/tokens.

    `dana adapt` does this by itself where it was not done; ahead of time it needs no GPU to wait.
    """
    from transformers import AutoTokenizer

    from dana.config import require
    from dana.encoders.checkpoint import check_checkpoint
    from dana.stages.pack import pack_stage

    settings = settings_from(parsed)
    require(bool(settings.model), "--model", settings.model, "whose tokenizer: a folder or a Hub name")
    check_checkpoint(str(settings.model))
    artifact = pack_stage(parsed.folder / "corpus", AutoTokenizer.from_pretrained(settings.model))
    counts = artifact.manifest["counts"]
    print(f"written: {artifact.path} ({counts['tokens']:,} tokens of {counts['documents']:,} documents)")
    print(f"next:    dana adapt {parsed.folder} --model {settings.model}")


def pretrain(parsed: argparse.Namespace) -> None:
    """Train a WordPiece tokenizer and a BERT of a size name on the general text, with the same loop as `dana adapt`."""
    from dana.stages.held_out import held_out_stage
    from dana.stages.pretrain import pretrain_stage

    folder = parsed.folder
    settings = settings_from(parsed)
    held_out = folder / "task" / "held_out", held_out_stage(folder / "corpus", folder / "held_out").path
    out = parsed.to or folder / "base"
    artifact = pretrain_stage(settings.size, folder / "corpus", *held_out, settings.pretrain, out)
    print(f"written: {artifact.path}\nnext:    dana adapt {folder} --model {artifact.path}")


def finetune(parsed: argparse.Namespace) -> None:
    """Fine-tune a checkpoint on a labelled task, once a seed.

    Checkpoints compared on a seed share the head's first weights and the order of the data. Writes metrics.json (a row
    a seed, mean, standard deviation with ddof 1, n) and predictions.parquet.
    """
    from dana.config import require
    from dana.stages.finetune import finetune_stage

    settings = settings_from(parsed)
    require(bool(settings.model), "--model", settings.model, "the checkpoint to fine-tune: a folder or a Hub name")
    require(len(settings.cards) == 1, "--task-card", settings.cards, "one card")
    artifact = finetune_stage(
        str(settings.model), settings.cards[0], settings.finetune, Path(settings.out), settings.data
    )
    print((artifact.path / "metrics.json").read_text(encoding="utf-8"))
    print(f"written: {artifact.path}")


def report(parsed: argparse.Namespace) -> None:
    """Write report.html (self-contained), report.md and tables/*.csv of a run's folder.

    Sections for which the folder holds nothing are left out, and the report says which command makes them.
    """
    from dana.stages.report import report_stage

    print(f"written: {report_stage(parsed.folder)}")


def detectors(parsed: argparse.Namespace) -> None:
    """``dana detectors list`` and ``dana detectors check NAME``."""
    from dana.detectors.checks import check_detector
    from dana.errors import ConfigError, PluginError
    from dana.registry import DETECTORS

    if parsed.action == "list":
        for name, claims in DETECTORS.entries().items():
            try:
                says = (DETECTORS.load(name).__doc__ or "").strip().partition("\n")[0]
            except PluginError as error:
                says = f"broken: {error}"
            print(f"{name:<20} {claims[0].dist.name if claims[0].dist else '?':<12} {says}")
        return
    if not parsed.name:
        raise ConfigError("detectors check: name the detector, for example: dana detectors check knn")
    results = check_detector(parsed.name)
    for result in results:
        print(result)
    if not all(result.passed for result in results):
        raise PluginError(
            f"{parsed.name} breaks {sum(not result.passed for result in results)} of {len(results)} checks"
        )


def store(parsed: argparse.Namespace) -> None:
    """Look into an embedding store, check it, or make it smaller.

    info    what it holds: encoders, rows, bytes, dtype
    verify  read all of it: digests, order of keys, checksums, finite values; encode a few stored texts again
    prune   keep only some encoders (--keep), or drop the oldest segments until it fits (--max-bytes)

    A store is a cache: whatever is pruned or damaged is encoded again when it is next asked for.
    """
    from dana.errors import ArtifactError
    from dana.stages.store import info, parse_bytes, prune, verify

    if parsed.action == "info":
        print(f"{'id':<12} {'encoder':<28} {'dtype':<8} {'dims':>5} {'segments':>8} {'rows':>14} {'bytes':>18}")
        for row in info(parsed.folder):
            sizes = f"{row.dims:>5} {row.segments:>8} {row.rows:>14,} {row.size:>18,}"
            print(f"{row.name[:12]:<12} {row.spec:<28} {row.dtype:<8} {sizes}")
    elif parsed.action == "prune":
        most = parse_bytes(parsed.max_bytes) if parsed.max_bytes else None
        print(f"freed: {prune(parsed.folder, parsed.keep, most):,} bytes")
    else:
        verdicts = verify(parsed.folder)
        for verdict in verdicts:
            again = f"{verdict.encoded} texts encoded again, largest difference {verdict.difference:.2g}"
            print(f"{verdict.name[:12]:<12} {verdict.rows:,} rows; {verdict.why_not or again}")
            print("".join(f"  {problem}\n" for problem in verdict.problems), end="")
        if flawed := sum(bool(verdict.problems) for verdict in verdicts):
            raise ArtifactError(f"{parsed.folder}: {flawed} of {len(verdicts)} encoders' rows have problems, see above")
