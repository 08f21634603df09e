"""A device's name, such as "cuda:1", is accepted wherever a device is; bad names say what a good one is."""

from __future__ import annotations

import importlib.metadata

import numpy as np
import pytest

import aiocuda as ac

LAST = len(ac.devices()) - 1
NAME = f"cuda:{LAST}"
BAD = [
    "",
    "cpu",
    "cuda:",
    "cuda:-1",
    "cuda:x",
    "cuda:\u0660",  # a zero, but no ASCII
    "cuda: 0",
    "CUDA:0",
    "gpu:0",
    " cuda",
    "cuda:0:0",
    "cuda:\u0661",
    "host:0",
    "0",
]


def device_of(op):
    return op.sync().device


EVERYWHERE = {
    "Device": ac.Device,
    "zeros": lambda name: device_of(ac.zeros(2, device=name)),
    "empty": lambda name: device_of(ac.empty(2, np.int32, name)),
    "pitched": lambda name: device_of(ac.empty((2, 2), device=name, pitched=True)),
    "full": lambda name: device_of(ac.full(2, 1, device=name)),
    "arange": lambda name: device_of(ac.arange(3, device=name)),
    "linspace": lambda name: device_of(ac.linspace(0, 1, 3, device=name)),
    "eye": lambda name: device_of(ac.eye(3, device=name)),
    "rand": lambda name: device_of(ac.rand(3, device=name)),
    "randn": lambda name: device_of(ac.randn(3, device=name)),
    "randint": lambda name: device_of(ac.randint(0, 3, 3, device=name)),
    "to_device": lambda name: device_of(ac.to_device(np.ones(2), name)),
    "array.to": lambda name: device_of(ac.ones(2, device=0).sync().to(name)),
    "op.to": lambda name: device_of(ac.ones(2, device=0).to(name)),
    "op.on": lambda name: device_of(ac.ones(2, device=LAST).on(name)),
    "schedule": lambda name: ac.ones(2, device=LAST).schedule(name).sync().device,
    "replicate": lambda name: device_of(ac.replicate(np.ones(2), [name])[0]),
    "shard": lambda name: device_of(ac.shard(np.ones(2), [name])[0]),
    "gather": lambda name: device_of(ac.gather([ac.ones(2, device=0)], name)),
    "policy": lambda name: ac.Dataflow(2).streams(name)[0].device,
    "managed": lambda name: device_of(ac.zeros(2, device=name, managed=True)),
    "use": lambda name: in_use(name),
    "limit": lambda name: limited(name),
    "kernel": lambda name: ac.kernel("__global__ void k(int* x) {}").compile(name) or ac.Device(name),
}


def in_use(name):
    with ac.use(name):
        return ac.current_device()


def limited(name):
    with ac.memory_limit(1 << 30, device=name):
        return ac.Device(name)


@pytest.mark.parametrize("where", EVERYWHERE)
def test_a_name_is_accepted_wherever_a_device_is(where):
    assert EVERYWHERE[where](NAME) == ac.Device(LAST)


@pytest.mark.parametrize("name", BAD)
def test_a_bad_name_says_what_a_good_one_is(name):
    for where in ("Device", "zeros", "op.to", "op.on", "use"):
        with pytest.raises(ac.ArgumentValueError, match="'cuda:1'"):
            EVERYWHERE[where](name)


def test_cuda_is_the_device_in_force():
    assert ac.Device("cuda") == ac.current_device()
    with ac.use(LAST):
        assert ac.Device("cuda") == ac.Device(LAST)
        assert device_of(ac.zeros(2, device="cuda")) == ac.Device(LAST)


def test_a_name_of_a_device_that_is_not_there_says_which_are():
    for name in ("cuda:99", "cuda:" + "9" * 5000):
        with pytest.raises(ac.ArgumentValueError, match="device"):
            ac.Device(name)
        with pytest.raises(ac.ArgumentValueError, match="device"):
            ac.zeros(2, device=name)


def test_the_cpu_is_no_device():
    with pytest.raises(ac.ArgumentValueError, match=r"empty_host\(\)"):
        ac.zeros(2, device="cpu")


def test_managed_memory_is_prefetched_to_a_name():
    array = ac.zeros(2, managed=True).sync()
    for where in (NAME, "cuda", "host"):
        assert array.prefetch(where).sync() is array
    with pytest.raises(ac.ArgumentValueError, match="cuda:1"):
        array.prefetch("hosts")


def test_the_package_says_its_version():
    assert ac.__version__ == importlib.metadata.version("aiocuda")
