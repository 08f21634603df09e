"""Whether an image has variables of its own, which two modules must not share.

Always true: the answer is no only where the compiled code shows that there are none. If that cannot be read, as in PTX
and fat binaries, the answer is yes.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from aiocuda._driver.compiler import Image

__all__ = ["has_variables"]

_CUDA_MACHINE: Final = 190
_SYMBOL_TABLE, _OBJECT, _LOCAL, _WRITABLE = (
    2,
    1,
    0,
    1,
)  # SHT_SYMTAB, STT_OBJECT, STB_LOCAL, SHF_WRITE (the ELF standard)
# The sections in which NVIDIA's compilers put `__device__`, `__managed__` and `__constant__` variables, and static ones
# of functions.
_CUDA_SECTIONS: Final = (".nv.global", ".nv.managed", ".nv.constant3", ".data", ".bss")
# The symbols that each image of the emulated compiler has for itself begin so.
_EMULATED: Final = (
    "aiocuda_addresses_",
    "aiocuda_static_shared_",
    "_ZL12aiocuda_unit",
    "_ZL18aiocuda_unit_entry",
    "_ZL15aiocuda_kernels",
    "_ZN7aiocuda8emulator",
)


class _Section(NamedTuple):
    """A section header of ELF64, in the standard's order."""

    name: int
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry_size: int


def has_variables(image: Image) -> bool:
    """Say whether an image has variables, or may have some.

    Parameters
    ----------
    image
        Compiled code, of either driver's compiler.
    """
    if image.kind != "cubin":
        return True
    try:
        return _elf_has_variables(image.code)
    except (struct.error, IndexError, ValueError):
        return True


def _elf_has_variables(code: bytes) -> bool:
    machine = struct.unpack_from("<H", code, 18)[0]
    table_at = struct.unpack_from("<Q", code, 40)[0]
    entry_size, count, names_index = struct.unpack_from("<HHH", code, 58)
    sections = [_Section(*struct.unpack_from("<IIQQQQIIQQ", code, table_at + i * entry_size)) for i in range(count)]
    if machine == _CUDA_MACHINE:
        names = [_text(code, sections[names_index], each.name) for each in sections]
        return not names or any(
            each.size and name.startswith(_CUDA_SECTIONS) for each, name in zip(sections, names, strict=True)
        )
    tables = [each for each in sections if each.type == _SYMBOL_TABLE]
    return not tables or any(_is_variable(code, sections, table, at) for table in tables for at in _entries(table))


def _entries(table: _Section) -> range:
    return range(table.offset, table.offset + table.size, table.entry_size)


def _is_variable(code: bytes, sections: list[_Section], table: _Section, at: int) -> bool:
    """Say whether a symbol of the emulated compiler's is one of the program's variables."""
    name_at, info, _, index, _, size = struct.unpack_from("<IBBHQQ", code, at)
    if info & 0xF != _OBJECT or not size or not 0 < index < len(sections):
        return False
    is_own = info >> 4 == _LOCAL and not sections[index].flags & _WRITABLE  # such as a table of the program's
    name = _text(code, sections[table.link], name_at)
    return not (is_own or name.startswith(_EMULATED))


def _text(code: bytes, strings: _Section, at: int) -> str:
    start = strings.offset + at
    return code[start : code.index(b"\0", start)].decode()
