"""F1's threshold comes from fits that have not seen the unit: a tenth of held-out task units lie above it."""

import numpy as np
import pytest
import torch

from dana.corpus.unit_stream import Units
from dana.scoring.ranking.comparison import RankingTexts, compare_detectors
from dana.scoring.settings import RankSettings
from dana.selectors.base import RememberedContext

DIMS, TASK, GENERAL = 384, 500, 250


class Gaussians(RememberedContext):
    """Embeds a number as a row: below TASK of the task's Gaussian, from there on of a wider one beside it."""

    def embed(self, texts):
        rows = torch.randn(TASK + GENERAL, DIMS, generator=torch.Generator().manual_seed(0))
        rows[TASK:] = 1.3 * rows[TASK:] + 0.1
        return rows[[int(text) for text in texts]]


@pytest.mark.parametrize("spec", ["knn:k=5", "pyod:PCA", "ocsvm:nu=0.1"])
def test_by_the_papers_protocol_a_detector_that_separates_gaussians_accepts_nine_in_ten(spec):
    task, general = (
        Units.of_texts(list(map(str, part))) for part in (range(TASK), range(TASK, TASK + GENERAL))
    )
    samples = {"negatives": general.first(100), "geometry": general.rows(np.arange(100, GENERAL))}
    texts = RankingTexts(Gaussians(geometry="none"), task, np.arange(TASK), samples, ())
    settings = RankSettings([spec], protocol="paper", prevalence=0.5)
    ((row,), *_) = compare_detectors([spec], texts, settings, 0.2, 0)
    assert row["auroc_mean"] > 0.97
    assert row["f1_mean"] == pytest.approx(
        1.8 / 1.9, abs=0.007
    )  # hardly any general unit is accepted
