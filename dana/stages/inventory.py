"""Keep the list of what a run holds, by which ``dana verify`` sees what is missing, changed or of another run."""

from pathlib import Path

from dana.core.artifacts import MANIFEST, add_seal, is_intact, read_json, write_json
from dana.core.config import SETTINGS
from dana.core.errors import ArtifactError
from dana.core.files import Seals, check_seals, file_digest

INVENTORY = "artifacts.json"
PAGES = (SETTINGS, "results.csv", "leaderboard.*", "report.*", "tables/*.csv")
UNFINISHED = ("-shards", "-seeds", "-checkpoints")  # ends of the names of folders that dana removes


def update_inventory(run: Path) -> None:
    """Write size and digest of every manifest and page of a run, after a command that succeeded.

    What is gone stays listed, so that it is missed, until its command is run again.
    """
    old = read_inventory(run) if (run / INVENTORY).is_file() else {}
    manifests = (file for file in run.rglob(MANIFEST) if _is_finished(file.relative_to(run)))
    pages = (file for pattern in PAGES for file in run.glob(pattern) if file.is_file())
    files = dict(old)
    for file in (*manifests, *pages):
        files[file.relative_to(run).as_posix()] = {"bytes": file.stat().st_size, "digest": file_digest(file)}
    if files != old:
        write_json(run / INVENTORY, add_seal({"files": dict(sorted(files.items()))}))


def read_inventory(run: Path) -> Seals:
    """Read the seals of a run's manifests and pages.

    Raises:
        ArtifactError: If the list is damaged.
    """
    content = read_json(run / INVENTORY)
    if not isinstance(content, dict) or not is_intact(content):
        raise ArtifactError(f"{run / INVENTORY}: changed since it was written; remove it to begin a new list")
    check_seals(run / INVENTORY, content["files"])
    return content["files"]


def _is_finished(file: Path) -> bool:
    return not any(part.startswith(".") or part.endswith(UNFINISHED) for part in file.parts)
