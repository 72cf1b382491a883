"""Text without the secrets of its URLs: user names, passwords, keys, tokens and signatures."""

import re

SECRET = r"[\w.-]*(?:token|secret|password|passwd|credential|signature|sig|key)[\w.-]*"
# A key of S3 may hold a slash. After the colon of a host stands a port; an S3 access point's name begins with arn.
USER = r"(?:[^/@\s]+|(?!arn:)[^/@\s:]+:(?!\d+/)[^@\s]*)"
SECRETS = re.compile(rf"(://){USER}@|([?&;]{SECRET}=)[^&\s'\")]+", re.IGNORECASE)


def without_secrets(text: str) -> str:
    """A text with ``***`` in place of what its URLs hold of user names, passwords, keys, tokens and signatures."""
    return SECRETS.sub(lambda found: f"{found[1] or found[2]}***{'@' if found[1] else ''}", text)
