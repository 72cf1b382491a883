"""The command that finds domains in text: ``dana clusters``."""

import argparse
from pathlib import Path

from dana.cli.flags import MANY, AddCommand, Flag, add_command
from dana.cli.given import keep, settings_from
from dana.cli.selection import TEXTS

OF_TASKS = ("task", "data", "task_path", "hygiene.decontaminate")


def _number(text: str) -> int | str:
    return int(text) if text.isdigit() else text


FLAGS = [
    *(flag for flag in TEXTS if flag.setting not in OF_TASKS),
    Flag("--k", "clusters.k", options={"nargs": "+", "type": _number}),
    Flag("--pca", "clusters.pca"),
    Flag("--skip-first", "clusters.skip_first"),
    Flag("--covariance", "clusters.covariance"),
    Flag("--seeds", "clusters.seeds"),
    Flag("--fit", "clusters.fit"),
    Flag("--true-domains", "clusters.true_domains", options=MANY),
]


def add_clusters(add: AddCommand) -> None:
    """Add the command.

    Args:
        add: ``add_parser`` of the command line's subparsers.
    """
    clusters = add_command(add, "clusters", _clusters, FLAGS)
    clusters.set_defaults(processes=True)


def _clusters(parsed: argparse.Namespace) -> None:
    """Find what the general text is made of: clusters of its units, named by their words.

    Embeds a sample of the units, fits Gaussian mixtures of --k components to it, each from --seeds beginnings, chooses
    one, and assigns every unit. Writes OUT/clusters/part-*.parquet (doc_id, source, unit, start, end, cluster,
    responsibility, log_density; pandas.read_parquet("OUT/clusters") opens it) and OUT/clusters.html: what each cluster
    is, which are alike, what is an outlier. With --true-domains it tells purity, confusions and outliers, too, at any
    later time without another fit. In a run's folder, without --general, the corpus and the vectors that are there are
    taken.

    Killed, the same command goes on with the shards that are missing; torchrun --nproc_per_node N -m dana clusters
    shares them. The bytes are the same whoever did what.
    """
    from dana.studies.clusters.stage import clusters_text, run_clusters

    settings = settings_from(parsed)
    artifact = run_clusters(settings, "general" in parsed.given)
    keep(settings, Path(settings.out))
    print(clusters_text(Path(settings.out)))
    print(f"\n{artifact.manifest['reason']}")
    print(f"written: {artifact.path} ({artifact.manifest['counts']['units']:,} units), {artifact.path}.html")
