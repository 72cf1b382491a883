"""Upload of a model artifact to the Hugging Face Hub, as a private repository."""

from pathlib import Path

from dana.core.artifacts import open_artifact
from dana.core.errors import ArtifactError


def publish_stage(folder: Path, name: str) -> str:
    """Upload a model artifact to the Hugging Face Hub; a repository that does not exist is made private.

    Args:
        folder: What ``dana adapt`` wrote.
        name: ``organisation/name``.

    Returns:
        The address.

    Raises:
        ArtifactError: If there is no model, or the Hub refuses.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

    open_artifact(folder, "model", "dana adapt DIR --model ...")
    hub = HfApi()
    try:
        hub.create_repo(name, private=True, exist_ok=True)
        found = hub.upload_folder(repo_id=name, folder_path=folder, commit_message="Trained by dana")
    except (HfHubHTTPError, OfflineModeIsEnabled, OSError, ValueError) as error:
        raise ArtifactError(
            f"{folder}: not uploaded to {name}: {str(error).splitlines()[0]}; the folder stays"
        ) from error
    return str(found)
