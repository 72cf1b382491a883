"""``dana quickstart``: the recipe that needs nothing, and what to do after it."""

from collections.abc import Sequence
from pathlib import Path

from dana.config import load, read_yaml
from dana.resources import resource
from dana.stages.settings import RunSettings

RECIPE = "recipes/quickstart.yaml"


def quickstart_settings(out: str | None = None, overrides: Sequence[str] = ()) -> RunSettings:
    """The settings of ``recipes/quickstart.yaml``.

    Args:
        out: Another folder for the run.
        overrides: ``key=value`` settings.
    """
    values = read_yaml(resource(RECIPE))
    chosen = [f"out={out}"] if out else []
    return load(RunSettings, values, [*chosen, *overrides], origin=RECIPE)


def what_next(report: Path, settings: RunSettings) -> str:
    """The last lines: what was written, and the same on one's own text."""
    out = Path(settings.out)
    return f"""
written
  {report}   what was selected, and whether it helped
  {out / "arms" / "dana" / "adapted"}   the adapted model: AutoModelForMaskedLM.from_pretrained opens it
  {out / "arms" / "dana" / "weights" / "selected.jsonl.gz"}   the text it was adapted on

next, on your own text (JSONL, Parquet, CSV, plain text; files, globs or folders)
  dana rank  --task YOUR_TEXT.jsonl --general YOUR_POOL/ --out runs/mine
  dana score --task YOUR_TEXT.jsonl --general YOUR_POOL/ --out runs/mine
  dana weigh runs/mine
  dana adapt runs/mine --model bert-base-uncased --steps 1000"""
