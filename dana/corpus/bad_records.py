"""Name the first bad records of a source and count them all, or stop at none of them."""

from dana.core.errors import DataError

MOST_NAMED = 5
MOST_AFTER = 100_000  # records that are read after the first bad one, to count the others


class BadRecords:
    """Collects bad records, to refuse a source with all that is wrong in one message."""

    def __init__(self) -> None:
        self.count = 0
        self._named: dict[str, list[str]] = {}  # problem to the locations that have it
        self._read = 0

    def __bool__(self) -> bool:
        return self.count > 0

    def add(self, location: str, problem: str) -> None:
        """Take a bad record.

        Args:
            location: Its file and line.
            problem: What is wrong with it.
        """
        self.count += 1
        if self.count <= MOST_NAMED:
            self._named.setdefault(problem, []).append(location)

    def is_enough(self) -> bool:
        """Count a record that is read behind a bad one, and return whether to read no further."""
        self._read += 1
        return self._read >= MOST_AFTER

    def error(self, remedy: str = "") -> DataError:
        """Return the error that names the first five and counts all.

        Args:
            remedy: What to do, the end of the message.
        """
        parts = []
        for problem, (first, *others) in self._named.items():
            part = f"{first}: {problem}"
            if others:
                part += f" (also {', '.join(others)})"
            parts.append(part)
        if self.count == 1:
            return DataError(f"{parts[0]}{remedy}")
        message = "; ".join(parts)
        unnamed = self.count - min(self.count, MOST_NAMED)
        if unnamed:
            message += f"; and {unnamed:,} more"
        message += f"; {self.count:,} bad records"
        if self._read >= MOST_AFTER:
            message += f" among the first {self._read:,} behind it"
        return DataError(message + remedy)
