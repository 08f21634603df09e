"""Modules: CUDA C++ or compiled code, from which kernels and variables come.

Always true: making a module touches no device; its code is compiled and loaded once for each device, at the first
launch there or when asked. All kernels and variables of a module that has variables are of one image on a device.
"""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, Final, Literal, cast

import numpy as np

from aiocuda import _driver, _kernels, _native, _source
from aiocuda._arrays.array import DeviceArray
from aiocuda._devices.device import DeviceLike, as_ordinal
from aiocuda._driver import runtime
from aiocuda._engine import faults
from aiocuda._kernels.declarations import find_kernel, find_variable, items_of
from aiocuda._kernels.kernel import Kernel, make_kernel
from aiocuda._kernels.module_image import ModuleImage
from aiocuda._kernels.struct_values import to_layouts
from aiocuda._later import aiocuda
from aiocuda._values import dtypes, given
from aiocuda._values.dtypes import DTypeLike
from aiocuda.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    CompilationError,
    SignatureError,
)

__all__ = ["Module"]

# How the contents begin: ELF, and the magic number of a fat binary (little-endian).
_MAGIC: Final[dict[_kernels.BinaryKind, bytes]] = {"cubin": b"\x7fELF", "fatbin": b"\x50\xed\x55\xba"}


class Module:
    """CUDA C++ or compiled code, from which kernels and variables come.

    Made by `from_source`, `from_file`, `from_ptx`, `from_cubin` and `from_fatbin`. It is compiled and loaded on a
    device at the first launch of one of its kernels there, by `compile`, and where a variable of it is asked for.
    Compiled code is kept on disk (in ``AIOCUDA_CACHE_DIR``), and used again for the same sources, options, contents of
    included files, compiler and architecture. A module lives as long as its kernels and the arrays of its variables.

    Attributes
    ----------
    name
        What messages and the compiler's log call it.
    options
        The compiler's options as NVRTC takes them.
    """

    def __init__(self, code: tuple[_driver.Source, ...] | _driver.Image, options: tuple[str, ...]) -> None:
        self.name = code.name if isinstance(code, _driver.Image) else code[0].name
        self.options = options
        self._code = code
        self._lock = threading.Lock()
        self._images = [ModuleImage(code, options)]
        self._has_variables = not isinstance(code, _driver.Image) and any(
            _source.parse_variables(each.text, options) for each in code
        )

    @classmethod
    def from_source(
        cls,
        source: str | Mapping[str, str],
        *,
        name: str | None = None,
        options: aiocuda.CompileOptions | Sequence[str] = (),
    ) -> Module:
        """Make a module of CUDA C++ source.

        Parameters
        ----------
        source
            CUDA C++; or several sources by their names, such as ``{"a.cu": ..., "b.cu": ...}``, that use one another's
            functions and variables (declared ``extern``). Several are linked on NVIDIA's driver, with optimisation of
            the whole; the emulated driver compiles them together, so macros and static names of different sources meet.
        name
            What the compiler's log calls the source; None takes ``module.cu``. Several sources have their own names.
        options
            `CompileOptions`, or NVRTC's own options as strings; both drivers take the same.

        Returns
        -------
        Module
            Its kernels are had by `Module.kernel`. Nothing is compiled before one of them is needed.

        Raises
        ------
        ArgumentTypeError
            `source` is neither, or `options` are none.
        ArgumentValueError
            There is no source, the declaration of a kernel cannot be read, or an option makes no sense.
        """
        if name is not None:
            given.text(name, "name=", "a source's name or None")
            if not isinstance(source, str):
                raise ArgumentTypeError(f"name={name!r} was given, and several sources, which have names of their own")
        sources: object = {name or "module.cu": source} if isinstance(source, str) else source
        if not isinstance(sources, Mapping):
            raise ArgumentTypeError(
                f"a module's source is a str of CUDA C++, or a mapping of names to such, not {type(source).__name__}"
            )
        if not sources:
            raise ArgumentValueError("from_source was given no source")
        for key, text in sources.items():
            given.text(key, "a source's name")
            _source.parse_kernels(given.text(text, f"a module's source ({key!r})", "a str of CUDA C++"))
        return cls(tuple(_driver.Source(key, text) for key, text in sources.items()), _kernels.as_arguments(options))

    @classmethod
    def from_file(cls, *paths: str | PathLike[str], options: aiocuda.CompileOptions | Sequence[str] = ()) -> Module:
        """Make a module of a file: CUDA C++ (``.cu``), or compiled code (``.ptx``, ``.cubin``, ``.fatbin``).

        Parameters
        ----------
        *paths
            One file; or several of CUDA C++, which are linked as by `from_source`.
        options
            For CUDA C++, as for `from_source`. Quoted includes are found beside the file.

        Returns
        -------
        Module
            Its kernels are had by `Module.kernel`. Nothing is compiled before one of them is needed.

        Raises
        ------
        ArgumentValueError
            There is no such file, its suffix says neither, or it is no text; and as for `from_source`.
        """
        files = _kernels.files_of(paths)
        kind = _kernels.BINARY_SUFFIXES.get(files[0].suffix)
        if len(files) == 1 and kind is not None:
            return cls._of_binary(kind, files[0].read_bytes(), str(files[0]), options)
        if any(file.suffix in _kernels.BINARY_SUFFIXES for file in files):
            raise ArgumentValueError("from_file links files of CUDA C++ alone; make a module of each compiled file")
        directories = dict.fromkeys(str(file.absolute().parent) for file in files)
        arguments = (*(f"--include-path={each}" for each in directories), *_kernels.as_arguments(options))
        try:
            sources = {str(file): file.read_text(encoding="utf-8") for file in files}
        except (OSError, UnicodeDecodeError) as error:
            raise ArgumentValueError(f"from_file: a file cannot be read as UTF-8 text: {error}") from error
        return cls.from_source(sources, options=arguments)

    @classmethod
    def from_ptx(cls, code: bytes | str, *, name: str = "module.ptx") -> Module:
        """Make a module of PTX, which the driver compiles for the device. On NVIDIA's driver alone.

        Parameters
        ----------
        code
            The PTX's text.
        name
            What messages call it.

        Returns
        -------
        Module
            Its kernels are had by `Module.kernel`, and loaded on a device at their first launch there.

        Raises
        ------
        ArgumentValueError
            It is no PTX, or the driver is the emulated one, which runs CUDA C++.
        ArgumentTypeError
            It is neither bytes nor str.
        """
        if isinstance(code, str):
            code = given.text(code, "PTX", "bytes or a str").encode()
        return cls._of_binary("ptx", code, name, ())

    @classmethod
    def from_cubin(cls, code: bytes, *, name: str = "module.cubin") -> Module:
        """Make a module of a cubin: code for one architecture. On NVIDIA's driver alone.

        Parameters
        ----------
        code
            The file's contents.
        name
            What messages call it.

        Returns
        -------
        Module
            Its kernels are had by `Module.kernel`, and loaded on a device at their first launch there.

        Raises
        ------
        ArgumentValueError
            It is no cubin, or the driver is the emulated one, which runs CUDA C++.
        ArgumentTypeError
            It is not bytes.
        """
        return cls._of_binary("cubin", code, name, ())

    @classmethod
    def from_fatbin(cls, code: bytes, *, name: str = "module.fatbin") -> Module:
        """Make a module of a fat binary: code for several architectures. On NVIDIA's driver alone.

        Parameters
        ----------
        code
            The file's contents.
        name
            What messages call it.

        Returns
        -------
        Module
            Its kernels are had by `Module.kernel`, and loaded on a device at their first launch there.

        Raises
        ------
        ArgumentValueError
            It is no fat binary, or the driver is the emulated one, which runs CUDA C++.
        ArgumentTypeError
            It is not bytes.
        """
        return cls._of_binary("fatbin", code, name, ())

    @classmethod
    def _of_binary(
        cls, kind: _kernels.BinaryKind, code: bytes, name: str, options: aiocuda.CompileOptions | Sequence[str]
    ) -> Module:
        if not isinstance(code, (bytes, bytearray, memoryview)):
            raise ArgumentTypeError(f"{kind} code is bytes, not {type(code).__name__}")
        given.text(name, "name=", "what messages call the code, a str")
        code = bytes(code)
        if _kernels.as_arguments(options):
            raise ArgumentValueError(f"{name}: options are for CUDA C++, and this is compiled already")
        is_right = b".target" in code if kind == "ptx" else code.startswith(_MAGIC[kind])
        if not is_right:
            raise ArgumentValueError(f"{name} is no {kind}: it begins with {code[:16]!r}")
        if runtime.driver_info().is_emulated:
            raise ArgumentValueError(
                f"{name}: the emulated driver runs CUDA C++ and no {kind}: pass its source to Module.from_source, "
                "which both drivers compile"
            )
        return cls(_driver.Image(name, kind, code, is_given=True), ())

    def kernel(
        self,
        name: str | None = None,
        *,
        signature: str | None = None,
        structures: Mapping[str, Any] | None = None,
    ) -> Kernel:
        """Give a kernel of the module.

        Parameters
        ----------
        name
            Which one, where there are several; with template arguments where it is a template
            (``"scale<float, 4>"``). Of compiled code, the kernel's symbol, or its plain name where that is one kernel's
            alone.
        signature
            The parameters spelled out, such as ``"const float* x, float* y, unsigned n"``. Compiled code needs it; of
            source, it is needed where the parameters cannot be read (types of headers, macros).
        structures
            How structs lie that the source does not show: a NumPy dtype (made with ``align=True``) or a
            ctypes.Structure for each name, such as ``{"Point": Point}``.

        Returns
        -------
        Kernel
            As `aiocuda.kernel` gives it.

        Raises
        ------
        ArgumentValueError
            There is no such kernel, with a list of those that there are; its parameters cannot be known without
            ``signature=``; or it is an instance of a template that was not asked for before a module with variables was
            compiled, which would need another copy of them.
        """
        if name is not None:
            given.text(name, "name=", "a kernel's name or None")
        if signature is not None:
            given.text(signature, "signature=", "a str with the parameters spelled out, or None", may_be_empty=True)
        if isinstance(self._code, _driver.Image):
            return self._compiled_kernel(name, signature, to_layouts(structures))
        layouts = to_layouts(structures)
        found, index = find_kernel(self._code, self.options, name, signature, layouts)
        text = self._code[index].text
        image = self._image_with(found if found.is_open else found.require_known(), index)
        ask = functools.partial(self._settle, found, index, layouts) if found.is_open else None
        return make_kernel(self, image, text, found, ask)

    def _settle(
        self, declared: _source.KernelSignature, index: int, structures: Mapping[str, np.dtype[Any]], ordinal: int
    ) -> _source.KernelSignature:
        """Ask the compiler what a kernel's parameters are, where the source does not say it."""
        names = _source.names_in(self._sources()[index].text, self.options)
        try:
            with faults.raised_as(f"asking the compiler for the types of kernel {declared.name}", ordinal):
                return _source.questions.settle(
                    declared, names, structures, functools.partial(self._ask, index, ordinal)
                )
        except SignatureError as error:
            if not isinstance(error.__cause__, CompilationError):
                raise
            log = error.message
        unknown = [each for each in declared.parameters if each.kind == "unknown"]
        why = "".join(f"\n  parameter '{each.name}': {each.reason}" for each in unknown) or f" {declared.problem}"
        raise SignatureError(
            f"kernel '{declared.name}': the source does not say its parameters:{why}\nand the compiler, which was "
            f"asked, does not either: {log}; {_source.PASS_SIGNATURE}",
            declared.line,
        )

    def _ask(self, index: int, ordinal: int, asked: str) -> str:
        """Give the demangled name that answers a question; a SignatureError is that of the question alone."""
        try:
            mangled = _driver.lowered_name(
                *(self._sources(), index, self.options, ordinal),
                *(lambda source: _source.questions.with_question(source, asked), _source.questions.EXPRESSION),
            )
        except CompilationError as error:
            first = next((line for line in error.log.splitlines() if "error" in line), "")
            if not first.startswith((_source.questions.NAME, "__nv_name_map")):
                raise CompilationError(error.source_name, _source.questions.without_question(error.log)) from None
            raise SignatureError(first.partition("error:")[2].strip()) from error
        return _native.demangled(mangled)

    def compile(self, device: DeviceLike | None = None) -> None:
        """Compile for a device and load there, if that has not been done. Blocks; the result is kept on disk.

        Parameters
        ----------
        device
            The device; None takes the one in force.

        Raises
        ------
        CompilationError
            It does not compile; the log has the source's own line numbers.
        """
        ordinal = as_ordinal(device)
        with faults.raised_as(f"loading {self.name} on device {ordinal}", ordinal):
            for image in tuple(self._images):
                image.load(ordinal)

    def constant(
        self,
        name: str,
        device: DeviceLike | None = None,
        *,
        dtype: DTypeLike | None = None,
        shape: int | Sequence[int] | None = None,
    ) -> DeviceArray:
        """Give a ``__constant__`` variable as an array: `copy` to it to set it.

        Parameters
        ----------
        name
            Of the variable, with its namespaces where the name alone is not enough.
        device
            Each device has a copy of its own; None takes that of the device in force.
        dtype, shape
            Of the array; None takes them from the source, or from the compiler where a macro or an alias decides. If
            those do not say it (a header's class; compiled code says nothing), it must be given, except for a shape of
            one axis.

        Returns
        -------
        DeviceArray
            Over the variable's own memory; each call gives a new one. From the first on, launches of the module's
            kernels on the device are ordered with what uses it, as if the variable were an argument that they read.
            *Stream*: none. *Blocks*: while the module is compiled and loaded, if it is not. The module stays loaded as
            long as the array is used. Graphs that were made before the first call are not ordered with it.

        Raises
        ------
        ArgumentValueError
            There is no such variable, with a list of those that there are; it is a ``__device__`` variable, which
            `variable` gives; its dtype or shape is not known; or they do not fit its size.
        CompilationError
            The module does not compile.
        """
        return self._variable("constant", name, device, dtype, shape)

    def variable(
        self,
        name: str,
        device: DeviceLike | None = None,
        *,
        dtype: DTypeLike | None = None,
        shape: int | Sequence[int] | None = None,
    ) -> DeviceArray:
        """Give a ``__device__`` variable as an array.

        From the first call on, launches of the module's kernels on the device run one after another, for each may write
        the variable.

        Parameters
        ----------
        name, device, dtype, shape
            As for `constant`.

        Returns
        -------
        DeviceArray
            As `constant` gives it, except that launches may write to it.

        Raises
        ------
        ArgumentValueError, CompilationError
            As for `constant`.
        """
        return self._variable("variable", name, device, dtype, shape)

    def _variable(
        self,
        kind: Literal["constant", "variable"],
        name: str,
        device: DeviceLike | None,
        dtype: DTypeLike | None,
        shape: int | Sequence[int] | None,
    ) -> DeviceArray:
        given.text(name, "name=", "a variable's name")
        found = None
        if not isinstance(self._code, _driver.Image):
            found = find_variable(*(self.name, self._code, self.options, kind, name), is_dtype_given=dtype is not None)
        with self._lock:
            if len(self._images) > 1:
                raise ArgumentValueError(
                    f"'{name}' is in each of the {len(self._images)} pieces that {self.name} was compiled in; ask for "
                    "all kernels of templates before the first of them is launched"
                )
            self._has_variables = True
        ordinal = as_ordinal(device)
        item, extents = items_of(self._told(found, ordinal) if found and dtype is None else found, dtype, shape)
        image = self._images[0]
        with faults.raised_as(f"looking for variable {name} of {self.name} on device {ordinal}", ordinal):
            loaded = image.load(ordinal)
            address, size_bytes = loaded.variable(found.symbol if found is not None else name)
        if extents is None:
            extents = (size_bytes // item.itemsize,)
        if item.itemsize * math.prod(extents) != size_bytes:
            raise ArgumentValueError(
                f"'{name}' of {self.name} has {size_bytes} bytes, and {item}{list(extents)} has "
                f"{item.itemsize * math.prod(extents)}; give its dtype= and shape="
            )
        array = _native.variable_array(
            *(DeviceArray, image.memory, ordinal, address, size_bytes),
            *(kind == "constant", extents, dtypes.code_of(item), loaded),
        )
        return cast("DeviceArray", array)

    def _told(self, variable: _source.Variable, ordinal: int) -> _source.Variable:
        """Ask the compiler for a variable's type, where the source does not say it."""
        if not isinstance(variable.item, str) and variable.extents is not None:
            return variable
        sources = self._sources()
        index = next(
            i for i, each in enumerate(sources) if variable in _source.parse_variables(each.text, self.options)
        )
        names = _source.names_in(sources[index].text, self.options)
        try:
            with faults.raised_as(f"asking the compiler for the type of {variable.name}", ordinal):
                item, extents = _source.questions.settle_variable(
                    variable.name, names, functools.partial(self._ask, index, ordinal)
                )
        except SignatureError:  # of another scope, such as a template's: the reason that the source gave stands
            return variable
        return variable._replace(item=item, extents=extents)

    def _compiled_kernel(
        self, name: str | None, signature: str | None, structures: Mapping[str, np.dtype[Any]]
    ) -> Kernel:
        if name is None:
            raise ArgumentValueError(f"{self.name} is compiled code: say which kernel by its name")
        if signature is None:
            raise ArgumentValueError(
                f"kernel '{name}' of {self.name}: compiled code does not say what its parameters are; "
                'pass signature= with them spelled out, such as signature="const float* x, float* y, int n"'
            )
        found = _source.parse_signature(signature, name=name, structures=structures)
        return make_kernel(self, self._images[0], None, found)

    def _image_with(self, signature: _source.KernelSignature, index: int) -> ModuleImage:
        """Give the image that holds a kernel. An instance of a template must be asked for before that is compiled."""
        if not signature.name_expression_needed:
            return self._images[0]
        with self._lock:
            for image in self._images:
                if image.take(index, signature.name):
                    return image
            if self._has_variables:
                raise ArgumentValueError(
                    f"kernel '{signature.name}' was asked for after {self.name} was compiled without it, and what was "
                    "compiled has the module's variables: ask for all kernels before the first of them is launched"
                )
            self._images.append(ModuleImage(self._code, self.options))
            self._images[-1].take(index, signature.name)
            return self._images[-1]

    def _sources(self) -> tuple[_driver.Source, ...]:
        assert not isinstance(self._code, _driver.Image)
        return self._code

    def __repr__(self) -> str:
        if isinstance(self._code, _driver.Image):
            return f"<Module {self.name} of {self._code.kind}>"
        return f"<Module {', '.join(source.name for source in self._code)}>"
