"""A local `evaluate` module: ``evaluate.load("dana/tasks/evaluation_modules/macro_f1")``, no network."""

import datasets
import evaluate
from sklearn.metrics import f1_score

INTEGER = datasets.Value("int64")


class MacroF1(evaluate.Metric):
    """Mean F1 over the full label set; a class neither there nor predicted counts 0."""

    def _info(self) -> evaluate.MetricInfo:
        return evaluate.MetricInfo(
            description="Mean F1 over the full label set; a class neither there nor predicted counts 0.",
            citation="",
            inputs_description="Class numbers; labels: all class numbers there are.",
            features=datasets.Features({"predictions": INTEGER, "references": INTEGER}),
        )

    def _compute(self, predictions: list[int], references: list[int], labels: list[int]) -> dict[str, float]:
        return {"macro_f1": float(f1_score(references, predictions, labels=labels, average="macro", zero_division=0))}
