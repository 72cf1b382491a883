"""Compare translators by paired bootstraps, correlate BLEU with the cosine of domains, and build the page."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from dana.core.registry import package_versions
from dana.core.rng import generator
from dana.core.statistics import holm, percentile_interval
from dana.report.page import (
    Column,
    Report,
    Section,
    Table,
    decimals,
    each,
    interval_text,
    number,
    shares,
    text_columns,
)
from dana.report.svg import COLOURS, Figure
from dana.studies.translation.settings import ALL

if TYPE_CHECKING:
    from matplotlib.axes import Axes

REPLICATES = 1000
RANDOM = "random"
CHOICE = ["precision", "precision_ceiling", "recall", "recall_ceiling"]
MEASURES = ["bleu", "low", "high", "chrf", "loss", "against", "p", "p_holm"]


def paired_bootstrap(outputs: Mapping[str, list[str]], references: list[str]) -> pd.DataFrame:
    """Compare the BLEU of systems with that of the first by sacrebleu's paired bootstrap.

    Args:
        outputs: Translations of each system; the first is the baseline.
        references: The references.

    Returns:
        One row per system: low and high (95 % interval), p (two-sided; NaN of the baseline).

    References:
        Koehn 2004, Statistical significance tests for machine translation evaluation.
    """
    from sacrebleu.metrics import BLEU
    from sacrebleu.significance import PairedTest

    systems = list[Any](outputs.items())
    test: Any = PairedTest(
        systems * (1 + (len(systems) == 1)), {"bleu": BLEU()}, [references], "bs", REPLICATES
    )
    _, scores = test()
    [name] = set(scores) - {"System"}
    first, *others = scores[name]
    # sacrebleu's p of two systems with one score is the smallest there is, as no replicate differs
    # by more than 0.
    p_values = [np.nan, *(1.0 if other.score == first.score else other.p_value for other in others)]
    rows = [
        (score.mean - score.ci, score.mean + score.ci, p)
        for score, p in zip(scores[name], p_values, strict=True)
    ]
    return pd.DataFrame(rows[: len(systems)], columns=["low", "high", "p"])


def matrix_table(results: pd.DataFrame) -> pd.DataFrame:
    """Compare the translators of the domains and of all on each test set (Table 4).

    Args:
        results: One row per translator and test set: translator, target, selector, test, pairs,
            tokens, bleu, chrf, loss, output (a table with reference and translation).

    Returns:
        A row per translator and test set; against: the translator of the test set's own domain, of
        all where there is none; p: of the difference in BLEU from it, and after Holm over the
        table.
    """
    table = _compare(
        results[results["selector"] == ""],
        "test",
        lambda test, names: test if test in names else ALL,
    )
    return table[["translator", "test", "pairs", "tokens", *MEASURES]]


def table_of_choices(results: pd.DataFrame) -> pd.DataFrame:
    """Compare the translators of chosen text on the test set of its target (Table 6), against random text."""
    rows = results[(results["selector"] != "") & (results["test"] == results["target"])]
    if rows.empty:
        return rows
    rows = rows.assign(translator=rows["selector"])
    table = _compare(rows, "target", lambda _, names: RANDOM if RANDOM in names else names[0])
    return table[["target", "selector", "tokens", *CHOICE, *MEASURES]]


def _compare(
    rows: pd.DataFrame, by: str, baseline_of: Callable[[str, list[str]], str]
) -> pd.DataFrame:
    """Add interval, baseline and p to the translators of each group, the baseline first, and Holm's p over all."""
    parts = []
    for key, group in rows.groupby(by):
        baseline = baseline_of(str(key), list(group["translator"]))
        systems = group.iloc[
            np.argsort(group["translator"] != baseline, kind="stable")
        ].reset_index(drop=True)
        outputs = {row.translator: row.output["translation"].tolist() for row in each(systems)}
        tests = paired_bootstrap(outputs, systems["output"][0]["reference"].tolist())
        parts.append(systems.join(tests).assign(against=baseline))
    table = pd.concat(parts, ignore_index=True)
    p = table["p"].dropna()
    return table.assign(p_holm=pd.Series(holm(p.tolist()), index=p.index, dtype=float))


def correlation_table(matrix: pd.DataFrame, cosines: pd.DataFrame) -> pd.DataFrame:
    """Correlate BLEU with the cosine of the domains' centroids, with and without a domain against itself (Figure 4).

    Intervals are percentiles of a bootstrap over the pairs of domains, as if they were independent:
    two pairs share a translator, and each cosine counts twice.

    Args:
        matrix: From :func:`matrix_table`.
        cosines: A row and a column per domain.

    Returns:
        A row per kind (pearson, spearman) and choice of the pairs: kind, pairs, n, r, low, high.
    """
    from scipy.stats import rankdata

    points, rows = figure_points(matrix, cosines), []
    for name, kept in (
        ("all", points),
        ("without the diagonal", points[points["translator"] != points["test"]]),
    ):
        draws = generator(0, "translation", "correlation").integers(
            0, len(kept), (REPLICATES, len(kept))
        )
        draws = np.concatenate(
            [np.arange(len(kept))[None], draws]
        )  # the first are the pairs themselves
        for kind in ("pearson", "spearman"):
            sides = [kept[column].to_numpy()[draws] for column in ("cosine", "bleu")]
            r, *replicates = _row_correlations(
                *(rankdata(side, axis=1) if kind == "spearman" else side for side in sides)
            )
            finite = np.array(replicates)[np.isfinite(replicates)]
            low, high = (
                percentile_interval(finite) if finite.size > REPLICATES / 2 else (np.nan, np.nan)
            )
            rows.append(
                {"kind": kind, "pairs": name, "n": len(kept), "r": r, "low": low, "high": high}
            )
    return pd.DataFrame(rows)


def _row_correlations(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Correlate two matrices row by row; NaN for a row that does not vary."""
    first, second = (side - side.mean(1, keepdims=True) for side in (first, second))
    scale = np.sqrt((first**2).sum(1) * (second**2).sum(1))
    return np.divide(
        (first * second).sum(1), scale, out=np.full(len(first), np.nan), where=scale > 1e-12
    )


def figure_points(matrix: pd.DataFrame, cosines: pd.DataFrame) -> pd.DataFrame:
    """Return the pairs of domains with a translator and a test set: translator, test, cosine, bleu."""
    rows: Any = cosines.rename_axis(index="translator", columns="test").stack()
    return matrix[["translator", "test", "bleu"]].merge(rows.rename("cosine").reset_index())


def translation_report(
    name: str,
    matrix: pd.DataFrame,
    choices: pd.DataFrame,
    cosines: pd.DataFrame,
    audit: pd.DataFrame,
    signatures: Mapping[str, str],
) -> Report:
    """Build the page.

    Args:
        name: Name of the run.
        matrix: From :func:`matrix_table`.
        choices: From :func:`table_of_choices`.
        cosines: A row and a column per domain.
        audit: ``audit.csv`` of the pairs.
        signatures: sacrebleu's signature of each metric.
    """
    is_own, is_all = matrix["translator"] == matrix["test"], matrix["translator"] == ALL
    diagonal, best = (
        matrix[is_own].set_index("test")["bleu"],
        matrix[~is_own & ~is_all].groupby("test")["bleu"].max(),
    )
    wins, count = int((diagonal > best.reindex(diagonal.index)).sum()), len(diagonal)
    verdict = f"On {wins} of {count} test sets the domain's own translator has a higher BLEU than every other domain's."
    notes = [f"{metric}: {signature}" for metric, signature in signatures.items()]
    sections = [_matrix(matrix), _figure4(matrix, cosines)] + (
        [_choices(choices)] if len(choices) else []
    )
    columns = text_columns("domain", "split") + decimals(
        0, "read", "kept", "repeated", "held_out", "long", "overlap"
    )
    columns += decimals(0, "source_words", "target_words") + shares("oov")
    words = "Pairs read, kept, dropped by reason; OOV is the share of source words that the domain's training lacks."
    sections.append(
        Section(
            "What was read?", words, tables=(Table("audit", "Words: of a side.", audit, columns),)
        )
    )
    return Report(name, verdict, [], sections, package_versions(), "figures", notes)


INTERVAL = Column("95 % interval", lambda row: interval_text(row.low, row.high, 1, False))
SCORES = (*decimals(1, "bleu"), INTERVAL, *decimals(1, "chrf"), *decimals(3, "loss"))
TESTS = (*text_columns("against"), *decimals(4, "p", "p_holm"))


def _matrix(matrix: pd.DataFrame) -> Section:
    wide = matrix.pivot(index="translator", columns="test", values="bleu")
    wide = wide.loc[[*wide.index.drop(ALL), ALL]]

    def paint(axes: "Axes") -> None:
        axes.imshow(wide.to_numpy(), cmap="Blues", aspect="auto")
        axes.set(
            xticks=range(wide.shape[1]),
            xticklabels=wide.columns,
            yticks=range(len(wide)),
            yticklabels=wide.index,
        )
        axes.set(xlabel="test set", ylabel="translator of")
        for (row, column), value in np.ndenumerate(wide.to_numpy()):
            colour = "white" if value > 0.6 * wide.to_numpy().max() else COLOURS["ink"]
            axes.text(column, row, f"{value:.1f}", ha="center", va="center", color=colour)

    means = ", ".join(f"{name} {number(mean, 2)}" for name, mean in wide.mean(axis=1).items())
    caption = (
        "BLEU with its bootstrap interval over sentences, chrF, and the loss in nats a target token. p: paired "
        "bootstrap of BLEU against the translator of the test set's domain, and after Holm over the table."
    )
    columns = (
        *text_columns("translator", "test"),
        *decimals(0, "pairs", "tokens"),
        *SCORES,
        *TESTS,
    )
    figure = Figure(
        "matrix",
        "BLEU of each translator on each test set.",
        (1.5 + 0.9 * wide.shape[1], 3.2),
        paint,
    )
    table = Table("matrix", caption, matrix, columns)
    return Section(
        "Which translator is best where?",
        f"Mean BLEU over the test sets: {means}.",
        (figure,),
        (table,),
    )


def _figure4(matrix: pd.DataFrame, cosines: pd.DataFrame) -> Section:
    points, correlations = figure_points(matrix, cosines), correlation_table(matrix, cosines)

    def paint(axes: "Axes") -> None:
        for label, is_own, colour in (
            ("another domain", False, "pool"),
            ("its own", True, "base"),
        ):
            rows = points[(points["translator"] == points["test"]) == is_own]
            axes.scatter(rows["cosine"], rows["bleu"], color=COLOURS[colour], label=label)
        axes.set(xlabel="cosine of the domains' centroids", ylabel="BLEU")
        axes.legend()

    lines = [
        f"{row.kind.title()} {row.pairs}: {number(row.r, 2)} ({interval_text(row.low, row.high, 2)})"
        for row in each(correlations)
    ]
    figure = Figure(
        "figure4", "BLEU by the cosine of the centroids of two domains.", (4.6, 3.4), paint
    )
    caption = "Intervals are percentiles over pairs of domains, which are not independent: they are too narrow."
    columns = (*text_columns("kind", "pairs"), *decimals(0, "n"), *decimals(2, "r", "low", "high"))
    table = cosines.rename_axis("domain").reset_index()
    tables = (Table("correlations", caption, correlations, columns), Table("cosines", "", table))
    return Section(
        "Does the cosine of domains tell their BLEU?", "; ".join(lines) + ".", (figure,), tables
    )


def _choices(choices: pd.DataFrame) -> Section:
    lines = []
    for spec, row in (
        choices.groupby("selector", sort=False)[["bleu", "precision", "recall"]].mean().iterrows()
    ):
        lines.append(
            f"{spec}: {row['bleu']:.2f}, precision {row['precision']:.1%}, recall {row['recall']:.1%}"
        )
    caption = (
        "Text of equally many tokens, chosen from the training text of all domains by its target side; the oracle "
        "takes the domain's own, which may be less. Precision and recall of its pairs, with their ceilings."
    )
    columns = (
        *text_columns("target", "selector"),
        *decimals(0, "tokens"),
        *shares(*CHOICE),
        *SCORES,
        *TESTS,
    )
    answer, tables = (
        f"Mean BLEU: {'; '.join(lines)}.",
        (Table("choices", caption, choices, columns),),
    )
    return Section("Which selection trains the better translator?", answer, (), tables)
