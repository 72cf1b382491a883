"""A local `evaluate` module: ``evaluate.load("dana/tasks/evaluation_modules/classification")``, no network."""

import datasets
import evaluate
from sklearn.metrics import accuracy_score, f1_score

INTEGER = datasets.Value("int64")


class Classification(evaluate.Metric):  # type: ignore[misc]
    """Accuracy, micro-F1 (which equals it) and macro-F1 of one label a text, the F1 over the full label set."""

    def _info(self) -> evaluate.MetricInfo:
        return evaluate.MetricInfo(
            description="Accuracy; micro- and macro-F1, where a class without predictions and references counts 0.",
            citation="",
            inputs_description="Class numbers; labels: all class numbers there are.",
            features=datasets.Features({"predictions": INTEGER, "references": INTEGER}),
        )

    def _compute(
        self, predictions: list[int], references: list[int], labels: list[int]
    ) -> dict[str, float]:
        scores = {"accuracy": float(accuracy_score(references, predictions))}
        for average in ("micro", "macro"):
            f1 = f1_score(references, predictions, labels=labels, average=average, zero_division=0)
            scores[f"{average}_f1"] = float(f1)
        return scores
