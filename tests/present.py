"""What is there to test: ``dana/studies`` and ``tests/studies`` may be removed, and the tests of the core pass."""

import pytest

from dana.core.studies import missing_studies

needs_studies = pytest.mark.skipif(
    bool(missing_studies()), reason=f"missing studies: {', '.join(missing_studies())}"
)
