"""A local `evaluate` module: ``evaluate.load("dana/tasks/evaluation_modules/micro_f1")``, no network."""

import datasets
import evaluate
from sklearn.metrics import f1_score

INTEGER = datasets.Value("int64")


class MicroF1(evaluate.Metric):
    """F1 of the pooled counts of all classes; with one label a text it equals accuracy."""

    def _info(self) -> evaluate.MetricInfo:
        return evaluate.MetricInfo(
            description="F1 of the pooled counts of all classes; with one label a text it equals accuracy.",
            citation="",
            inputs_description="Class numbers; labels: all class numbers there are.",
            features=datasets.Features({"predictions": INTEGER, "references": INTEGER}),
        )

    def _compute(self, predictions: list[int], references: list[int], labels: list[int]) -> dict[str, float]:
        return {"micro_f1": float(f1_score(references, predictions, labels=labels, average="micro", zero_division=0))}
