"""``dana quickstart``: the name of its recipe, and the lines it prints at the end."""

from pathlib import Path

from dana.stages.settings import RunSettings
from dana.weighting.kept_text import KEPT_TEXT

RECIPE = "quickstart"
OWN_TEXT = """
next, on your own text (JSONL, Parquet, CSV, plain text; files, globs or folders)
  dana score --task YOUR_TEXT.jsonl --general YOUR_POOL/ --out runs/mine
  dana weigh runs/mine
  dana adapt runs/mine --model bert-base-uncased --steps 1000"""


def what_next(report: Path, settings: RunSettings) -> str:
    """Where the report, the last arm's model and its text lie, and the commands for one's own text."""
    lines = ["", "written", f"  {report}   what was selected, and whether it helped"]
    arms = [arm for arm in settings.described_arms if arm.text != "base"]
    for arm in arms[-1:]:
        folder = Path(settings.out) / "arms" / arm.name
        opens = "AutoModelForMaskedLM.from_pretrained opens it"
        lines.append(f"  {folder / 'adapted'}   the adapted model: {opens}")
        if arm.weigh and arm.weigh.policy != "sigmoid":
            lines.append(f"  {folder / 'weights' / KEPT_TEXT}   the text it was adapted on")
    return "\n".join([*lines, OWN_TEXT])
