"""Say what a table of labelled texts lacks, as one JSON object: python check_table.py TABLE [TEXT LABEL]."""

import json
import sys

import pandas as pd

READERS = {
    ".csv": lambda path: pd.read_csv(path, sep=None, engine="python"),
    ".tsv": lambda path: pd.read_csv(path, sep="\t"),
    ".jsonl": lambda path: pd.read_json(path, lines=True),
    ".parquet": pd.read_parquet,
    ".xlsx": pd.read_excel,
}
FEW_LABELS = 20  # of a class: five folds have four each
LONG = 2_000  # characters, about 500 tokens


def guess_columns(table: pd.DataFrame) -> tuple[str, str]:
    """Return the column with the longest texts, and that with the fewest values among the others."""
    lengths = {name: table[name].astype(str).str.len().mean() for name in table}
    text = max(lengths, key=lambda name: lengths[name])
    others = [name for name in table if name != text]
    label = min(others, key=lambda name: table[name].astype(str).nunique())
    return text, label


def check(table: pd.DataFrame, text: str, label: str) -> dict[str, object]:
    """Count texts and labels, and list problems in words."""
    texts = table[text].astype(str).str.strip()
    counts = table[label].astype(str).value_counts()
    problems = []
    empty = int(table[text].isna().sum() + (texts == "").sum())
    if empty:
        problems.append(f"{empty} texts are empty")
    unlabelled = int(table[label].isna().sum())
    if unlabelled:
        problems.append(f"{unlabelled} rows have no label")
    repeated = int(texts.duplicated().sum())
    if repeated:
        problems.append(f"{repeated} texts repeat an earlier one")
    by_text = table.assign(_text=texts).groupby("_text")[label].nunique()
    contradicted = int((by_text > 1).sum())
    if contradicted:
        problems.append(f"{contradicted} texts have two labels")
    rare = {name: int(count) for name, count in counts.items() if count < FEW_LABELS}
    if rare:
        problems.append(f"labels with fewer than {FEW_LABELS} texts: {rare}")
    long = int((texts.str.len() > LONG).sum())
    if long:
        problems.append(
            f"{long} texts are longer than {LONG:,} characters: see --set finetune.windows=mean"
        )
    return {
        "columns": list(map(str, table.columns)),
        "text": text,
        "label": label,
        "texts": len(table),
        "labels": {str(name): int(count) for name, count in counts.items()},
        "problems": problems,
    }


def main() -> int:
    """Check the table that the command line names."""
    path, *names = sys.argv[1:]
    suffix = path[path.rindex(".") :].lower() if "." in path else ""
    if suffix not in READERS:
        print(f"{path}: give a table that ends in {', '.join(READERS)}", file=sys.stderr)
        return 2
    table = READERS[suffix](path)
    text, label = names if len(names) == 2 else guess_columns(table)
    print(json.dumps(check(table, text, label), ensure_ascii=False, indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
