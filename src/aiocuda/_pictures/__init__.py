"""Pictures of work: DAGs as SVG. Knows no device, and nothing of operations.

`Picture` is imported when somebody first asks for it: few programs draw.
"""

from typing import TYPE_CHECKING

from aiocuda import _later

if TYPE_CHECKING:  # at run time, they are imported when they are first asked for
    from aiocuda._pictures.picture import Picture as Picture
else:
    __getattr__, __dir__ = _later.names_of(__name__, globals(), {"aiocuda._pictures.picture": ("Picture",)})

__all__ = ["Picture"]
