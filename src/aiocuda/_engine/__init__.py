"""What happens once for each DAG: execution, placement, faults, signatures.

Importing it ties the native module to this package: its errors, and the frames that are its own.
"""

import atexit
import pathlib

from aiocuda import _native, errors

_native.bind_errors(errors)
_native.set_package_directory(f"{pathlib.Path(__file__).parent.parent}/")
# The driver's threads may outlive the interpreter's objects: from here on nothing is freed one by one.
atexit.register(_native.shut_down)
