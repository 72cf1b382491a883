"""Texts of a corpus are found in its order, and a document's text is decoded once."""

import pytest

from dana.core.errors import DataError
from dana.weighting.texts import Texts


def test_a_text_that_is_asked_for_again_is_the_same_object(write_corpus):
    texts = Texts(write_corpus("pool", ["one", "two", "three"]))
    found = [texts.named("pool-0"), texts.named("pool-2"), texts.named("pool-2")]
    assert found == ["one", "three", "three"]
    assert found[1] is found[2]  # of a large file that is one document, every run of kept units asks for it
    with pytest.raises(DataError, match="document 'pool-1' of the scores is not there, or out of order"):
        texts.named("pool-1")
