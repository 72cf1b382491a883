"""Compare translators, correlate BLEU with the cosine of domains, and build the page."""

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

    systems: list[Any] = list(outputs.items())
    # sacrebleu takes no single system: a baseline alone is compared with itself.
    compared = systems * 2 if len(systems) == 1 else systems
    test: Any = PairedTest(compared, {"bleu": BLEU()}, [references], "bs", REPLICATES)
    _, results = test()
    [metric] = set(results) - {"System"}
    scores = results[metric][: len(systems)]
    rows = []
    for index, score in enumerate(scores):
        if index == 0:
            p = np.nan
        elif score.score == scores[0].score:
            # sacrebleu's p of two systems with one score is the smallest there is, as no replicate
            # differs by more than 0.
            p = 1.0
        else:
            p = score.p_value
        rows.append((score.mean - score.ci, score.mean + score.ci, p))
    return pd.DataFrame(rows, columns=["low", "high", "p"])


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

    def baseline_of(test: str, translators: list[str]) -> str:
        return test if test in translators else ALL

    table = _compare(results[results["selector"] == ""], "test", baseline_of)
    return table[["translator", "test", "pairs", "tokens", *MEASURES]]


def table_of_choices(results: pd.DataFrame) -> pd.DataFrame:
    """Compare the translators of chosen text on the test set of its target (Table 6).

    They are compared with the translator of random text, or with the first where there is none.
    """
    rows = results[(results["selector"] != "") & (results["test"] == results["target"])]
    if rows.empty:
        return rows

    def baseline_of(target: str, selectors: list[str]) -> str:
        return RANDOM if RANDOM in selectors else selectors[0]

    rows = rows.assign(translator=rows["selector"])
    table = _compare(rows, "target", baseline_of)
    return table[["target", "selector", "tokens", *CHOICE, *MEASURES]]


def _compare(
    rows: pd.DataFrame, by: str, baseline_of: Callable[[str, list[str]], str]
) -> pd.DataFrame:
    """Add interval, baseline and p to the translators of each group, and Holm's p over all groups.

    Args:
        rows: Results, see :func:`matrix_table`.
        by: Column that tells the groups.
        baseline_of: Takes the key of a group and the names of its translators, and returns the
            baseline's name; its row becomes the first of the group.
    """
    parts = []
    for key, group in rows.groupby(by):
        baseline = baseline_of(str(key), list(group["translator"]))
        order = np.argsort(group["translator"] != baseline, kind="stable")
        systems = group.iloc[order].reset_index(drop=True)
        outputs = {row.translator: row.output["translation"].tolist() for row in each(systems)}
        tests = paired_bootstrap(outputs, systems["output"][0]["reference"].tolist())
        parts.append(systems.join(tests).assign(against=baseline))
    table = pd.concat(parts, ignore_index=True)
    p = table["p"].dropna()
    return table.assign(p_holm=pd.Series(holm(p.tolist()), index=p.index, dtype=float))


def correlation_table(matrix: pd.DataFrame, cosines: pd.DataFrame) -> pd.DataFrame:
    """Correlate BLEU with the cosine of the domains' centroids (Figure 4).

    It does so with and without the pairs of a domain with itself, the diagonal.
    Intervals are percentiles of a bootstrap over the pairs of domains, as if they were
    independent: two pairs share a translator, and each cosine counts twice.

    Args:
        matrix: From :func:`matrix_table`.
        cosines: A row and a column per domain.

    Returns:
        A row per kind (pearson, spearman) and choice of the pairs: kind, pairs, n, r, low, high.
    """
    from scipy.stats import rankdata

    points = figure_points(matrix, cosines)
    off_diagonal = points[points["translator"] != points["test"]]
    rows = []
    for name, pairs in (("all", points), ("without the diagonal", off_diagonal)):
        count = len(pairs)
        random = generator(0, "translation", "correlation")
        draws = random.integers(0, count, (REPLICATES, count))
        # The first row is the pairs themselves, the others are their bootstrap samples.
        draws = np.concatenate([np.arange(count)[None], draws])
        for kind in ("pearson", "spearman"):
            cosine = pairs["cosine"].to_numpy()[draws]
            bleu = pairs["bleu"].to_numpy()[draws]
            if kind == "spearman":
                cosine = rankdata(cosine, axis=1)
                bleu = rankdata(bleu, axis=1)
            r, *replicates = _row_correlations(cosine, bleu)
            low, high = _interval_of_finite(np.array(replicates))
            rows.append({"kind": kind, "pairs": name, "n": count, "r": r, "low": low, "high": high})
    return pd.DataFrame(rows)


def _interval_of_finite(replicates: np.ndarray) -> tuple[float, float]:
    """Return the percentile interval of the finite replicates; NaN if these are half or fewer."""
    finite = replicates[np.isfinite(replicates)]
    if finite.size <= REPLICATES / 2:
        return np.nan, np.nan
    return percentile_interval(finite)


def _row_correlations(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Correlate two matrices row by row; NaN for a row that does not vary."""
    first = first - first.mean(1, keepdims=True)
    second = second - second.mean(1, keepdims=True)
    scale = np.sqrt((first**2).sum(1) * (second**2).sum(1))
    correlations = np.full(len(first), np.nan)
    np.divide((first * second).sum(1), scale, out=correlations, where=scale > 1e-12)
    return correlations


def figure_points(matrix: pd.DataFrame, cosines: pd.DataFrame) -> pd.DataFrame:
    """Return the pairs of a domain's translator and a test set: translator, test, cosine, bleu."""
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
    is_own = matrix["translator"] == matrix["test"]
    is_of_all = matrix["translator"] == ALL
    own = matrix[is_own].set_index("test")["bleu"]
    best_other = matrix[~is_own & ~is_of_all].groupby("test")["bleu"].max()
    wins = int((own > best_other.reindex(own.index)).sum())
    verdict = (
        f"On {wins} of {len(own)} test sets the domain's own translator has a higher BLEU than"
        " every other domain's."
    )
    notes = [f"{metric}: {signature}" for metric, signature in signatures.items()]
    sections = [_matrix_section(matrix), _cosine_section(matrix, cosines)]
    if len(choices):
        sections.append(_choices_section(choices))
    sections.append(_audit_section(audit))
    return Report(name, verdict, [], sections, package_versions(), "figures", notes)


def _audit_section(audit: pd.DataFrame) -> Section:
    columns = (
        *text_columns("domain", "split"),
        *decimals(0, "read", "kept", "repeated", "held_out", "long"),
        *decimals(0, "source_words", "target_words"),
        *shares("oov"),
    )
    answer = (
        "Pairs read, kept, dropped by reason; OOV is the share of source words that the domain's"
        " training lacks."
    )
    table = Table("audit", "Words: of a side.", audit, columns)
    return Section("What was read?", answer, tables=(table,))


INTERVAL = Column("95 % interval", lambda row: interval_text(row.low, row.high, 1, False))
SCORES = (*decimals(1, "bleu"), INTERVAL, *decimals(1, "chrf"), *decimals(3, "loss"))
TESTS = (*text_columns("against"), *decimals(4, "p", "p_holm"))


def _matrix_section(matrix: pd.DataFrame) -> Section:
    wide = matrix.pivot(index="translator", columns="test", values="bleu")
    wide = wide.loc[[*wide.index.drop(ALL), ALL]]
    scores = wide.to_numpy()

    def paint(axes: "Axes") -> None:
        axes.imshow(scores, cmap="Blues", aspect="auto")
        axes.set(
            xticks=range(wide.shape[1]),
            xticklabels=wide.columns,
            yticks=range(len(wide)),
            yticklabels=wide.index,
            xlabel="test set",
            ylabel="translator of",
        )
        for (row, column), score in np.ndenumerate(scores):
            colour = "white" if score > 0.6 * scores.max() else COLOURS["ink"]
            axes.text(column, row, f"{score:.1f}", ha="center", va="center", color=colour)

    means = ", ".join(f"{name} {number(mean, 2)}" for name, mean in wide.mean(axis=1).items())
    caption = (
        "BLEU with its bootstrap interval over sentences, chrF, and the loss in nats a target"
        " token. p: paired bootstrap of BLEU against the translator of the test set's domain, and"
        " after Holm over the table."
    )
    columns = (
        *text_columns("translator", "test"),
        *decimals(0, "pairs", "tokens"),
        *SCORES,
        *TESTS,
    )
    alt = "BLEU of each translator on each test set."
    figure = Figure("matrix", alt, (1.5 + 0.9 * wide.shape[1], 3.2), paint)
    table = Table("matrix", caption, matrix, columns)
    answer = f"Mean BLEU over the test sets: {means}."
    return Section("Which translator is best where?", answer, (figure,), (table,))


def _cosine_section(matrix: pd.DataFrame, cosines: pd.DataFrame) -> Section:
    points = figure_points(matrix, cosines)
    correlations = correlation_table(matrix, cosines)
    is_own = points["translator"] == points["test"]

    def paint(axes: "Axes") -> None:
        others = points[~is_own]
        own = points[is_own]
        axes.scatter(
            others["cosine"], others["bleu"], color=COLOURS["pool"], label="another domain"
        )
        axes.scatter(own["cosine"], own["bleu"], color=COLOURS["base"], label="its own")
        axes.set(xlabel="cosine of the domains' centroids", ylabel="BLEU")
        axes.legend()

    lines = []
    for row in each(correlations):
        interval = interval_text(row.low, row.high, 2)
        lines.append(f"{row.kind.title()} {row.pairs}: {number(row.r, 2)} ({interval})")
    alt = "BLEU by the cosine of the centroids of two domains."
    figure = Figure("figure4", alt, (4.6, 3.4), paint)
    caption = (
        "Intervals are percentiles over pairs of domains, which are not independent: they are too"
        " narrow."
    )
    columns = (*text_columns("kind", "pairs"), *decimals(0, "n"), *decimals(2, "r", "low", "high"))
    tables = (
        Table("correlations", caption, correlations, columns),
        Table("cosines", "", cosines.rename_axis("domain").reset_index()),
    )
    answer = "; ".join(lines) + "."
    return Section("Does the cosine of domains tell their BLEU?", answer, (figure,), tables)


def _choices_section(choices: pd.DataFrame) -> Section:
    means = choices.groupby("selector", sort=False)[["bleu", "precision", "recall"]].mean()
    lines = []
    for spec, row in means.iterrows():
        lines.append(
            f"{spec}: {row['bleu']:.2f}, precision {row['precision']:.1%},"
            f" recall {row['recall']:.1%}"
        )
    caption = (
        "Text of equally many tokens, chosen from the training text of all domains by its target"
        " side; the oracle takes the domain's own, which may be less. Precision and recall of its"
        " pairs, with their ceilings."
    )
    columns = (
        *text_columns("target", "selector"),
        *decimals(0, "tokens"),
        *shares(*CHOICE),
        *SCORES,
        *TESTS,
    )
    answer = f"Mean BLEU: {'; '.join(lines)}."
    tables = (Table("choices", caption, choices, columns),)
    return Section("Which selection trains the better translator?", answer, (), tables)
