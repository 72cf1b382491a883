"""Settings of the few-shot study."""

from dana.core.errors import SettingError
from dana.core.settings import Count, settings_model


@settings_model
class FewShotSettings:
    """Chat model and items of a few-shot study."""

    chat: str = ""
    """The chat model: local:MODEL, or http:BASE_URL,model=NAME,key_env=VARIABLE."""
    items: Count = 72
    """Number of texts to classify, drawn at random."""
    shots: Count = 5
    """Examples of each of the two labels."""
    n: Count = 30
    """Texts of each label, on and off topic, that examples are drawn from."""

    def __post_init__(self) -> None:
        if self.n < self.shots:
            raise SettingError("n", self.n, f"at least shots, {self.shots}")
