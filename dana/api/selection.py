"""Rank detectors, score pool text and weigh the scores: each writes the run's folder and returns a pandas table."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from dana.api.inputs import Texts
from dana.api.keywords import Folder, full_names, run_folder, settings_of, with_messages
from dana.core.artifacts import Artifact
from dana.core.config import require
from dana.core.errors import ConfigError, DataError
from dana.core.remake import call_remaking
from dana.stages.recipe import settings_of_call, write_recipe
from dana.stages.settings import RunSettings

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from dana.stages.weigh import WeighSettings

RANK = (
    "selection",
    "ranking",
    "inputs",
    "hygiene",
    "weigh.beta",
    "on_bad_record",
    "data",
    "task_path",
)
SCORE = (*RANK, "selector", "detector", "allow_below_chance")
WEIGH = ("weigh", "allow_below_chance")
NEEDED = ["doc_id", "unit", "score"]


@with_messages
def rank(
    task: Texts | None = None,
    pool: Texts | None = None,
    out: Folder | None = None,
    remake: bool = False,
    **settings: Any,
) -> "pd.DataFrame":
    """Rank detectors by the recall of held-out target text within the selected share of the pool.

    Args:
        task: Text of the task: a path, glob or task card; or a list, generator, pandas table or column, or
            ``datasets.Dataset`` of texts (:func:`dana.api.inputs.as_sources`). None takes that of the folder.
        pool: Pool text, likewise.
        out: Folder of the run, as ``dana score --rank-only --out`` writes it; None uses a temporary one.
        remake: Whether to replace what was made from other texts or settings, instead of refusing.
        **settings: Keys of the sections ``selection`` (``encoder``, ``geometry``, ``units``, ``seed`` …), ``ranking``
            (``detectors``, ``folds`` …), ``inputs`` (``text_field`` …) and ``hygiene`` of a recipe; ``beta``, ``data``,
            ``task_path``.

    Returns:
        One row per detector with the columns of ``ranking.csv``; ``chosen`` is True for one.

    Raises:
        DanaError: For a wrong keyword or text; see also :func:`dana.stages.rank.rank_stage`.
    """
    import pandas as pd

    from dana.stages.rank import run_rank

    with run_folder(out) as run:
        ready = settings_of("rank", run, settings, RANK, task, pool, remake)
        ranking = call_remaking(lambda: run_rank(ready), remake).manifest
        write_recipe(ready, run)
    table = pd.DataFrame(ranking["detectors"])
    table.insert(1, "chosen", table["name"] == ranking["chosen"])
    return table


@with_messages
def score(
    task: Texts | None = None,
    pool: Texts | None = None,
    out: Folder | None = None,
    text: bool = False,
    remake: bool = False,
    **settings: Any,
) -> "pd.DataFrame":
    """Score every unit of the pool; higher = more foreign to the target text.

    Args:
        task: As for :func:`rank`.
        pool: As for :func:`rank`.
        out: Folder of the run, as ``dana score --out`` writes it; None uses a temporary one.
        text: Whether to add a column with the text of each unit.
        remake: Whether to replace what was made from other texts or settings, instead of refusing.
        **settings: As for :func:`rank`; also ``selector`` (``auto`` by default, ``detector`` with a named detector)
            and ``detector`` (``auto`` ranks them first), and ``allow_below_chance``.

    Returns:
        One row per unit in pool order: ``doc_id``, ``source``, ``unit`` (from 0 in its document),
        ``start`` and ``end`` (characters of the document), ``score``, ``short`` (whether the unit
        has too few words; it then has the largest score).

    Raises:
        DanaError: For a wrong keyword or text; see also
            :meth:`dana.scoring.scoring.Scoring.prepare`.
    """
    from dana.core.schemas import read_table
    from dana.stages.score import run_score

    with run_folder(out) as run:
        ready = settings_of("score", run, settings, SCORE, task, pool, remake)
        artifact = call_remaking(lambda: run_score(ready), remake)
        write_recipe(ready, run)
        table: pd.DataFrame = read_table(artifact.path).to_pandas()
        if text:
            table["text"] = _unit_texts(table, run / "pool")
    return table


@with_messages
def weigh(
    scores: "Folder | pd.DataFrame | pd.Series[float] | np.ndarray",
    remake: bool = False,
    **settings: Any,
) -> "pd.DataFrame | pd.Series[float] | np.ndarray":
    """Turn scores into weights in [0, 1]; 1 = in-domain, 0 = leave out.

    Args:
        scores: A run's folder, to which the weights are written as by ``dana weigh``; or a table with ``doc_id``,
            ``unit`` and ``score`` of every unit of its documents, in order, which is weighed in memory; or an array of
            shape (texts,) or a Series with a score per text.
        remake: Whether weights of other settings in the folder are replaced, instead of refused.
        **settings: Keys of the section ``weigh`` of a recipe: ``policy``, ``beta``, ``gamma`` …; of a run's folder
            also ``allow_below_chance``.

    Returns:
        The rows of the scores with ``segment`` (from 0 in its document, -1 = dropped tail) and
        ``weight``. For an array or a Series: the weights as an array, or a Series of the same
        index.

    Raises:
        ConfigError: For a wrong keyword, for several runs, or for a budget in tokens,
            ``beta="auto"`` or ``balance`` without a run's folder.
        DataError: If a column or unit of the table is missing, or a score is no number; names the
            row.
    """
    import numpy as np
    import pandas as pd

    from dana.core.schemas import read_table

    if isinstance(scores, str | Path):
        from dana.stages.weigh import weigh_stage

        run = Path(scores)
        ready = settings_of("weigh", run, settings, WEIGH)
        given = settings_of_call(ready, full_names(settings, WEIGH), ["weigh"])

        def weigh() -> Artifact:
            return weigh_stage(
                run / "scores",
                run / "pool",
                ready.weigh,
                run / "weights",
                allowed=ready.allow_below_chance,
                given=given,
            )

        artifact = call_remaking(weigh, remake)
        table: pd.DataFrame = read_table(artifact.path).to_pandas()
        return table
    ready = settings_of("weigh", None, settings, ("weigh",))
    if getattr(scores, "ndim", None) != 1:
        return _weigh_table(scores, ready)
    texts = pd.DataFrame({"doc_id": range(len(scores)), "unit": 0, "score": np.asarray(scores)})
    weights = _weigh_table(texts, ready)["weight"].to_numpy()
    return (
        pd.Series(weights, scores.index, name="weight")
        if isinstance(scores, pd.Series)
        else weights
    )


def _weigh_table(scores: Any, ready: RunSettings) -> "pd.DataFrame":
    import pandas as pd
    import pyarrow as pa

    from dana.stages.weigh import weigh_table

    is_table = isinstance(scores, pd.DataFrame)
    choices = "one run's folder, a table from dana.score, an array or a Series"
    require(is_table, "scores", type(scores).__name__, choices)
    wrong = [name for name in NEEDED if [*scores].count(name) != 1]
    if wrong:
        columns = ", ".join(map(str, scores))
        raise DataError(
            f"scores: one column each of these is needed: {', '.join(wrong)}; it has {columns}"
        )
    needs_folder = _what_needs_a_folder(ready.weigh)
    if needs_folder:
        raise ConfigError(f"{needs_folder} in a run's folder; give the folder as scores")
    numbers = {name: pd.to_numeric(scores[name], errors="coerce") for name in ("unit", "score")}
    _check_whole(scores, **numbers)
    names = NEEDED
    if "short" in scores:
        _check_short(scores["short"])
        names = [*NEEDED, "short"]
    columns = pa.Table.from_pandas(scores[names].assign(**numbers), preserve_index=False)
    segment, weight = weigh_table(columns, ready.weigh)
    weighed: pd.DataFrame = scores.assign(segment=segment, weight=weight)
    return weighed


def _what_needs_a_folder(settings: "WeighSettings") -> str:
    """Describe the setting that needs more than a table of scores; empty if none does."""
    if settings.effective_budget.kind == "tokens":
        return f"budget={settings.budget!r}: tokens are counted"
    if settings.balance is not None:
        return f"balance={settings.balance!r}: the groups are"
    if settings.is_auto:
        return "beta='auto': needs the text"
    return ""


def _check_short(column: "pd.Series[bool]") -> None:
    """Check the column of :func:`score` that says which units have too few words.

    Raises:
        DataError: If it holds something else.
    """
    if column.dtype.kind != "b":
        raise DataError(
            f"scores: the column 'short' is of type {column.dtype}, must be true or false: whether "
            "the unit has too few words; rename the column, if it means something else"
        )


def _check_whole(scores: "pd.DataFrame", unit: Any, score: Any) -> None:
    """Check that all units of each document are there, in order, because segments are consecutive units.

    Raises:
        DataError: Names the first wrong row.
    """
    import numpy as np
    import pyarrow as pa

    if scores.empty:
        raise DataError("scores: the table has no row")
    for name, column in {"unit": unit, "score": score}.items():
        if column.dtype.kind not in "iuf" or scores[name].dtype.kind in "bmM":
            raise DataError(
                f"scores: the column {name!r} is of type {scores[name].dtype}, must be real numbers"
            )
    if scores["doc_id"].isna().any():
        raise DataError(f"scores[{int(scores['doc_id'].isna().argmax())}]: the doc_id is missing")
    try:
        types = sorted({type(name).__name__ for name in scores["doc_id"].unique()})
        if len(types) > 1:
            raise DataError(
                f"scores: the column 'doc_id' holds {' and '.join(types)}; convert it to one type"
            )
        pa.array(scores["doc_id"])
    except (TypeError, ValueError) as error:  # lists, lone surrogates
        raise DataError(
            f"scores: the column 'doc_id' must hold text or numbers: {error}"
        ) from error
    unit, documents = unit.to_numpy(), scores["doc_id"].to_numpy()
    new = np.append(True, documents[1:] != documents[:-1])
    again = new.copy()
    again[new] = scores["doc_id"][new].duplicated()
    gaps = unit != np.where(new, 0, np.append(-1, unit[:-1]) + 1)
    remedy = "give all units of a document in order, and filter the weights afterwards"
    for problem, rows in (
        ("the document {!r} comes again; give each document once", again),
        (f"unit {{1}} of {{0!r}} does not follow the row before it; {remedy}", gaps),
        ("score {2}: must be a finite number", ~np.isfinite(score.to_numpy(dtype=float))),
    ):
        if rows.any():
            row = int(rows.argmax())
            raise DataError(
                f"scores[{row}]: {problem.format(*(scores[name].iloc[row] for name in NEEDED))}"
            )


def _unit_texts(table: "pd.DataFrame", pool: Path) -> list[str]:
    from dana.core.schemas import iterate_documents

    texts = {document.doc_id: document.text for document in iterate_documents(pool)}
    spans = zip(table["doc_id"], table["start"], table["end"], strict=True)
    return [texts[doc_id][start:end] for doc_id, start, end in spans]
