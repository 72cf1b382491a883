"""A plug-in whose import fails, as with a missing dependency."""

import a_package_that_is_not_there  # noqa: F401
