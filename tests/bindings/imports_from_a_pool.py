"""Run by a test, with a pool's descriptor: opens memory of it before a context is current, and doubles what it holds."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
from driver_calls import cu, ok, open_device, read

descriptor, exported = int(sys.argv[1]), bytes.fromhex(sys.argv[2])
ok(cu.cuInit(0))
asked = cu.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
pool = ok(cu.cuMemPoolImportFromShareableHandle(descriptor, asked, 0))
data = cu.CUmemPoolPtrExportData()
ctypes.memmove(data.getPtr(), exported, len(exported))
address = int(ok(cu.cuMemPoolImportPointer(pool, data)))

open_device()
values = 2 * read(address, 16, np.int32)
ok(cu.cuMemcpyHtoD(address, values.ctypes.data, values.nbytes))
ok(cu.cuMemFree(address))
