"""The command ``dana studies clusters``, which finds domains in text."""

import argparse
from pathlib import Path

from dana.cli.flags import AddCommand, Flag, add_command, add_remake, plain_flags
from dana.cli.selection import TEXTS
from dana.cli.settings import settings_from

OF_TASKS = ("task", "data", "task_path", "hygiene.decontaminate", "selection.encoder")


def _number(text: str) -> int | str:
    return int(text) if text.isdigit() else text


FLAGS = [
    *(flag for flag in TEXTS if flag.setting not in OF_TASKS),
    Flag("--k", "clusters.k", options={"nargs": "+", "type": _number}),
    *plain_flags("encoder pca skip_first covariance seeds fit true_domains+", "clusters."),
]


def add_clusters(add: AddCommand) -> None:
    """Add the command to the command line's subparsers."""
    clusters = add_command(add, "clusters", _clusters, FLAGS)
    clusters.set_defaults(processes=True)
    add_remake(clusters)


def _clusters(args: argparse.Namespace) -> None:
    """Cluster the units of the pool and name each cluster by its words.

    Embeds a sample of the units, fits Gaussian mixtures of --k components to it from --seeds
    initialisations each, chooses one mixture and assigns every unit. Writes
    OUT/clusters/part-*.parquet (doc_id, source, unit, start, end, cluster, responsibility,
    log_density; pandas.read_parquet("OUT/clusters") opens it) and the page OUT/clusters.html with a
    description of each cluster, its nearest neighbour and the outliers. --true-domains adds purity,
    confusions and outliers by domain; it can be given later and fits nothing again. Without
    --pool, the pool and the cached vectors in the run's folder are used.

    If it is killed, the same command resumes with the missing shards. torchrun --nproc_per_node N
    -m dana studies clusters shares the work and writes the same bytes.
    """
    from dana.core.remake import call_remaking
    from dana.stages.recipe import begin_recipe
    from dana.studies.clusters.stage import clusters_text, run_clusters

    settings = settings_from(args)
    is_named = "pool" in args.explicit
    artifact = call_remaking(lambda: run_clusters(settings, is_named), args.remake)
    begin_recipe(settings, Path(settings.out))
    print(clusters_text(Path(settings.out)))
    print(f"\n{artifact.manifest['reason']}")
    units = artifact.manifest["counts"]["units"]
    print(f"written: {artifact.path} ({units:,} units) and {artifact.path}.html")
