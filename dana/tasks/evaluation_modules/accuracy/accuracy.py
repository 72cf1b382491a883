"""A local `evaluate` module: ``evaluate.load("dana/tasks/evaluation_modules/accuracy")``, no network."""

import datasets
import evaluate
from sklearn.metrics import accuracy_score

INTEGER = datasets.Value("int64")


class Accuracy(evaluate.Metric):
    """Share of right predictions; with one label a text it equals micro-F1."""

    def _info(self) -> evaluate.MetricInfo:
        return evaluate.MetricInfo(
            description="Share of right predictions; with one label a text it equals micro-F1.",
            citation="",
            inputs_description="Class numbers; labels: all class numbers there are.",
            features=datasets.Features({"predictions": INTEGER, "references": INTEGER}),
        )

    def _compute(self, predictions: list[int], references: list[int], labels: list[int]) -> dict[str, float]:
        return {"accuracy": float(accuracy_score(references, predictions))}
