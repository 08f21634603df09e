"""The numbered examples: what each computes is NumPy's, and each runs as a script."""

from __future__ import annotations

import ctypes
import importlib.metadata
import importlib.util
import os
import re
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cuda.bindings import driver

import aiocuda as ac

EXAMPLES = Path(__file__).parents[2] / "examples"
KERNELS = EXAMPLES / "07_build_workflow" / "kernels.cu"
SCRIPTS = {path.relative_to(EXAMPLES).parts[0][:2]: path for path in EXAMPLES.glob("[0-9][0-9]_*")}
SCRIPTS["07"] = KERNELS.with_name("build_workflow.py")

# A line that each prints, on every driver.
PRINTED = {
    "01": r"to_device  uint32 \[1, 2, 3\]",
    "02": r"a column   \[2\.0, 5\.0\]",
    "03": r"refused: sine: argument 1 \(x\): .*float64.* was given.*",
    "04": r"the roots on <Stream .* of device 0, 0 submitted>:",
    "05": r"mass 2\.0: at \[1\.  0\.  8\.5\], hardly moved",
    "06": r"7 times: \[ 0\.  7\. 14\. 21\. 28\.\]",
    "07": r"at \[ *(0\.9999|1\.0*)\d* -4\.95\d* *0\. *\] with \[ *1\. *-9\.8\d* *0\. *\]",
    "08": r"\d+\.\d{3} ms on the device; all of x is 31\.0",
    "09": r"1 \+ 2x \+ 3x² \+ 4x³: \[  1\.  10\.  49\. 142\. 313\. 586\.\]",
    "10": r"largest sine: (1\.0|0\.99999\d*)",
    "11": r"6 rows of 32 bytes, 512 bytes from one to the next",
    "12": r"shared memory of a launch: up to 49152 bytes, 56000 now",
    "13": r"ten times: \[ 0\. 10\. 20\. 30\. 40\. 50\. 60\.\]",
    "15": r"mean -?0\.\d, deviation 1",
    "14": r"\(5, 32, 64\) times \(64, 16\) is \(5, 32, 16\)",
    "17": r"solved: True, in \d+ iterations; largest rest \de-1\d",
    "16": r"2 images of \(476, 636\), as NumPy's: True",
}


@pytest.fixture
def example(request: pytest.FixtureRequest) -> types.ModuleType:
    """Import an example by its path; it is the one whose number the test's name begins with."""
    number = re.match(r"test_(\d\d)_", request.node.name)
    assert number is not None
    return imported(number[1])


def imported(number: str) -> types.ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{number}", SCRIPTS[number])
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def require_what_it_needs(number: str) -> None:
    if number == "14" and not ac.Device(0).is_emulated and importlib.util.find_spec("nvmath") is None:
        pytest.skip('on a GPU, aiocuda.linalg needs nvmath-python: pip install "aiocuda[nvmath]"')
    if number == "15" and (ac.Device(0).is_emulated or importlib.util.find_spec("nvmath") is None):
        pytest.skip("cuRAND and cuSPARSE need an NVIDIA GPU and nvmath-python")
    if number == "16" and (ac.Device(0).is_emulated or not has_package("nvidia-npp")):
        pytest.skip("NPP needs an NVIDIA GPU and the package nvidia-npp")


def has_package(name: str) -> bool:
    return any(importlib.metadata.distributions(name=name))


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(3).standard_normal(shape, np.float32)


@pytest.mark.parametrize("number", sorted(SCRIPTS))
def test_it_runs_as_a_script(number):
    require_what_it_needs(number)
    done = subprocess.run(
        [sys.executable, str(SCRIPTS[number])],
        env={**os.environ, "PYTHONWARNINGS": "ignore", "AIOCUDA_DEBUG": "1", "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=240,
        check=False,
    )
    # No arrays are held at the end either, which AIOCUDA_DEBUG tells. It tells of a loop that is held up, too: that
    # depends on the machine.
    told = [line for line in done.stderr.splitlines() if "held the event loop up for" not in line]
    assert told == []
    assert done.returncode == 0
    assert any(re.fullmatch(PRINTED[number], line) for line in done.stdout.splitlines()), done.stdout


def test_each_says_how_it_is_run():
    for script in SCRIPTS.values():
        assert f"\nTo run it: python examples/{script.relative_to(EXAMPLES)}\n" in script.read_text(encoding="utf-8")


def test_the_tutorial_lists_each():
    page = (EXAMPLES.parent / "docs" / "tutorial" / "index.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `(\d\d_\w+(?:\.py)?)` \| \w.* \|$", page, re.MULTILINE)
    assert listed == sorted(path.name for path in EXAMPLES.glob("[0-9][0-9]_*"))


def test_01_arrays_have_what_they_were_made_of(example, run):
    found = run(example.make_arrays)
    expected = {
        "zeros": np.zeros(5, np.float32),
        "full": np.full((2, 3), 7, np.uint8),
        "arange": np.arange(5),
        "rand": np.random.Generator(np.random.Philox(key=1)).random(4, np.float32),
        "to_device": np.array([1, 2, 3], np.uint32),
        "of a list": np.array([[0.5, 1.5], [2.5, 3.5]]),
    }
    assert list(found) == list(expected)
    for name, contents in expected.items():
        assert found[name].dtype == contents.dtype
        np.testing.assert_array_equal(found[name], contents)


def test_01_memory_is_in_use_between_making_and_closing(example, run, used_bytes):
    used_bytes()  # what others left is freed before
    assert run(example.follow_memory) == [0, 1024 * 256 * 4, 0]


def test_02_copies_arrive(example, run):
    data = normal(4, 6)
    twin = data[:, ::-1].copy()
    twin[0] = data[1]
    found = run(example.copy_around, data)
    np.testing.assert_array_equal(found["twin"], twin)
    np.testing.assert_array_equal(found["a column"], (data + 1)[:, 1])
    np.testing.assert_array_equal(found["the whole"], data + 1)


def test_03_sines_are_numpys(example, run):
    x = normal(1000)
    np.testing.assert_allclose(run(example.sines, x), np.sin(x), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("has_side", [False, True])
def test_04_branches_are_on_two_streams_that_wait_where_they_must(example, device, has_side):
    data = np.abs(normal(1000))
    side = device.stream() if has_side else None
    both = example.describe(data, side)
    steps = re.findall(r"stream (\d+) +(launch|wait for stream) (\w+)", both.explain())
    on = {name: stream for stream, what, name in steps if what == "launch"}
    # Squares and sum are where the upload was. The roots wait for that, and the sum for the roots.
    assert on["square"] == on["add"] != on["root"]
    assert side is None or f"<Stream {on['root']} " in repr(side)
    waits = [(stream, name) for stream, what, name in steps if what != "launch"]
    assert waits == [(on["root"], on["square"]), (on["add"], on["root"])]
    np.testing.assert_allclose(both.sync(), data**2 + np.sqrt(data), rtol=1e-6)


def test_05_structs_are_numpys(example, run):
    world = np.array(((1, -2, 0.5), 0.25, 6), example.World)
    balls = np.zeros(300, example.Ball)
    balls["position"], balls["mass"] = normal(300, 3), np.linspace(0.5, 3, 300)
    found = run(example.let_fly, world, balls)
    by = (0.25 * 6 / balls["mass"]).astype(np.float32)
    np.testing.assert_allclose(found["position"], balls["position"] + by[:, None] * world["wind"], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(found["mass"], balls["mass"])
    np.testing.assert_array_equal(found["moved"], by > 1)
    assert 0 < found["moved"].sum() < 300


def test_06_threads_and_tasks_compute_on_one_array(example, run_asyncio):
    data = normal(1000)
    found = run_asyncio(example.share_a_device, data, 8)
    np.testing.assert_array_equal(found, [np.float32(factor) * data for factor in range(16)])


def particles_of(example: types.ModuleType) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Particles; and where they are and how they move after a second in ten steps."""
    particles = np.zeros(300, example.Particle)
    particles["position"], particles["velocity"] = normal(300, 4), normal(300, 4) + 1
    position, velocity = particles["position"].astype(float), particles["velocity"].astype(float)
    for _ in range(10):
        velocity[:, 1] -= example.GRAVITY / 10
        position[:, :3] += velocity[:, :3] / 10
    return particles, position, velocity


def test_07_particles_move_as_numpys(example, run):
    particles, position, velocity = particles_of(example)
    found = run(example.simulate, KERNELS, particles, 1, 10)
    np.testing.assert_allclose(found["position"], position, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(found["velocity"], velocity, rtol=1e-4, atol=1e-4)


def test_07_particles_move_the_same_by_compiled_code(example, run, device, tmp_path):
    file = tmp_path / "kernels.ptx"
    particles, position, _ = particles_of(example)
    if device.is_emulated:
        file.write_text(".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry move() { ret; }\n")
        with pytest.raises(ac.ArgumentValueError, match=r"pass its source to Module\.from_source"):
            run(example.simulate, file, particles, 1, 10)
        return
    file.write_bytes(ptx_of(KERNELS, f"GRAVITY={example.GRAVITY}f"))
    found = run(example.simulate, file, particles, 1, 10)
    np.testing.assert_allclose(found["position"], position, rtol=1e-4, atol=1e-4)


def ptx_of(file: Path, macro: str) -> bytes:
    """Compile as nvcc would, which need not be there."""
    from cuda.bindings import driver
    from cuda.core import Device, Program, ProgramOptions

    Device(0).set_current()
    options = ProgramOptions(name=file.name, include_path=str(file.parent), define_macro=tuple(macro.split("=")))
    code = bytes(Program(file.read_text(encoding="utf-8"), "c++", options=options).compile("ptx").code)
    # The compiler may be newer than the driver. CUDA 12's PTX has the versions 8.x, CUDA 13's 9.x.
    _, version = driver.cuDriverGetVersion()
    return re.sub(rb"\.version \d+\.\d+", f".version {version // 1000 - 4}.{version % 1000 // 10}".encode(), code)


def test_08_the_chain_is_explained_and_timed(example, run):
    seen = run(example.watch, 1000, 7)
    assert [step.split()[3] for step in seen.steps] == ["allocate"] + ["launch"] * 7
    assert all("08_activity.py:" in step for step in seen.steps)
    assert seen.milliseconds > 0
    np.testing.assert_array_equal(seen.result, np.full(1000, 2**7 - 1, np.float32))


def test_09_polynomials_are_numpys(example, run):
    coefficients, x = np.float32([[1, 2, 3, 4], [0, 0, 0, 1], [-1, 0.5, 0, 0]]), normal(1000)
    for _ in range(2):  # what a variable was left at does not count
        found, count = run(example.evaluate, coefficients.tolist(), x)
        assert count == 3000
    for each, values in zip(coefficients, found, strict=True):
        np.testing.assert_allclose(values, np.polynomial.Polynomial(each)(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("n", [5, 100_001])
def test_10_sines_of_a_launch_that_fits_are_numpys(example, run, device, n):
    x = normal(n)
    attributes, best, y = run(example.sines, x)
    np.testing.assert_allclose(y, np.sin(x), rtol=1e-5, atol=1e-6)
    assert 1 <= best.block <= attributes.max_threads_per_block
    assert best.grid == best.active_blocks * device.multiprocessor_count > 0


def test_11_part_of_a_pitched_image_is_numpys(example, run):
    image, part = normal(60, 80), (slice(5, 50), slice(10, 79))
    pitched, found = run(example.brighten_part, image, *part)
    expected = image.copy()
    expected[part] += 100
    np.testing.assert_array_equal(found["image"], expected)
    np.testing.assert_array_equal(found["part"], expected[part])
    assert (pitched.shape, pitched.strides) == ((60, 80), (512, 4))


def test_12_what_is_set_is_read_and_put_back(example, run):
    x = normal(13_000)
    found = run(example.configure, x)
    np.testing.assert_array_equal(found.result, x[::-1])
    assert found.before.max_dynamic_shared_bytes < x.nbytes == found.now.max_dynamic_shared_bytes
    assert found.now.preferred_carveout == 100
    assert found.fit.block == 256
    assert found.fit.active_blocks > 0
    assert example.reverse.attributes() == found.before
    assert found.stack_now >= 2 * found.stack_before
    assert ac.current_device().limits().stack_bytes == found.stack_before


def test_13_arrays_go_round_and_are_shared_out(example, run):
    data = normal(1001)
    seen, back = run(example.round_trip, data)
    assert seen == [device.ordinal for device in ac.devices()]
    np.testing.assert_array_equal(back, data)
    np.testing.assert_array_equal(run(example.scaled, data, 3), 3 * data)


def test_14_the_layer_is_numpys(example, run):
    require_what_it_needs("14")
    weights, inputs = normal(64, 16), normal(3, 32, 64)
    exact = np.maximum(inputs.astype(float) @ weights, 0)
    np.testing.assert_allclose(run(example.layer, weights, inputs), exact, rtol=1e-4, atol=1e-4)


def test_15_libraries_are_called_with_a_handle_of_their_stream(monkeypatch):
    """On the emulated driver by stand-ins, which work at once; on a GPU by cuRAND and cuSPARSE."""
    if ac.Device(0).is_emulated:
        calls = stand_in_for_libraries(monkeypatch)
    else:
        require_what_it_needs("15")
    example = imported("15")
    random = example.Random(seed=3)
    dense = np.where(normal(5, 8) > 0, normal(5, 8), 0)
    rows, columns = np.nonzero(dense)
    begins = np.searchsorted(rows, np.arange(6))
    matrix = example.Sparse(dense.shape, begins, columns, dense[rows, columns])
    for stream in (ac.Device(0).stream(), ac.Device(0).stream()):
        noise = random.normal(8).sync_on(stream)
        found = ac.to_host(matrix.times(noise).sync_on(stream)).sync()
        np.testing.assert_allclose(found, dense @ ac.to_host(noise).sync(), rtol=1e-5, atol=1e-5)
        if ac.Device(0).is_emulated:
            assert calls["streams"][-2:] == [stream.handle] * 2  # of a generator, and of a handle
    if ac.Device(0).is_emulated:
        assert calls["open"] == 0


@pytest.mark.parametrize("size", [3, 7])
def test_16_npp_is_called_with_a_context_of_its_stream(monkeypatch, size):
    """On the emulated driver by a stand-in, which works at once; on a GPU by NPP."""
    example = imported("16")
    contexts: list[Any] = []
    if ac.Device(0).is_emulated:
        monkeypatch.setattr(example, "load_filters", lambda: stand_in_for_npp(example, contexts))
    else:
        require_what_it_needs("16")
    image, filters = normal(20, 33), example.Filters()
    streams = [ac.Device(0).stream() for _ in range(2)]
    for stream in [*streams, streams[0]]:
        smooth = filters.box(ac.to_device(image).sync_on(stream), size)
        found = ac.to_host(smooth.sync_on(stream)).sync()
        np.testing.assert_allclose(found, example.mean_of_boxes(image, size), rtol=1e-4, atol=1e-5)
    if ac.Device(0).is_emulated:
        assert [each.stream for each in contexts] == [each.handle for each in [*streams, streams[0]]]
        for each in contexts:
            assert (each.device, each.multiprocessors) == (0, ac.Device(0).multiprocessor_count)
            assert (each.major, each.minor) == ac.Device(0).compute_capability
            assert min(each.threads_per_multiprocessor, each.threads_per_block, each.shared_bytes_per_block) >= 1024
            assert each.stream_flags == driver.CUstream_flags.CU_STREAM_NON_BLOCKING


@pytest.mark.emulated_only  # the stand-in refuses; NPP itself refuses nothing that the example gives it
def test_16_a_refusal_of_npps_is_the_operations_error(monkeypatch):
    example = imported("16")
    library = stand_in_for_npp(example, [], status=-8)
    monkeypatch.setattr(example, "load_filters", lambda: library)
    with pytest.raises(RuntimeError, match="nppiFilterBox_32f_C1R_Ctx returned -8"):
        example.Filters().box(ac.ones((9, 9)).sync(), 3).sync()


def test_17_conjugate_gradients_solve_a_system(example, run):
    half = np.random.default_rng(0).standard_normal((20, 20))
    matrix, b = half @ half.T + 20 * np.eye(20), np.arange(20.0)
    x, iterations, is_finished = run(example.solve, matrix, b)
    np.testing.assert_allclose(x, np.linalg.solve(matrix, b), rtol=1e-8, atol=1e-10)
    assert (is_finished, 1 < iterations <= 40) == (True, True)
    _, iterations, is_finished = run(example.solve, matrix, b, 0.0)  # which nothing reaches
    assert 1 < iterations <= 200
    assert is_finished or iterations == 200


def test_17_k_means_ends_where_numpys_does(example, run):
    random = np.random.default_rng(5)
    points = np.concatenate([random.normal(at, 0.6, (30, 2)) for at in ((0, 0), (3, 0), (0, 3))])
    centres, labels, count = points[[0, 1, 2]], np.full(len(points), -1), 0
    while True:
        count += 1
        nearest = ((points[:, None] - centres) ** 2).sum(2).argmin(1)
        is_same = np.array_equal(nearest, labels)
        labels = nearest
        centres = np.stack([points[labels == c].mean(0) if (labels == c).any() else centres[c] for c in range(3)])
        if is_same:
            break
    found, found_labels, iterations = run(example.clusters, points, points[[0, 1, 2]])
    np.testing.assert_allclose(found, centres, rtol=1e-12)
    assert found_labels.tolist() == labels.tolist()
    assert iterations == count > 2
    assert run(example.clusters, points, points[[0, 1, 2]], 1)[2] == 1


@pytest.mark.parametrize("n", [0, 1, 20])
def test_17_tokens_are_numpys(example, run, n):
    random = np.random.default_rng(2)
    recurrent, embedding, head = (random.standard_normal(shape) for shape in ((16, 16), (24, 16), (24, 16)))
    hidden, tokens = np.zeros(16), [5]
    for _ in range(n):
        hidden = np.tanh(embedding[tokens[-1]] + recurrent @ hidden)
        tokens.append(int((head @ hidden).argmax()))
    assert run(example.decode, recurrent, embedding, head, 5, n).tolist() == tokens
    assert n < 20 or len(set(tokens)) > 3


def stand_in_for_npp(example: types.ModuleType, contexts: list[Any], status: int = 0) -> Any:
    """Make a function of C's that does what NPP's does; each context that it was given comes into a list."""

    def box(source, source_step, to, to_step, size, mask, anchor, context):
        contexts.append(example.Context.from_buffer_copy(context))
        # NPP's work would be behind what is on the stream.
        assert driver.cuStreamSynchronize(context.stream) == (driver.CUresult.CUDA_SUCCESS,)
        for y in range(size.height):
            row = (ctypes.c_float * size.width).from_address(to + y * to_step)
            first = source + (y - anchor.y) * source_step - anchor.x * 4
            rows = [
                (ctypes.c_float * (size.width + mask.width - 1)).from_address(first + i * source_step)
                for i in range(mask.height)
            ]
            columns = np.float32(rows).sum(axis=0)
            row[:] = np.lib.stride_tricks.sliding_window_view(columns, mask.width).mean(axis=1) / mask.height
        return status

    made = ctypes.CFUNCTYPE(ctypes.c_int, *example.ARGUMENTS)(box)
    return types.SimpleNamespace(nppiFilterBox_32f_C1R_Ctx=made)


def stand_in_for_libraries(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Put modules in the place of nvmath's bindings, with the meaning that cuRAND and cuSPARSE have in what is used."""
    calls: dict[str, Any] = {"streams": [], "open": 0}
    objects: list[Any] = [None]

    def memory(address: int, count: int, dtype: Any) -> np.ndarray:
        size = count * np.dtype(dtype).itemsize
        return np.frombuffer((ctypes.c_char * size).from_address(address), dtype)

    def made(*what: Any) -> int:
        objects.append(what)
        calls["open"] += 1
        return len(objects) - 1

    def destroy(_: int) -> None:
        calls["open"] -= 1

    def handle(*_: Any) -> int:
        objects.append(None)
        return len(objects) - 1

    def set_stream(handle: int, stream: int) -> None:
        assert objects[handle] is None
        objects[handle] = stream
        calls["streams"].append(stream)

    def wait(handle: int) -> None:  # the libraries' work would be behind what is on the stream
        assert driver.cuStreamSynchronize(objects[handle]) == (driver.CUresult.CUDA_SUCCESS,)

    def generate_normal(generator: int, address: int, n: int, mean: float, deviation: float) -> None:
        wait(generator)
        memory(address, n, np.float32)[...] = np.random.default_rng(generator).normal(mean, deviation, n)

    def sp_mv(handle, operation, alpha, matrix, x, beta, y, kind, algorithm, space):
        wait(handle)
        assert (memory(alpha, 1, np.float32), memory(beta, 1, np.float32)) == (1, 0)
        (n, m, count, begins, columns, values, *_), (size_x, at_x, _), (size_y, at_y, _) = (
            objects[each] for each in (matrix, x, y)
        )
        assert (size_y, size_x) == (n, m)
        memory(space, 64, np.uint8)[...] = 0xFF
        begins, columns = memory(begins, n + 1, np.int32), memory(columns, count, np.int32)
        products = memory(values, count, np.float32) * memory(at_x, m, np.float32)[columns]
        memory(at_y, n, np.float32)[...] = [products[begins[i] : begins[i + 1]].sum() for i in range(n)]

    curand = types.SimpleNamespace(
        RngType=types.SimpleNamespace(PSEUDO_PHILOX4_32_10=161),
        create_generator=handle,
        set_pseudo_random_generator_seed=lambda generator, seed: None,
        set_stream=set_stream,
        generate_normal=generate_normal,
    )
    cusparse = types.SimpleNamespace(
        IndexType=types.SimpleNamespace(INDEX_32I=2),
        IndexBase=types.SimpleNamespace(ZERO=0),
        Operation=types.SimpleNamespace(NON_TRANSPOSE=0),
        SpMVAlg=types.SimpleNamespace(DEFAULT=0),
        create=handle,
        set_stream=set_stream,
        create_csr=made,
        create_dn_vec=made,
        destroy_sp_mat=destroy,
        destroy_dn_vec=destroy,
        sp_mv_buffer_size=lambda *product: 64,
        sp_mv=sp_mv,
    )
    package, bindings = types.ModuleType("nvmath"), types.ModuleType("nvmath.bindings")
    package.CudaDataType = types.SimpleNamespace(CUDA_R_32F=0)  # type: ignore[attr-defined]
    bindings.curand, bindings.cusparse = curand, cusparse  # type: ignore[attr-defined]
    for name, module in (("nvmath", package), ("nvmath.bindings", bindings)):
        monkeypatch.setitem(sys.modules, name, module)
    return calls
