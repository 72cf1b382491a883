"""Table 1: fit Gaussian mixtures to sentence vectors; report purity by encoder, number of clusters, PCA and seed.

    python recipes/papers/domain_clusters/table1.py FILE... --out FOLDER [--encoders E ...] [--k 5
    10 15] [--pca 50 0]

A FILE is a domain, plain text with one sentence per line or JSONL; 2,000 sentences of each are used
(--most). The encoder's vectors are used as they are and in dana's geometry (``center+l2``), reduced
by PCA (0: no PCA), and fitted by scikit-learn's Gaussian mixture with k components and full
covariances, five initialisations each. As in the paper, the mixture is fitted and evaluated on the
same sentences. There are three baselines: ``words``, the mean of word vectors trained on the
sentences (singular vectors of mutual information, not word2vec), ``lda``, a topic model of the
sentences, and ``random``. ``table1.csv`` has one row per fit; ``summary.csv`` has mean and standard
deviation (ddof 1) over seeds in percent, with the published values where the geometry is none. A
killed command resumes.
"""

import argparse
import sys
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
from domains import Domains, domain_command, embed, embedding_plan, read_published, run_command
from sklearn.decomposition import LatentDirichletAllocation
from sklearn.feature_extraction.text import CountVectorizer
from threadpoolctl import threadpool_limits
from torch import Tensor
from word_vectors import save_word_vectors, train_word_vectors

from dana.core.artifacts import Draft, fingerprint, make, write_text
from dana.core.errors import DataError
from dana.core.files import slug
from dana.core.rng import derive_seed, generator
from dana.encoders.base import encoder_identity
from dana.encoders.cache import create_encoder
from dana.studies.clusters.description import WORD
from dana.studies.clusters.domains import contingency, domain_purity
from dana.studies.clusters.model import fit_clusters
from dana.studies.clusters.settings import ClusterSettings

FITS = "fits.csv"
PAPER_DOMAINS = {
    "it",
    "koran",
    "law",
    "medical",
    "subtitles",
}  # published values are for these only
DIMS = 100  # of the word vectors of the baseline
# Our methods to the paper's rows.
PAPER_ROWS = {
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


def topic_clusters(texts: Sequence[str], k: int, seed: int) -> np.ndarray:
    """Return the most likely topic of each text by scikit-learn's latent Dirichlet allocation.

    Counts lower-cased words of two letters or more. Priors are 1/k; ten passes of variational
    Bayes.

    Args:
        texts: Units.
        k: Number of topics.
        seed: Seed of the initialisation.

    Returns:
        int64 of shape (texts,), from 0; topic 0 for a text without a word.

    Raises:
        DataError: If no text has a word.

    References:
        Blei, Ng and Jordan 2003, Latent Dirichlet allocation. Aharoni and Goldberg 2020, section
        2.3, by Gensim.
    """
    try:
        counts = CountVectorizer(token_pattern=WORD).fit_transform(texts)
    except ValueError as error:
        raise DataError(
            f"k={k}: cannot fit topics, none of the {len(texts)} texts has a word"
        ) from error
    model = LatentDirichletAllocation(k, random_state=derive_seed(seed, "topics") % 2**32)
    # The order of summation, and so the last bits, depend on the number of threads.
    with threadpool_limits(1):
        topics: np.ndarray = model.fit_transform(counts).argmax(1)
        return topics


def random_clusters(texts: Sequence[str], k: int, seed: int) -> np.ndarray:
    """Draw a cluster for each text uniformly at random: the baseline of purity.

    Purity over d domains of equal size is a little above its minimum, 1/d.

    Args:
        texts: Units.
        k: Number of clusters.
        seed: Seed of the draw.

    Returns:
        int64 of shape (texts,), from 0.

    References:
        Aharoni and Goldberg 2020, section 2.3. Their Table 1 has 15 to 18 % for five equal domains,
        below the minimum of 20 %.
    """
    return generator(seed, "random clusters").integers(0, k, len(texts))


BASELINES = {"lda": topic_clusters, "random": random_clusters}


def purity_rows(
    domains: Domains, vectors: Tensor, geometry: str, settings: ClusterSettings, seed: int
) -> pd.DataFrame:
    """Fit mixtures and compute their purity in percent: one row per fit (k, pca, seed, purity, iterations, converged).

    Args:
        domains: Sentences and their true domains.
        vectors: Vectors of the sentences, before the geometry is applied.
        geometry: Spec of the geometry.
        settings: Numbers of clusters, principal components and seeds.
        seed: Root seed.
    """
    _, fits = fit_clusters(vectors, geometry, settings, seed)
    counts = [
        contingency(fits.assignments[f"k{k}-{number}"], domains.labels, k, len(domains.names))
        for k, number in fits.table[["k", "seed"]].itertuples(index=False)
    ]
    rows = fits.table.assign(
        pca=settings.pca, purity=[100 * domain_purity(count) for count in counts]
    )
    return rows[["k", "pca", "seed", "purity", "iterations", "converged"]]


def fit_cell(
    domains: Domains, method: str, geometry: str, pca: int, k: int, args: argparse.Namespace
) -> pd.DataFrame:
    """Fit one method, geometry, number of principal components and of clusters; a second call loads the fits."""
    settings = ClusterSettings(k=[k], pca=pca, seeds=args.seeds)
    store, spec = args.out / "embeddings", encoder_spec(method, domains.texts, args.out)
    depends_on = {
        "domains": domains.fingerprint,
        "clusters": settings.identity(),
        "seed": args.seed,
    }
    depends_on |= {
        "geometry": geometry,
        "encoder": fingerprint(encoder_identity(create_encoder(spec, str(store)))),
    }

    def write(draft: Draft) -> None:
        fits = purity_rows(
            domains, embed(domains.texts, spec, store), geometry, settings, args.seed
        )
        write_text(draft.path / FITS, fits.to_csv(index=False))

    folder = args.out / "cells" / slug(method) / f"{slug(geometry)}-pca{pca}-k{k}"
    return pd.read_csv(make(folder, "purity", depends_on, write).path / FITS).assign(
        method=method, geometry=geometry
    )


def encoder_spec(method: str, texts: Sequence[str], folder: Path) -> str:
    """Resolve a method to an encoder spec; ``words`` trains word vectors on the sentences and names their file."""
    if method != "words":
        return method
    path = folder / "words.txt"
    if not path.is_file():
        save_word_vectors(train_word_vectors(texts, DIMS), path)
    return f"words:{path}"


def fit_baseline(domains: Domains, method: str, k: int, args: argparse.Namespace) -> pd.DataFrame:
    """Compute the purity of a baseline without vectors, one row per seed; a second call loads it."""
    depends_on = {
        "domains": domains.fingerprint,
        "method": method,
        "k": k,
        "seeds": args.seeds,
        "seed": args.seed,
    }

    def write(draft: Draft) -> None:
        rows = []
        for number in range(args.seeds):
            clusters = BASELINES[method](
                domains.texts, k, derive_seed(args.seed, "table1", method, number)
            )
            counts = contingency(clusters, domains.labels, k, len(domains.names))
            rows.append({"k": k, "seed": number, "purity": 100 * domain_purity(counts)})
        write_text(draft.path / FITS, pd.DataFrame(rows).to_csv(index=False))

    artifact = make(args.out / "cells" / method / f"k{k}", "purity", depends_on, write)
    return pd.read_csv(artifact.path / FITS).assign(method=method, geometry="", pca="")


def summarise(fits: pd.DataFrame) -> pd.DataFrame:
    """Compute mean and standard deviation over seeds, with the published values where the paper has the row.

    Args:
        fits: One row per fit with the columns method, geometry, pca, k and purity.
    """
    key = ["method", "geometry", "pca", "k"]
    table = fits.groupby(key, sort=False)["purity"].agg(["mean", "std", "count"]).reset_index()
    table.columns = pd.Index([*key, "purity", "std", "seeds"])
    paper = read_published("Table 1").set_index(["row", "column"])
    names = [
        PAPER_ROWS.get(row.method) if row.geometry in ("none", "") else None
        for row in table.itertuples()
    ]
    cells = [
        (name, _column(row.k, row.pca)) for name, row in zip(names, table.itertuples(), strict=True)
    ]
    rows = paper.reindex(pd.MultiIndex.from_tuples(cells))
    return table.assign(published=rows["value"].to_numpy(), published_std=rows["std"].to_numpy())


def _column(k: int, pca: int | str) -> str:
    if pca == "":
        return f"k={k}"
    return f"k={k}, PCA {pca}" if pca else f"k={k}, no PCA"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the script."""
    parser = domain_command(__doc__)
    parser.add_argument(
        "--encoders", nargs="+", default=["minilm", "static", "transformer:dana-mini", "words"]
    )
    parser.add_argument("--baselines", nargs="*", choices=list(BASELINES), default=list(BASELINES))
    parser.add_argument("--geometry", nargs="+", default=["none", "center+l2"])
    parser.add_argument("--k", nargs="+", type=int, default=[5, 10, 15])
    parser.add_argument(
        "--pca", nargs="+", type=int, default=[50, 0], help="principal components, 0: no PCA"
    )
    parser.add_argument("--seeds", type=int, default=5)

    def plan(domains: Domains, args: argparse.Namespace) -> str:
        return embedding_plan(domains, [spec for spec in args.encoders if spec != "words"])

    return run_command(parser, arguments, table1, plan)


def table1(domains: Domains, args: argparse.Namespace) -> None:
    """Fit all cells and baselines, write both tables and print the summary."""
    frames = [
        fit_cell(domains, *choice, args)
        for choice in product(args.encoders, args.geometry, args.pca, args.k)
    ]
    frames += [fit_baseline(domains, *choice, args) for choice in product(args.baselines, args.k)]
    fits = pd.concat(frames, ignore_index=True)
    table = summarise(fits)
    if set(domains.names) != PAPER_DOMAINS:
        table = table.drop(columns=["published", "published_std"])
    write_text(args.out / "table1.csv", fits.to_csv(index=False))
    write_text(args.out / "summary.csv", table.to_csv(index=False))
    print(table.round(2).to_string(index=False, na_rep=""))


if __name__ == "__main__":
    sys.exit(main())
