"""Text without the secrets of its URLs: user names, passwords, keys, tokens and signatures."""

import re

SECRET = r"[\w.-]*(?:token|secret|password|passwd|credential|signature|sig|key)[\w.-]*"
# Of a URL that became a path one slash is left. A key of S3 may hold slashes; but after the colon of a host stands a
# port, and the name of an S3 access point begins with arn.
USER = r"(?:[^/@\s]+|(?!arn:)[^/@\s:]+:(?!\d+/)[^@\s]*)"
SECRETS = re.compile(rf"(:/{{1,2}}){USER}@|([?&;]{SECRET}=)[^&\s'\")]+", re.IGNORECASE)


def without_secrets(text: str) -> str:
    """A text with ``***`` in place of what its URLs hold of user names, passwords, keys, tokens and signatures."""
    return SECRETS.sub(lambda found: f"{found[1] or found[2]}***{'@' if found[1] else ''}", text)
