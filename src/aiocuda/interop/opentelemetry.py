"""OpenTelemetry: awaits and operations as spans, counts as metrics."""

from aiocuda._naming import name_publicly as _name_publicly
from aiocuda._telemetry.instrumenting import instrument as instrument
from aiocuda._telemetry.instrumenting import uninstrument as uninstrument

__all__ = ["instrument", "uninstrument"]

_name_publicly(__name__, globals(), __all__)
