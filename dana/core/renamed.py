"""Know what was renamed.

An old setting, flag, keyword or name of an arm is refused with the new one.
"""

from collections.abc import Iterable

RENAMED = {
    "general": "pool",
    "general_share": "pool_share",
    "general_documents": "pool_documents",
    "max_task_units": "max_target_units",
    "floors": "baselines",
    "corpus": "pool",
}


def new_name(name: str, available: Iterable[str]) -> str | None:
    """Return the present name of a setting, flag, keyword or arm that was renamed.

    Args:
        name: The name that is unknown; flags begin with ``--``.
        available: The names that are known here.

    Returns:
        The new name, in the form of `name`; None if it was not renamed, or the new name is unknown
        here.
    """
    is_flag = name.startswith("--")
    renamed = RENAMED.get(name.removeprefix("--").replace("-", "_"))
    if renamed is None:
        return None
    if is_flag:
        renamed = "--" + renamed.replace("_", "-")
    return renamed if renamed in available else None


def renamed_hint(names: Iterable[object], available: Iterable[str]) -> str:
    """Format ``; it is 'x' now`` for the first name that was renamed; empty if none was."""
    known = list(available)
    for name in names:
        if not isinstance(name, str):
            continue
        renamed = new_name(name, known)
        if renamed is not None:
            return f"; it is {renamed!r} now"
    return ""
