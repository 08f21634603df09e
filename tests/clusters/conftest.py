"""The kernels of `kernels.cu`, on a device that has clusters."""

from __future__ import annotations

from pathlib import Path

import pytest
from cuda.bindings import driver as cu

import aiocuda as ac

SOURCE = Path(__file__).with_name("kernels.cu")


@pytest.fixture(scope="session")
def module() -> ac.Module:
    device = ac.Device(0)
    device.synchronize().sync()
    has_clusters = cu.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH
    if not cu.cuDeviceGetAttribute(has_clusters, device.ordinal)[1]:
        pytest.skip("needs a device with clusters: compute capability 9.0")
    return ac.Module.from_source(SOURCE.read_text(), name=SOURCE.name)
