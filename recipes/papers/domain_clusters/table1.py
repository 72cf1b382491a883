"""Table 1: purity of Gaussian mixtures of sentence vectors over known domains, by encoder, clusters, PCA and seed.

    python recipes/papers/domain_clusters/table1.py FILE... --out FOLDER [--encoders E ...] [--k 5 10 15] [--pca 50 0]

A FILE is a domain: lines of plain text, or JSONL. Of each so many sentences (2,000) are taken. Vectors as the encoder
gives them, and in dana's geometry (``center+l2``), then principal components (0: none), then scikit-learn's mixture of
k components with full covariances, five beginnings each. Fitted and measured on the same sentences, as in the paper.
Three baselines: ``words``, the mean of word vectors trained on the sentences (by singular vectors of mutual
information, not word2vec), ``lda``, a topic model of them, and ``random``. ``table1.csv`` has a row a fit,
``summary.csv`` mean and standard deviation (ddof 1) over seeds beside the published ones, which have no geometry, in
percent. Killed, the same command goes on.
"""

import argparse
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import pandas as pd
from domains import Domains, domain_command, published, run_command, vectors_of
from torch import Tensor

from dana.core.artifacts import Draft, fingerprint, make, write_text
from dana.core.files import slug
from dana.core.rng import derive_seed
from dana.encoders.base import encoder_identity
from dana.encoders.cache import create_encoder
from dana.encoders.words import train_word_vectors
from dana.studies.clusters.domains import contingency, domain_purity, random_clusters, topic_clusters
from dana.studies.clusters.model import fit_clusters
from dana.studies.clusters.settings import ClusterSettings

FITS = "fits.csv"
PAPERS = {"it", "koran", "law", "medical", "subtitles"}  # domains; of others nothing is published
DIMS = 100  # of word vectors that are trained
BASELINES = {"lda": topic_clusters, "random": lambda texts, k, seed: random_clusters(len(texts), k, seed)}
# Rows of the paper by our methods.
PAPER = {
    "random": "Random",
    "lda": "LDA",
    "words": "word2vec",
    "transformer:bert-base-uncased": "BERT-base",
    "transformer:bert-large-uncased": "BERT-large",
    "transformer:distilbert-base-uncased": "DistilBERT",
    "transformer:roberta-base": "RoBERTa-base",
    "transformer:roberta-large": "RoBERTa-large",
    "transformer:gpt2": "GPT-2",
    "transformer:xlnet-base-cased": "XLNet",
}


def purities(domains: Domains, vectors: Tensor, geometry: str, settings: ClusterSettings, seed: int) -> pd.DataFrame:
    """A row a fit: k, pca, seed, purity (percent), iterations, converged.

    Args:
        domains: What the clusters are held against.
        vectors: Of the sentences, as the encoder gives them.
        geometry: Its spec.
        settings: Numbers of clusters, components, seeds.
        seed: Root seed.
    """
    _, fits = fit_clusters(vectors, geometry, settings, seed)
    counts = [
        contingency(fits.assignments[f"k{k}-{number}"], domains.own, k, len(domains.names))
        for k, number in fits.table[["k", "seed"]].itertuples(index=False)
    ]
    rows = fits.table.assign(pca=settings.pca, purity=[100 * domain_purity(count) for count in counts])
    return rows[["k", "pca", "seed", "purity", "iterations", "converged"]]


def cell(domains: Domains, method: str, geometry: str, pca: int, k: int, given: argparse.Namespace) -> pd.DataFrame:
    """Fits of one method, geometry, number of components and number of clusters; made once."""
    settings = ClusterSettings(k=[k], pca=pca, seeds=given.seeds)
    store, spec = given.out / "embeddings", spec_of(method, domains.texts, given.out)
    depends_on = {"domains": domains.fingerprint, "clusters": settings.identity(), "seed": given.seed}
    depends_on |= {"geometry": geometry, "encoder": fingerprint(encoder_identity(create_encoder(spec, str(store))))}

    def write(draft: Draft) -> None:
        found = purities(domains, vectors_of(domains.texts, spec, store), geometry, settings, given.seed)
        write_text(draft.path / FITS, found.to_csv(index=False))

    made = make(given.out / "cells" / slug(method) / f"{slug(geometry)}-pca{pca}-k{k}", "purity", depends_on, write)
    return pd.read_csv(made.path / FITS).assign(method=method, geometry=geometry)


def spec_of(method: str, texts: Sequence[str], folder: Path) -> str:
    """An encoder's spec; that of ``words`` is a file of vectors trained on the sentences."""
    if method != "words":
        return method
    path = folder / "words.txt"
    if not path.is_file():
        train_word_vectors(texts, DIMS).save(path)
    return f"words:{path}"


def baseline(domains: Domains, method: str, k: int, given: argparse.Namespace) -> pd.DataFrame:
    """Purities of an assignment that has no vectors, a row a seed; made once."""
    about = {"domains": domains.fingerprint, "method": method, "k": k, "seeds": given.seeds, "seed": given.seed}

    def write(draft: Draft) -> None:
        rows = []
        for number in range(given.seeds):
            clusters = BASELINES[method](domains.texts, k, derive_seed(given.seed, "table1", method, number))
            counts = contingency(clusters, domains.own, k, len(domains.names))
            rows.append({"k": k, "seed": number, "purity": 100 * domain_purity(counts)})
        write_text(draft.path / FITS, pd.DataFrame(rows).to_csv(index=False))

    made = make(given.out / "cells" / method / f"k{k}", "purity", about, write)
    return pd.read_csv(made.path / FITS).assign(method=method, geometry="", pca="")


def summary(fits: pd.DataFrame) -> pd.DataFrame:
    """Mean and standard deviation over seeds, and the published ones where the paper has the row.

    Args:
        fits: method, geometry, pca, k, purity, a row a fit.
    """
    key = ["method", "geometry", "pca", "k"]
    found = fits.groupby(key, sort=False)["purity"].agg(["mean", "std", "count"]).reset_index()
    found.columns = pd.Index([*key, "purity", "std", "seeds"])
    paper = published("Table 1").set_index(["row", "column"])
    names = [PAPER.get(row.method) if row.geometry in ("none", "") else None for row in found.itertuples()]
    places = [(name, _column(row.k, row.pca)) for name, row in zip(names, found.itertuples(), strict=True)]
    rows = paper.reindex(pd.MultiIndex.from_tuples(places))
    return found.assign(published=rows["value"].to_numpy(), published_std=rows["std"].to_numpy())


def _column(k: int, pca: int | str) -> str:
    if pca == "":
        return f"k={k}"
    return f"k={k}, PCA {pca}" if pca else f"k={k}, no PCA"


def verdict(table: pd.DataFrame) -> str:
    """How the best row with 50 components lies to the paper's best one of word2vec, and to its BERT-base at k = 5."""
    ours = table[table["pca"] == 50]
    best = ours.loc[ours["purity"].idxmax()]
    paper = published("Table 1")
    words = paper[paper["row"] == "word2vec"]["value"].max()
    bert = paper[(paper["row"] == "BERT-base") & (paper["column"] == _column(5, 50))]["value"].item()
    score, name = best["purity"], f"{best['method']}, {best['geometry']}, k={best['k']}"
    return (
        f"best with PCA 50: {name}, {score:.2f}; the paper's best word2vec {words:.2f} ({score - words:+.2f}), its "
        f"BERT-base at k=5 {bert:.2f} ({score - bert:+.2f})"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """See the module."""
    parser = domain_command(__doc__)
    parser.add_argument("--encoders", nargs="+", default=["minilm", "static", "transformer:dana-mini", "words"])
    parser.add_argument("--baselines", nargs="*", choices=list(BASELINES), default=list(BASELINES))
    parser.add_argument("--geometry", nargs="+", default=["none", "center+l2"])
    parser.add_argument("--k", nargs="+", type=int, default=[5, 10, 15])
    parser.add_argument("--pca", nargs="+", type=int, default=[50, 0], help="components; 0 for none")
    parser.add_argument("--seeds", type=int, default=5)
    run_command(parser, arguments, table1)


def table1(domains: Domains, given: argparse.Namespace) -> None:
    """Fit all cells, write both tables and print the summary."""
    frames = [cell(domains, *one, given) for one in product(given.encoders, given.geometry, given.pca, given.k)]
    frames += [baseline(domains, *one, given) for one in product(given.baselines, given.k)]
    fits = pd.concat(frames, ignore_index=True)
    table = summary(fits)
    if set(domains.names) != PAPERS:
        table = table.drop(columns=["published", "published_std"])
    write_text(given.out / "table1.csv", fits.to_csv(index=False))
    write_text(given.out / "summary.csv", table.to_csv(index=False))
    print(table.round(2).to_string(index=False, na_rep=""))
    if 50 in given.pca and set(domains.names) == PAPERS:
        print(verdict(table))


if __name__ == "__main__":
    main()
