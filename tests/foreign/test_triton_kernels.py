"""`aiocuda.interop.triton.kernel` with Triton itself: what its compiler tells needs no GPU, its launches do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from real import NEEDS_GPU, QUIET, check_order, imported

import aiocuda as ac
from aiocuda._interop import triton_ir
from aiocuda.interop.triton import kernel

triton = imported("triton", needs_gpu=False)
tl = imported("triton.language", needs_gpu=False)

pytestmark = QUIET

N = 1 << 12
BLOCK = 256
GRID = (N // BLOCK,)


@triton.jit
def add(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=m) + tl.load(y_ptr + i, mask=m), mask=m)


@triton.jit
def store(p, v):  # type: ignore[no-untyped-def]
    tl.store(p, v)


@triton.jit
def advanced(x_ptr):  # type: ignore[no-untyped-def]
    return x_ptr + tl.arange(0, 16)


@triton.jit
def loops(x_ptr, y_ptr, out_ptr, n):  # type: ignore[no-untyped-def]
    xs = advanced(x_ptr)
    ys = advanced(y_ptr)
    outs = advanced(out_ptr)
    for _ in range(n):
        store(outs, tl.load(xs) + tl.load(ys))
        xs += 16
        ys += 16
        outs += 16


@triton.jit
def while_loops(x_ptr, out_ptr, n):  # type: ignore[no-untyped-def]
    xs = x_ptr
    outs = out_ptr
    k = 0
    while k < n:
        tl.store(outs, tl.load(xs))
        xs += 1
        outs += 1
        k += 1


@triton.jit
def gathers(x_ptr, index_ptr, out_ptr):  # type: ignore[no-untyped-def]
    i = tl.arange(0, 16)
    tl.store(out_ptr + tl.load(index_ptr + i), tl.load(x_ptr + tl.load(index_ptr + i)))


@triton.jit
def counts(x_ptr, count_ptr, flag_ptr):  # type: ignore[no-untyped-def]
    tl.atomic_add(count_ptr, tl.load(x_ptr))
    tl.atomic_cas(flag_ptr, 0, 1)


@triton.jit
def one_of_two(x_ptr, a_ptr, b_ptr, n):  # type: ignore[no-untyped-def]
    p = a_ptr if n > 3 else b_ptr
    tl.store(p, tl.load(x_ptr))


@triton.jit
def reads_alone(x_ptr, n):  # type: ignore[no-untyped-def]
    tl.device_assert(tl.load(x_ptr) < n)


@triton.jit
def through_memory(x_ptr, address_ptr):  # type: ignore[no-untyped-def]
    p = tl.load(address_ptr).to(tl.pointer_type(tl.float32))
    tl.store(p, tl.load(x_ptr))


@triton.jit
def at_a_number(x_ptr, address):  # type: ignore[no-untyped-def]
    tl.store(address.to(tl.pointer_type(tl.float32)), tl.load(x_ptr))


@triton.jit
def at_a_distance(x_ptr, y_ptr):  # type: ignore[no-untyped-def]
    distance = (y_ptr.to(tl.int64) - x_ptr.to(tl.int64)) // 4
    tl.store(x_ptr + distance, 1.0)


@triton.jit
def assembly(x_ptr, y_ptr):  # type: ignore[no-untyped-def]
    tl.inline_asm_elementwise(
        "st.global.u32 [$1], 7; mov.u32 $0, 0;", "=r,l", [y_ptr], dtype=tl.int32, is_pure=False, pack=1
    )
    tl.load(x_ptr)


@triton.jit
def block_written(x_ptr, out_ptr, n):  # type: ignore[no-untyped-def]
    to = tl.make_tensor_descriptor(out_ptr, shape=[n, 16], strides=[16, 1], block_shape=[16, 16])
    of = tl.make_tensor_descriptor(x_ptr, shape=[n, 16], strides=[16, 1], block_shape=[16, 16])
    to.store([0, 0], of.load([0, 0]))


@triton.jit
def chosen_by_a_number(x_ptr, a_ptr, b_ptr, n):  # type: ignore[no-untyped-def]
    i = tl.arange(0, 16)
    tl.store(tl.where(i < n, a_ptr + i, b_ptr + i), tl.load(x_ptr))


@triton.jit
def if_asked(x_ptr, out_ptr, other_ptr, WRITES_OTHER: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    tl.store(out_ptr, tl.load(x_ptr))
    if WRITES_OTHER:
        tl.store(other_ptr, 1.0)


@triton.jit
def matmul(a_ptr, b_ptr, c_ptr, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inner = tl.arange(0, BLOCK)
    a = a_ptr + rows[:, None] * n + inner[None, :]
    b = b_ptr + inner[:, None] * n + columns[None, :]
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for k in range(0, n, BLOCK):
        mask = inner[None, :] + k < n
        total = tl.dot(tl.load(a, mask=mask, other=0.0), tl.load(b), total)
        a += BLOCK
        b += BLOCK * n
    tl.store(c_ptr + rows[:, None] * n + columns[None, :], total)


@triton.jit
def larger(a, b):  # type: ignore[no-untyped-def]
    return tl.where(a > b, a, b)


@triton.jit
def softmax(x_ptr, out_ptr, sums_ptr, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    i = tl.arange(0, BLOCK)
    row = x_ptr + tl.program_id(0) * n
    x = tl.load(row + i, mask=i < n, other=-float("inf"))
    x = tl.exp(x - tl.reduce(x, 0, larger))
    total = tl.sum(x, 0)
    tl.store(out_ptr + tl.program_id(0) * n + i, tl.associative_scan(x / total, 0, larger), mask=i < n)
    if n > 2:
        tl.store(sums_ptr, total)


@triton.jit
def in_turns(a_ptr, b_ptr, index_ptr, n):  # type: ignore[no-untyped-def]
    of = a_ptr
    to = b_ptr
    for k in tl.range(0, n, num_stages=2):
        tl.store(to + k, tl.load(of + tl.load(index_ptr)))
        of, to = to, of


@triton.jit
def returns_early(x_ptr, out_ptr, n):  # type: ignore[no-untyped-def]
    i = tl.program_id(0)
    if i >= n:
        return
    p = out_ptr + i
    tl.store(p, tl.load(x_ptr + i))


@triton.jit
def if_there(x_ptr, out_ptr, other_ptr):  # type: ignore[no-untyped-def]
    tl.store(out_ptr, tl.load(x_ptr))
    if other_ptr is not None:
        tl.store(other_ptr, 1.0)


def array(dtype: Any = np.float32, items: int = N) -> ac.DeviceArray:
    return ac.zeros(items, dtype).sync(60)


def full(value: float, dtype: Any = np.float32) -> ac.DeviceArray:
    return ac.full(N, value, dtype).sync(60)


def host(x: Any) -> np.ndarray:
    return ac.to_host(x).sync_on(ac.Device(0).stream(), 60)


# --- what is written is found ----------------------------------------------------------------------------------------


def written(made: Any, *arguments: Any, **options: Any) -> list[str]:
    """The parameters that count as written, by the arrays that the operation writes."""
    launched = kernel(made)
    launched[1,](*arguments, **options)
    ((found),) = launched._found.values()
    return found


F, I = np.float32, np.int32  # noqa: E741


@pytest.mark.parametrize(
    ("made", "arguments", "expected"),
    [
        (loops, (F, F, F, 3), ["out_ptr"]),
        (while_loops, (F, F, 3), ["out_ptr"]),
        (gathers, (F, I, F), ["out_ptr"]),
        (counts, (F, F, I), ["count_ptr", "flag_ptr"]),
        (one_of_two, (F, F, F, 2), ["a_ptr", "b_ptr"]),
        (reads_alone, (F, 3), []),
        (through_memory, (F, np.int64), ["x_ptr", "address_ptr"]),  # the IR does not tell
        (at_a_number, (F, 1 << 40), ["x_ptr"]),
        (at_a_distance, (F, F), ["x_ptr", "y_ptr"]),
        (assembly, (F, F), ["y_ptr"]),
        (block_written, (F, F, 16), ["out_ptr"]),
        (if_asked, (F, F, F, False), ["out_ptr"]),
        (if_asked, (F, F, F, True), ["out_ptr", "other_ptr"]),
        (if_asked, (F, F, None, False), ["out_ptr"]),
        (matmul, (F, F, F, 64, 16), ["c_ptr"]),
        (softmax, (F, F, F, 64, 64), ["out_ptr", "sums_ptr"]),
        (in_turns, (F, F, I, 4), ["a_ptr", "b_ptr"]),
        (returns_early, (F, F, 4), ["out_ptr"]),
        (if_there, (F, F, None), ["out_ptr"]),
        (if_there, (F, F, F), ["out_ptr", "other_ptr"]),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_what_a_kernel_writes_is_found(made, arguments, expected):
    given = [array(each) if isinstance(each, type) else each for each in arguments]
    assert written(made, *given) == expected


@pytest.mark.parametrize(
    ("made", "arguments", "surely", "unclear"),
    [
        (loops, (F, F, F, 3), {2}, set()),
        (counts, (F, F, I), {1, 2}, set()),
        (chosen_by_a_number, (F, F, F, 3), {1, 2}, set()),
        (block_written, (F, F, 16), {1}, set()),
        (through_memory, (F, np.int64), set(), {0, 1}),
        (assembly, (F, F), set(), {1}),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_what_is_clear_and_what_is_not(made, arguments, surely, unclear):
    given = [array(each) if isinstance(each, type) else each for each in arguments]
    ((types, fixed),) = triton_ir.types_of(dict(zip(made.arg_names, given, strict=True)), frozenset())
    assert triton_ir.written_by(made, types, fixed) == (surely, unclear)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int16", "uint64", "float16", "bfloat16", "float64"])
def test_arrays_of_all_dtypes_have_types_of_tritons(dtype):
    given = [array(dtype), array(dtype), array(dtype)]
    assert written(gathers, given[0], array(np.int32), given[2]) == ["out_ptr"]


def test_arguments_by_name_and_operations_are_found_too():
    x = array()
    assert written(add, y_ptr=x, x_ptr=x, out_ptr=ac.empty_like(x), n=N, BLOCK=64, num_warps=4) == ["out_ptr"]
    unknown = ac.call(lambda stream: x, reads=[x])
    assert written(add, unknown, x, unknown, N, BLOCK) == ["out_ptr"]
    addresses = ac.zeros(N, np.int64)  # of no other dtype can pointers be made
    assert written(through_memory, x, addresses) == ["x_ptr", "address_ptr"]
    assert written(counts, unknown, unknown, unknown) == [
        "count_ptr",
        "flag_ptr",
    ]  # not of a float, of which it has none


def test_decorated_kernels_are_found():
    configs = [triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128}, num_warps=8)]
    x = array()
    assert written(triton.autotune(configs, key=["n"])(add), x, x, x, N) == ["out_ptr"]
    chosen = triton.heuristics({"BLOCK": lambda given: triton.next_power_of_2(given["n"])})(add)
    assert written(chosen, x, x, x, 100) == ["out_ptr"]
    with pytest.raises(ac.ArgumentValueError, match=r"cannot be found .*ZeroDivisionError.*writes="):
        kernel(triton.heuristics({"BLOCK": lambda given: 1 // 0})(add))[1,](x, x, x, N)


def test_what_does_not_compile_is_an_error_that_says_why():
    with pytest.raises(ac.ArgumentValueError, match="add: what it writes cannot be found") as raised:
        kernel(add)[1,](array(), array(), array(), N, BLOCK=3)
    assert "power of 2" in str(raised.value.__cause__)


# --- misuse ----------------------------------------------------------------------------------------------------------


def test_misuse_is_an_error():
    x = array()
    launch = kernel(add, writes=["out_ptr"])
    with pytest.raises(ac.ArgumentTypeError, match="no argument was given for out_ptr, n, BLOCK"):
        launch[GRID](x, x)
    with pytest.raises(ac.ArgumentTypeError, match=r"takes 5 arguments \(x_ptr, .*\), and 6 were given"):
        launch[GRID](x, x, x, N, BLOCK, 1)
    with pytest.raises(ac.ArgumentTypeError, match=r"'stream' is no parameter .* and no launch option"):
        launch[GRID](x, x, x, N, BLOCK, stream=3)
    with pytest.raises(ac.ArgumentTypeError, match="'x_ptr' was given by position and by name"):
        launch[GRID](x, x, x, N, BLOCK, x_ptr=x)
    with pytest.raises(ac.ArgumentTypeError, match="add writes 'out_ptr', which takes an array on a device, not 3"):
        launch[GRID](x, x, 3, N, BLOCK)
    for grid in (1, (), (1, 1, 1, 1), "x"):
        with pytest.raises(ac.ArgumentTypeError, match="takes a grid of one to three numbers"):
            launch[grid]
    with pytest.raises(ac.ArgumentValueError, match="x_ptr, y_ptr, out_ptr, n, BLOCK; 'out' was given"):
        kernel(add, writes=["out"])
    with pytest.raises(ac.ArgumentTypeError, match=r"triton\.jit"):
        kernel(len)
    with pytest.raises(ac.ArgumentTypeError, match="'x_ptr' is memory of the host"):
        kernel(add)[GRID](np.zeros(N), x, x, N, BLOCK)
    with pytest.raises(ac.ArgumentTypeError, match="'x_ptr' holds arrays"):
        launch[GRID]((x, x), x, x, N, BLOCK)


def test_a_descriptor_of_a_tensor_is_refused():
    class Descriptor:
        base, block_shape = array(), [16]

    with pytest.raises(ac.ArgumentTypeError, match=r"'x_ptr' is a descriptor .* tl\.make_tensor_descriptor"):
        kernel(add, writes=["out_ptr"])[GRID](Descriptor(), array(), array(), N, BLOCK)


# --- launches --------------------------------------------------------------------------------------------------------


@NEEDS_GPU
def test_a_kernel_runs_on_the_operations_stream(run):
    async def main() -> None:
        y = kernel(add)[GRID](full(2), full(3), ac.empty(N, np.float32), N, BLOCK=BLOCK, num_warps=2)
        assert (await ac.to_host(y) == 5).all()

    run(main)


@NEEDS_GPU
def test_a_kernel_is_ordered_by_what_it_reads_and_writes(latch, device, settle):
    x, y = full(3), full(0)
    launch = kernel(add)[GRID]
    check_order(lambda: launch(x, x, y, N, BLOCK), x, y, 14, latch, device, settle)


@NEEDS_GPU
def test_a_chain_of_launches_and_a_grid_of_a_function():
    x: Any = full(0)
    one = full(1)
    launch = kernel(add)[lambda given: (triton.cdiv(given["n"], given["BLOCK"]),)]
    for _ in range(20):
        x = launch(x, one, ac.empty(N, np.float32), n=N, BLOCK=BLOCK)
    assert (host(x) == 20).all()


@NEEDS_GPU
def test_kernels_of_aiocuda_and_of_triton_alternate(kernels):
    x: Any = full(0, np.int32)
    one = full(1, np.int32)
    for _ in range(10):
        x = kernels.increment(kernel(add)[GRID](x, one, ac.empty(N, np.int32), N, BLOCK), N, threads=N)
    assert (host(x) == 20).all()


@NEEDS_GPU
def test_atomics_count():
    @ac.compile
    def counted(x: Any) -> Any:
        return kernel(counts, writes=["count_ptr", "flag_ptr"])[64,](x, ac.zeros(1, np.float32), ac.zeros(1, np.int32))

    count, flag = counted(full(2)).sync(60)
    assert (host(count)[0], host(flag)[0]) == (128, 1)


@NEEDS_GPU
def test_a_compiled_function():
    launch = kernel(add)[GRID]

    @ac.compile
    def compiled(x: Any) -> Any:
        return launch(x, x, ac.empty(N, np.float32), N, BLOCK)

    assert [host(compiled(full(value)))[0] for value in (0, 5, 7)] == [0, 10, 14]
    assert compiled.cache_info().misses == 1


@NEEDS_GPU
def test_what_is_written_without_a_name_is_an_error():
    x, y = full(1), full(2)
    with pytest.raises(ac.ArgumentValueError, match="add has written out_ptr, which stands not in writes="):
        kernel(add, writes=["x_ptr"])[GRID](x, x, y, N, BLOCK).sync(60)


@NEEDS_GPU
def test_tensors_are_arguments_ordered_both_ways():
    torch = pytest.importorskip("torch")
    x, y = torch.full((N,), 2.0, device="cuda"), torch.zeros(N, device="cuda")
    launch = kernel(add)[GRID]
    for _ in range(20):
        x += 1
        launch(x, full(1), y, N, BLOCK).submit()
        x.zero_()
        x += y
    torch.cuda.synchronize()
    assert (x == 42).all()


@NEEDS_GPU
def test_tritons_own_launches_go_where_they_went(device):
    torch = pytest.importorskip("torch")
    stream = torch.cuda.Stream()
    seen: list[int] = []

    def grid(given: Any) -> tuple[int]:
        active = triton.runtime.driver.active
        seen.append(active.get_current_stream(active.get_current_device()))
        return GRID

    x = torch.zeros(N, device="cuda")
    ours = device.stream()
    kernel(add)[grid](x, x, x, N, BLOCK).sync_on(ours, 60)
    with torch.cuda.stream(stream):
        add[grid](x, x, x, N, BLOCK)
    torch.cuda.synchronize()
    assert seen == [ours.handle, stream.cuda_stream]


@NEEDS_GPU
def test_a_kernel_that_is_tuned_is_launched_and_one_that_is_not_is_an_error():
    torch = pytest.importorskip("torch")
    configs = [triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128}, num_warps=8)]
    tuned = triton.autotune(configs, key=["n"])(add)
    launch = kernel(tuned)[lambda given: (triton.cdiv(given["n"], given["BLOCK"]),)]
    x, y = full(3), full(0)
    with pytest.raises(ac.ArgumentValueError, match="has not tuned"):
        launch(x, x, y, N).sync(60)
    a = torch.zeros(N, device="cuda")
    tuned[lambda given: (triton.cdiv(given["n"], given["BLOCK"]),)](a, a, a, N)
    torch.cuda.synchronize()
    assert (host(launch(x, x, y, N)) == 6).all()


@NEEDS_GPU
def test_hooks_of_a_configuration_work_on_the_operations_stream(latch, device):
    pytest.importorskip("torch")

    def zero(given: Any) -> None:
        given["count_ptr"].zero_()

    launch = kernel(triton.autotune([triton.Config({}, pre_hook=zero)], key=[])(counts))[8,]
    count, flag, held = full(9), full(0, np.int32), device.stream()
    launch(full(1), count, flag).sync(60)  # it is compiled by now, and what the hook uses is loaded
    latch.hold(held)
    ac.fill(count, 5).on(held).submit()
    made = launch(full(1), count, flag)
    made.submit()
    latch.release()
    assert host(count)[0] == 8


@NEEDS_GPU
@pytest.mark.needs_devices(2)
def test_an_array_of_another_device_is_an_error():
    there = ac.zeros(N, np.float32, device=1).sync(60)
    with pytest.raises(ac.DeviceMismatchError, match="device 1"):
        kernel(add)[GRID](full(1), there, full(0), N, BLOCK).sync(60)


@NEEDS_GPU
def test_without_pytorch_it_finds_the_stream(in_process: Callable[..., Any]):
    """In a process that never imports it; older versions of Triton need it."""
    done = in_process(
        """
        import sys
        sys.modules["torch"] = None
        import tempfile, textwrap, pathlib, importlib.util
        folder = tempfile.mkdtemp()
        path = pathlib.Path(folder, "doubling.py")
        path.write_text(textwrap.dedent('''
            import triton, triton.language as tl
            @triton.jit
            def double(x, n, BLOCK: tl.constexpr):
                i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
                tl.store(x + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)
            '''))
        spec = importlib.util.spec_from_file_location("doubling", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        import numpy as np, aiocuda as ac
        from aiocuda.interop.triton import kernel
        x = ac.full(256, 3, np.float32).sync()
        try:
            print(sorted(set(ac.to_host(kernel(module.double)[1,](x, 256, BLOCK=256)).sync().tolist())))
        except ac.errors.MissingPackageError as error:
            print("needs PyTorch" if "PyTorch" in str(error) else error)
        """
    )
    assert done.stdout.strip() in ("[6.0]", "needs PyTorch"), done.stderr
    if tuple(map(int, triton.__version__.split(".")[:2])) >= (3, 9):
        assert done.stdout.strip() == "[6.0]", done.stderr
