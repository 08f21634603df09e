"""What happens once for each DAG: execution, placement, faults, signatures.

Importing it ties the native module to this package: its errors, and the frames that are its own.
"""

import pathlib

from aiocuda import _native, errors

_native.bind_errors(errors)
_native.set_package_directory(f"{pathlib.Path(__file__).parent.parent}/")
