"""MkDocs hook: reST roles of docstrings (``:func:`name```) lose their prefix in the built pages."""

import re

ROLE = re.compile(r":(?:func|class|data|mod|meth|attr):(?=<code>)")


def on_page_content(html: str, **_: object) -> str:
    """A page's HTML without the prefixes of roles.

    Args:
        html: The page as Markdown and mkdocstrings made it.
        _: The page, the configuration and the files, which MkDocs passes too.
    """
    return ROLE.sub("", html)
