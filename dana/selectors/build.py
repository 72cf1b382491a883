"""Selectors from specs: a name and the context of a run to a selector, cross-fitted where it learns from background."""

from dataclasses import replace

from dana.core.errors import ConfigError, PluginError
from dana.core.registry import DETECTORS, SELECTORS
from dana.selectors.base import Selector, SelectorContext
from dana.selectors.cross_fitting import BACKGROUND, CrossFitted

MANY = 1000  # task units, of any number; a selector that learns from background asks for some


def create_selector(spec: str, context: SelectorContext) -> Selector:
    """The selector of a spec, in the context of a run; one that asks for a sample named ``background`` is cross-fitted.

    Args:
        spec: Of a selector; or of a detector, which stands for that detector over the run's encoder.
        context: The settings of the run.

    Raises:
        PluginError: If there is none of that name, or it is no subclass of :class:`dana.selectors.base.Selector`.
        ConfigError: If a parameter of the spec is unknown or refused.
    """
    made = plain_selector(spec, context)
    learns = not made.crosses_itself and BACKGROUND in made.samples(MANY)
    return CrossFitted(made, context=context) if learns else made


def plain_selector(spec: str, context: SelectorContext) -> Selector:
    """The selector of a spec as it is, fitted once on all that it asks for; see :func:`create_selector`."""
    if isinstance(spec, str) and _head(spec) not in SELECTORS.entries() and _head(spec) in DETECTORS.entries():
        from dana.selectors.detector import DetectorSelector

        return DetectorSelector(spec, context=context)
    made = SELECTORS.create(spec)
    if not isinstance(made, Selector):
        package = type(made).__module__.partition(".")[0]
        said = f"{type(made).__name__} is no subclass of dana.selectors.base.Selector"
        raise PluginError(f"selector {spec!r} of {package}: {said}")
    if made.context != SelectorContext():
        raise ConfigError(f"{spec!r}: context is set by the run, it is no parameter of a spec")
    return replace(made, context=context)


def _head(spec: str) -> str:
    return spec.partition(":")[0]
