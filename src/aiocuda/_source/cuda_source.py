"""Where the ``__global__`` functions are in CUDA C++ source, and what surrounds each.

Comments, strings, preprocessor lines and the kernels themselves are blanked in place before the
grammar sees the source, so offsets and line numbers always are the user's own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from tree_sitter import Node

from aiocuda._source.cuda_nodes import parse, scope_of, text_of
from aiocuda.errors import SignatureError


class TemplateParameter(NamedTuple):
    """A template parameter, and the syntax node of its default."""

    name: str  # empty where it has none
    default: Node | None
    is_pack: bool


class Preprocessing(NamedTuple):
    """The parts that the preprocessor may change. Nobody runs it here, so reading the source is not enough there.

    Attributes
    ----------
    macros
        Names that the source or the compiler's options define.
    branches
        Spans of the source that only some builds have.
    hides_types
        Whether types may be defined that the source does not show: by an included file, or by a macro.
    includes_files
        Whether files are included that are not CUDA's, the standard library's or aiocuda's own.
    writes_kernels
        Whether kernels may be defined that the source does not show.
    """

    macros: frozenset[str] = frozenset()
    branches: tuple[tuple[int, int], ...] = ()
    hides_types: bool = False
    includes_files: bool = False
    writes_kernels: bool = False

    def is_conditional(self, offset: int) -> bool:
        """Say whether only some builds have what stands here."""
        return any(start <= offset < end for start, end in self.branches)

    def macros_in(self, text: str, *but: str) -> list[str]:
        """List the macros that a text names, except some names."""
        return [word for word in re.findall(r"[A-Za-z_]\w*", text) if word in self.macros and word not in but]


class Declaration(NamedTuple):
    """A ``__global__`` function as declared: text, not yet types."""

    name: str  # qualified with its namespaces
    scope: tuple[str, ...]
    parameters: str
    template_parameters: tuple[TemplateParameter, ...]
    is_template: bool
    extern_c: bool
    launch_bounds: str
    line: int
    has_body: bool
    is_conditional: bool  # only some builds have it
    problem: str


class Declarations(NamedTuple):
    """The kernels found, and the tree of all that is not a kernel."""

    declarations: tuple[Declaration, ...]
    tree: Node
    # The places where the tree does not show what decides a struct's layout: alignments, conditionals; and from where
    # on members may be packed.
    obstacles: tuple[int, ...]
    packed_from: int | None
    alignments: dict[int, int]  # of the obstacles, those that ask for an alignment, in bytes
    preprocessing: Preprocessing


# The larger patterns are compiled, and kept, by `re` when the first source is read: importing aiocuda is quicker so.
# A number is matched first so that the quote in 1'000 opens no character literal.
_LITERAL: Final = (
    r"""(?sm)(?P<keep>\b\d[\w.]*(?:'\w+)*|"C(?:\+\+)?")"""
    r"""|//(?:\\\r?\n|[^\n])*|/\*.*?\*/|R"(?P<end>[^()\\\s]*)\(.*?\)(?P=end)\""""
    r"""|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'"""
)
_DIRECTIVE: Final = re.compile(r"^[ \t]*#[ \t]*(?P<word>\w*)(?P<rest>(?:\\\r?\n|[^\n])*)", re.MULTILINE)
_WORDS_WITHOUT_MEANING: Final = r"\b(?:__restrict__|__restrict|restrict|__grid_constant__|volatile|register)\b"
_ATTRIBUTE: Final = re.compile(r"\b(?:__attribute__|__align__|alignas|__declspec)\s*(?=\()|\[(?=\[)")
_ASKED_ALIGNMENT: Final = re.compile(
    r"(?:__align__|alignas|__declspec\s*\(\s*align|__attribute__\s*\(\s*\(\s*(?:__)?aligned(?:__)?)\s*\(\s*(\d+)\s*\)"
)
_PACKED: Final = re.compile(r"^[ \t]*#[ \t]*pragma[ \t]+pack\b", re.MULTILINE)
_LAUNCH_BOUNDS: Final = re.compile(r"\b__launch_bounds__\s*(?=\()")
_NAME_BEFORE: Final = re.compile(r"((?:\w+\s*::\s*)*[A-Za-z_]\w*)\s*$")
_AFTER_PARAMETERS: Final = re.compile(r"\s*(?:[{;]|->|\[\[|noexcept\b|requires\b|__\w+)")
_SPLICE: Final = re.compile(r"\\(\r?\n)([^\s\\]*)")
_MACRO: Final = re.compile(r"[ \t]*([A-Za-z_]\w*)")
_DEFINES_TYPES: Final = re.compile(r"\b(?:typedef|using|struct|class|enum|union|namespace)\b")
_INCLUDED: Final = re.compile(r"""[ \t]*(?:<([^>\n]+)>|"([^"\n]+)")""")
# Headers whose types are in the tables here: aiocuda's, CUDA's and the standard library's.
_LIBRARY_HEADER: Final = (
    r"(?:aiocuda|cuda|cub|thrust|nv|cooperative_groups)/.*|cuda\w*(?:\.h|\.hpp)?|cooperative_groups(?:\.h)?|cuComplex\.h"
    r"|curand\w*\.h|mma\.h|math_constants\.h|vector_\w+\.h|device_\w+\.h"
    r"|(?:stdint|stddef|stdbool|stdio|stdlib|math|float|limits|assert|string)\.h|[a-z_]+"
)
_CONDITIONALS: Final = frozenset({"if", "ifdef", "ifndef", "elif", "elifdef", "elifndef", "else", "endif"})
_CLOSING: Final = {"(": ")", "[": "]", "{": "}", "<": ">"}


def find_declarations(source: str, options: Sequence[str] = ()) -> Declarations:
    """Find every ``__global__`` function that the source itself declares.

    The compiler's options say which macros are defined beside those of the source. Explicit instantiations and
    specialisations are left out, for their parameters follow from the template; so are functions whose name a macro
    gives.

    Raises
    ------
    SignatureError
        A ``__global__`` function's declaration cannot be read.
    """
    read = _without_directives(without_literals(source), source)
    text, conditionals, alternatives = read.text, read.conditionals, read.alternatives
    preprocessing = _with_options(read.preprocessing, options)
    headers = list(_headers(text))
    # An #else that opens a brace for the second time would shift all that follows into it.
    unbalanced = [(a, b) for a, b in alternatives if text.count("{", a, b) != text.count("}", a, b)]
    rest = _blank(text, *unbalanced)
    bodies = [(h.start, _end_of_body(rest, h.end)) for h in headers if rest[h.keyword] == "_"]
    tree = parse(_without_attributes(_blank(rest, *bodies)))
    declarations = (_declaration(header, text, tree, conditionals, preprocessing) for header in headers)
    aligned = [match.start() for match in _ATTRIBUTE.finditer(text) if match[0] != "["]
    asked = {at: int(match[1]) for at in aligned if (match := _ASKED_ALIGNMENT.match(text, at))}
    packed = _PACKED.search(without_literals(source))
    found = tuple(d for d in declarations if d is not None)
    packed_from = packed.start() if packed is not None else None
    return Declarations(found, tree, (*aligned, *conditionals), packed_from, asked, preprocessing)


def split_list(text: str) -> list[str]:
    """Split a C++ list at its commas, and drop the words that say nothing about types."""
    text = re.sub(_WORDS_WITHOUT_MEANING, lambda m: " " * len(m[0]), _without_attributes(text))
    pieces: list[str] = []
    start = 0
    for symbol, offset, depth in _nesting(text):
        if symbol == "," and depth == 0:
            pieces.append(text[start:offset])
            start = offset + 1
    pieces.append(text[start:])
    cleaned = [" ".join(piece.split()) for piece in pieces]
    return [] if cleaned == [""] else cleaned


def _nesting(text: str, start: int = 0) -> Iterator[tuple[str, int, int]]:
    """Walk brackets and commas, with the depth after each; within (), [] and {} a < compares."""
    open_brackets: list[str] = []
    for match in re.compile(r"->|[][(){}<>,]").finditer(text, start):
        symbol = match[0]
        compares = symbol in "<>" and open_brackets and open_brackets[-1] != "<"
        if symbol == "->" or compares:
            continue
        if symbol in _CLOSING:
            open_brackets.append(symbol)
        elif symbol != "," and open_brackets:
            open_brackets.pop()
        yield symbol, match.start(), len(open_brackets)


def _blank(text: str, *spans: tuple[int, int]) -> str:
    """Blank these spans of the text; lines and offsets stay."""
    pieces: list[str] = []
    position = 0
    for start, end in sorted(spans):
        pieces.append(text[position:start])
        pieces.append(re.sub(r"[^\n]", " ", text[max(start, position) : end]))
        position = max(position, end)
    return "".join(pieces) + text[position:]


def without_literals(source: str) -> str:
    """Blank comments and strings; ASCII comes out, offsets stay, ``extern "C"`` survives."""

    def replaced(match: re.Match[str]) -> str:
        if match["keep"] is not None:
            return match[0]
        return re.sub(r"[^\n]", " ", match[0])

    return re.sub(r"[^\x00-\x7f]", "_", re.sub(_LITERAL, replaced, source))


def joined_lines(text: str) -> str:
    """Join lines that end in a backslash, as the compiler does; what is joined stands in the first of them.

    Offsets behind a joined word stay, and all lines keep their numbers.
    """
    while _SPLICE.search(text):
        text = _SPLICE.sub(lambda match: match[2] + " " + match[1], text)
    return text


class _Branch(NamedTuple):
    start: int
    is_excluded: bool = False  # #if 0
    is_alternative: bool = False  # what follows a branch that may be taken
    is_certain: bool = False  # all builds have it: a header's guard, the #else of #if 0


class _Directives(NamedTuple):
    text: str  # without them, and without #if 0
    conditionals: list[int]
    alternatives: list[tuple[int, int]]
    preprocessing: Preprocessing


def _without_directives(text: str, source: str) -> _Directives:
    """Blank preprocessor lines and ``#if 0`` branches; say what they do. Names of files are in the source alone."""
    conditionals: list[int] = []
    alternatives: list[tuple[int, int]] = []
    blank: list[tuple[int, int]] = []
    branches: list[_Branch] = []
    taken: list[tuple[int, int]] = []
    macros: set[str] = set()
    hides_types = writes_kernels = includes_files = False
    for match in _DIRECTIVE.finditer(text):
        word = match["word"]
        blank.append(match.span())
        if word == "define" and (named := _MACRO.match(match["rest"])):
            macros.add(named[1])
            hides_types |= _DEFINES_TYPES.search(match["rest"]) is not None
            writes_kernels |= "__global__" in match["rest"]
        elif word in ("include", "include_next"):
            name = _INCLUDED.match(source, match.start("rest"))
            includes_files |= name is None or not re.fullmatch(_LIBRARY_HEADER, name[1] or name[2])
        if word not in _CONDITIONALS:
            continue
        conditionals.append(match.start())
        if word.startswith("if"):
            is_excluded = word == "if" and match["rest"].strip() in ("0", "false")
            guard = word == "ifndef" and not taken and not branches and _is_guard(text, match)
            branches.append(_Branch(match.end(), is_excluded, is_certain=guard))
        elif branches:
            ended = branches.pop()
            if ended.is_excluded:
                blank.append((ended.start, match.start()))
            elif ended.is_alternative:
                alternatives.append((ended.start, match.start()))
            if not ended.is_certain or word != "endif":
                taken.append((ended.start, match.start()))
            if word != "endif":
                is_certain = ended.is_excluded and word == "else"
                branches.append(_Branch(match.end(), is_alternative=not ended.is_excluded, is_certain=is_certain))
    return _Directives(
        joined_lines(_blank(text, *blank)),
        conditionals,
        alternatives,
        Preprocessing(
            frozenset(macros),
            tuple(taken),
            hides_types=hides_types or includes_files,
            includes_files=includes_files,
            writes_kernels=writes_kernels or includes_files,
        ),
    )


def _is_guard(text: str, match: re.Match[str]) -> bool:
    """Say whether an ``#ifndef`` begins a file and the name is defined at once."""
    following = _DIRECTIVE.search(text, match.end())
    name = match["rest"].strip()
    return (
        not text[: match.start()].strip()
        and following is not None
        and following["word"] == "define"
        and following["rest"].strip() == name
    )


def _with_options(preprocessing: Preprocessing, options: Sequence[str]) -> Preprocessing:
    macros = set(preprocessing.macros)
    includes_files = False
    waiting = iter(options)
    for option in waiting:
        name, equals, value = option.strip().partition("=")
        if name in ("-D", "--define-macro"):
            defined = value if equals else next(waiting, "")
        elif name in ("-include", "--pre-include"):
            defined, includes_files = "", True
        else:
            defined = option.strip()[2:] if option.strip().startswith("-D") else ""
        if found := _MACRO.match(defined):
            macros.add(found[1])
    return preprocessing._replace(
        macros=frozenset(macros),
        hides_types=preprocessing.hides_types or includes_files,
        includes_files=preprocessing.includes_files or includes_files,
        writes_kernels=preprocessing.writes_kernels or includes_files,
    )


def _without_attributes(text: str) -> str:
    spans: list[tuple[int, int]] = []
    for match in _ATTRIBUTE.finditer(text):
        opening = match.start() if match[0] == "[" else match.end()
        closing = _closing(text, opening)
        if closing is not None:
            spans.append((match.start(), closing + 1))
    return _blank(text, *spans)


def _closing(text: str, opening: int) -> int | None:
    """Find the bracket that closes the one at `opening`; None where none does."""
    open_brackets: list[str] = []
    for match in re.compile(r"[][(){}]").finditer(text, opening):
        symbol = match[0]
        if symbol in _CLOSING:
            open_brackets.append(_CLOSING[symbol])
        elif not open_brackets or open_brackets.pop() != symbol:
            return None
        if not open_brackets:
            return match.start()
    return None


class _Header(NamedTuple):
    start: int  # of the whole declaration
    keyword: int  # of __global__
    end: int  # past the parameter list
    name: str
    parameters: str


def _headers(text: str) -> Iterator[_Header]:
    for match in re.finditer(r"\b__global__\b", text):
        start = max(text.rfind(symbol, 0, match.start()) for symbol in ";{}") + 1
        before = text[start : match.start()]
        if before.count("(") > before.count(")") or re.search(r"\b(?:typedef|using|friend)\b", before):
            continue  # a macro's argument, a function pointer type: no kernel is declared
        header = _header(text, start, match.start())
        if header is not None:
            yield header


def _header(text: str, start: int, keyword: int) -> _Header | None:
    """Read the declaration around ``__global__``; None where a macro writes the function's name.

    The parameter list is the first pair of parentheses after a name that a body, a semicolon or a
    trailing specifier follows: this passes over attributes and macros that look like calls.
    """
    position = keyword + len("__global__")
    macro_named = False
    while (match := re.compile(r"[(){};]").search(text, position)) and match[0] == "(":
        closing = _closing(text, match.start())
        if closing is None:
            break
        named = _NAME_BEFORE.search(text, position, match.start())
        if named is None:
            macro_named = True
        elif named[1] == "void":
            return None  # a pointer to a function
        elif not _is_attribute(named[1]) and _AFTER_PARAMETERS.match(text, closing + 1):
            if not re.search(r"\b(?:void|auto)\b", text[start : named.start(1)]):
                break
            return _Header(start, keyword, closing + 1, named[1], text[match.end() : closing])
        position = closing + 1
    if macro_named:
        return None
    raise SignatureError(
        "the declaration of a __global__ function cannot be read: expected 'void name(parameters)' "
        f"after __global__, found '{' '.join(text[keyword : keyword + 80].split())}'",
        _line(text, keyword),
    )


def _is_attribute(name: str) -> bool:
    return name == "alignas" or (name.startswith("__") and name.endswith("__"))


def _line(text: str, offset: int) -> int:
    return text.count("\n", 0, offset) + 1


def _end_of_body(text: str, position: int) -> int:
    """Step past the function's body; stay where its braces do not match."""
    match = re.compile(r"[{;]").search(text, position)
    if match is None:
        return position
    closing = _closing(text, match.start()) if match[0] == "{" else match.start()
    if closing is None or re.search(r"\b__global__\b", text[match.start() : closing]):
        return position
    return closing + 1


def _declaration(
    header: _Header, text: str, tree: Node, conditionals: list[int], preprocessing: Preprocessing
) -> Declaration | None:
    before = text[header.start : header.keyword]
    template = re.match(r"\s*template\b\s*(<?)\s*(>?)", before)
    if template is not None and (not template[1] or template[2]):
        return None  # an explicit instantiation or specialisation
    around = tree.descendant_for_byte_range(header.keyword, header.keyword)
    scope = scope_of(around) if around is not None else ()
    name = "".join(header.name.split()).removeprefix("::")
    inside = any(header.keyword < offset < header.end for offset in conditionals)
    after = re.compile(r"[{;]").search(text, header.end)
    bounds = _launch_bounds(text[header.start : after.start() if after else header.end])
    return Declaration(
        name="::".join((*scope, name)),
        scope=(*scope, *name.split("::")[:-1]),
        parameters=header.parameters,
        template_parameters=tuple(_template_parameters(before)) if template is not None else (),
        is_template=template is not None,
        extern_c=re.search(r'\bextern\s*"C"', before) is not None or in_extern_c(around),
        launch_bounds=bounds,
        line=_line(text, header.keyword),
        has_body=after is not None and after[0] == "{",
        is_conditional=preprocessing.is_conditional(header.keyword),
        problem="preprocessor conditionals stand in its parameter list" if inside else "",
    )


def in_extern_c(node: Node | None) -> bool:
    """Say whether a node stands in an ``extern "C"``."""
    while node is not None:
        if node.type == "linkage_specification":
            return text_of(node.child_by_field_name("value")) == '"C"'
        node = node.parent
    return False


def _launch_bounds(text: str) -> str:
    match = _LAUNCH_BOUNDS.search(text)
    closing = _closing(text, match.end()) if match is not None else None
    if match is None or closing is None:
        return ""
    bounds = split_list(text[match.end() + 1 : closing])
    return bounds[0] if bounds else ""


def _template_parameters(before: str) -> Iterator[TemplateParameter]:
    opening = before.index("<")
    closing = next((at for _, at, depth in _nesting(before, opening) if depth == 0), len(before))
    for item in split_list(before[opening + 1 : closing]):
        declared, _, default = item.partition("=")
        named = re.search(r"[\s*&.](\w+)\s*$", declared)
        yield TemplateParameter(
            name=named[1] if named is not None else "",
            default=template_argument(default.strip()) if default else None,
            is_pack="..." in declared,
        )


def template_argument(text: str) -> Node | None:
    """Parse text as it would be between the angle brackets of a template; None where nothing is there."""
    waiting = [parse(f"using argument = template_argument<{text}>;")]
    while waiting:
        node = waiting.pop()
        if node.type == "template_argument_list":
            return node.named_children[0] if node.named_children else None
        waiting.extend(node.named_children)
    return None
