"""KenLM as a faster scorer: an n-gram model of ours, handed over as an ARPA file; log10 probability of texts out.

Needs an optional package, ``pip install 'dana[kenlm]'``, which is compiled: it wants a C++ compiler and cmake.
"""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dana.core.errors import PluginError
from dana.models.ngram.arpa import write_arpa
from dana.models.ngram.model import NgramModel


def check_kenlm() -> None:
    """Make sure that the package can be imported.

    Raises:
        PluginError: If it cannot.
    """
    try:
        import kenlm  # noqa: F401
    except ImportError as error:
        raise PluginError(f"KenLM is not installed: pip install 'dana[kenlm]' ({error})") from error


@dataclass(frozen=True)
class KenLM:
    """A model in KenLM's memory.

    Attributes:
        loaded: A ``kenlm.Model``.
    """

    loaded: Any

    @classmethod
    def of(cls, model: NgramModel) -> "KenLM":
        """Hand a model over, through a temporary ARPA file.

        Raises:
            PluginError: If the package is missing, or the model is of single words only, which KenLM does not read.
        """
        check_kenlm()
        import kenlm

        if model.order < 2:
            raise PluginError("KenLM reads models from order 2; score those of order 1 without it")
        with tempfile.TemporaryDirectory(prefix="dana-kenlm-") as folder:
            path = Path(folder) / "model.arpa"
            write_arpa(model, path)
            config = kenlm.Config()
            config.show_progress = False
            config.arpa_complain = kenlm.ARPALoadComplain.NONE  # that a binary file would load faster
            return cls(kenlm.Model(str(path), config))

    def log10(self, texts: Sequence[str]) -> np.ndarray:
        """log10 probability of each text and its end, float64 of shape (texts,).

        Args:
            texts: Words with a space between, as :func:`dana.models.ngram.vocabulary.split_words` gives them.
        """
        return np.array([self.loaded.score(text) for text in texts], dtype=np.float64)
