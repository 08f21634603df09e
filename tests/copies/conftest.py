"""Programs of copies that run in a process of their own, and what they have in common."""

from __future__ import annotations

import pytest

# A copy `op` of a source that nobody else holds, by device 0 to `out`, to be executed in between; and behind it,
# whatever became of that device: the other device's copies go on, and the library drops the source.
DATA_THERE_AND_BACK = """
import gc, weakref
class Data(np.ndarray): pass
source = data.copy().view(Data)
kept = weakref.ref(source)
out = np.zeros_like(data)
op = ac.to_host(ac.to_device(source, 0), out)
del source
"""
OTHERS_GO_ON = """
del op
back = np.zeros_like(data)
ac.to_host(ac.to_device(data, 1), back).sync(30)
print((back == data).all())
for _ in range(1000):
    ac.to_host(ac.ones(4, device=1)).sync(30)
    gc.collect()
    if kept() is None:
        break
print(kept() is None)
"""


@pytest.fixture
def before_and_after() -> tuple[str, str]:
    return DATA_THERE_AND_BACK, OTHERS_GO_ON
