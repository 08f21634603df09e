"""Run by a test: opens memory of a pool before a context is current, and doubles what it holds."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
from driver_calls import cu, ok, open_device

descriptor, exported = int(sys.argv[1]), bytes.fromhex(sys.argv[2])
ok(cu.cuInit(0))
asked = cu.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
pool = ok(cu.cuMemPoolImportFromShareableHandle(descriptor, asked, 0))
data = cu.CUmemPoolPtrExportData()
ctypes.memmove(data.getPtr(), exported, len(exported))
address = int(ok(cu.cuMemPoolImportPointer(pool, data)))

open_device()
access = cu.CUmemAccessDesc()  # without it, a device does not fill memory of the host's
access.location.type, access.location.id = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE, 0
access.flags = cu.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
ok(cu.cuMemPoolSetAccess(pool, [access], 1))
values = np.empty(16, np.int32)
ok(cu.cuMemcpy(values.ctypes.data, address, values.nbytes))  # also where the memory is the host's
values *= 2
ok(cu.cuMemcpy(address, values.ctypes.data, values.nbytes))
ok(cu.cuStreamSynchronize(0))  # a copy of pageable memory returns before the device has it
if sys.argv[3:]:  # how many: frees it in one stream, and gives its pool up, while another is yet to write there
    flag = int(ok(cu.cuMemHostAlloc(4, 0)))
    ctypes.c_int.from_address(flag).value = 0
    writer, other = (ok(cu.cuStreamCreate(cu.CUstream_flags.CU_STREAM_NON_BLOCKING)) for _ in range(2))
    ok(cu.cuStreamWaitValue32(writer, flag, 1, cu.CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_EQ))
    ok(cu.cuMemsetD32Async(address, 43, int(sys.argv[3]), writer))
    ok(cu.cuMemFreeAsync(address, other))
    ok(cu.cuMemPoolDestroy(pool))
    ctypes.c_int.from_address(flag).value = 1
    ok(cu.cuStreamSynchronize(writer))
    assert cu.cuMemcpyDtoD(address, address, values.nbytes)[0] == cu.CUresult.CUDA_ERROR_INVALID_VALUE
else:
    ok(cu.cuMemFree(address))
