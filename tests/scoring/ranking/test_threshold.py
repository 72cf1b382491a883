"""F1's threshold comes from fits that have not seen the unit: a tenth of held-out target units lie above it."""

import numpy as np
import pytest
import torch

from dana.corpus.unit_stream import Units
from dana.scoring.ranking.comparison import RankingTexts, compare_detectors
from dana.scoring.settings import RankSettings
from dana.selectors.base import RememberedContext

DIMS, TARGET, POOL = 384, 500, 250


class Gaussians(RememberedContext):
    """Embeds a number as a row: below TARGET of the task's Gaussian, from there on of a wider one beside it."""

    def embed(self, texts):
        rows = torch.randn(TARGET + POOL, DIMS, generator=torch.Generator().manual_seed(0))
        rows[TARGET:] = 1.3 * rows[TARGET:] + 0.1
        return rows[[int(text) for text in texts]]


@pytest.mark.parametrize("spec", ["knn:k=5", "pyod:PCA", "ocsvm:nu=0.1"])
def test_by_the_papers_protocol_a_detector_that_separates_gaussians_accepts_nine_in_ten(spec):
    target, pool = (
        Units.of_texts(list(map(str, part)))
        for part in (range(TARGET), range(TARGET, TARGET + POOL))
    )
    samples = {"negatives": pool.first(100), "geometry": pool.rows(np.arange(100, POOL))}
    texts = RankingTexts(Gaussians(geometry="none"), target, np.arange(TARGET), samples, ())
    settings = RankSettings([spec], protocol="paper", prevalence=0.5)
    ((row,), *_) = compare_detectors([spec], texts, settings, 0.2, 0)
    assert row["auroc_mean"] > 0.97
    assert row["f1_mean"] == pytest.approx(1.8 / 1.9, abs=0.007)  # hardly any pool unit is accepted
