"""Draw the pictures of the first pages: `python docs/drawings/draw.py` writes the SVG files beside this one.

Always true: a picture is a card with a background of its own, so it can be read on light and on dark pages; nothing is
wider than 400 units, and no text smaller than 13, so it can be read on a telephone.
"""

from __future__ import annotations

from html import escape
from pathlib import Path

WIDTH = 400
FOLDER = Path(__file__).parent

STYLE = """
text { font: 14px system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; fill: #1f2933 }
.small { font-size: 13px }
.code { white-space: pre; font: 13px ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace }
.bold { font-weight: 600 }
.middle { text-anchor: middle }
.quiet { fill: #5b6672 }
.card { fill: #f7f8fa; stroke: #d5dae1 }
.box { fill: #ffffff; stroke: #7b8794; stroke-width: 1.2 }
.host { fill: #dcebfb; stroke: #3b7dc4; stroke-width: 1.2 }
.device { fill: #d8f1df; stroke: #2f8f56; stroke-width: 1.2 }
.other { fill: #fdeccf; stroke: #b7791f; stroke-width: 1.2 }
.none { fill: #fbdcdc; stroke: #c53030; stroke-width: 1.2; stroke-dasharray: 4 3 }
.line { stroke: #52606d; stroke-width: 1.6; fill: none }
.dashed { stroke-dasharray: 4 3 }
.head { fill: #52606d }
@media (prefers-color-scheme: dark) {
  text { fill: #e4e8ee }
  .quiet { fill: #a3afbd }
  .card { fill: #1d2229; stroke: #39424e }
  .box { fill: #2a313b; stroke: #8a97a6 }
  .host { fill: #1f3a57; stroke: #6aa9e9 }
  .device { fill: #1d4430; stroke: #5fc98a }
  .other { fill: #4d3a17; stroke: #e0a94a }
  .none { fill: #4f2527; stroke: #f08a8a }
  .line { stroke: #a3afbd }
  .head { fill: #a3afbd }
}
"""


class Drawing:
    """An SVG in the making: its parts, in order."""

    def __init__(self, height: int, title: str) -> None:
        self.height, self.title = height, title
        self.parts: list[str] = []

    def box(self, x: float, y: float, width: float, height: float, kind: str = "box", text: str = "") -> None:
        """Add a rectangle, with a text in its middle."""
        self.parts.append(f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}" rx="4"/>')
        if text:
            self.text(x + width / 2, y + height / 2 + 4.5, text, "small middle")

    def text(self, x: float, y: float, text: str, kind: str = "") -> None:
        """Add a line of text, whose baseline is `y`."""
        self.parts.append(f'<text class="{kind}" x="{x}" y="{y}">{escape(text)}</text>')

    def arrow(self, x: float, y: float, to_x: float, to_y: float, kind: str = "") -> None:
        """Add a straight arrow."""
        self.parts.append(f'<path class="line {kind}" marker-end="url(#head)" d="M{x} {y} L{to_x} {to_y}"/>')

    def write(self, name: str) -> None:
        """Write the file."""
        inside = "\n".join(self.parts)
        (FOLDER / f"{name}.svg").write_text(
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {self.height}" '
            f'width="{WIDTH * 1.2:g}" height="{self.height * 1.2:g}" role="img">\n'
            f"<title>{escape(self.title)}</title>\n<style>{STYLE}</style>\n"
            '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
            'orient="auto">'
            '<path class="head" d="M0 0 L8 4 L0 8 z"/></marker></defs>\n'
            f'<rect class="card" x="0.5" y="0.5" width="{WIDTH - 1}" height="{self.height - 1}" rx="8"/>\n'
            f"{inside}\n</svg>\n",
            encoding="utf-8",
        )


def awaiting() -> None:
    """Draw a task that awaits the device."""
    drawing = Drawing(214, "A task awaits the device, and the event loop runs other tasks meanwhile")
    drawing.text(14, 26, "the event loop", "bold")
    drawing.box(14, 36, 92, 30, "host", "your task")
    drawing.box(110, 36, 76, 30, "box", "task B")
    drawing.box(190, 36, 86, 30, "box", "task C")
    drawing.box(296, 36, 90, 30, "host", "your task")
    drawing.text(14, 204, "time", "small quiet")
    drawing.arrow(46, 199, 386, 199)
    drawing.text(14, 176, "the device", "bold")
    drawing.box(60, 126, 52, 30, "device", "copy")
    drawing.box(115, 126, 104, 30, "device", "kernel")
    drawing.box(222, 126, 62, 30, "device", "copy")
    drawing.arrow(80, 66, 80, 124)
    drawing.text(88, 92, "await", "code")
    drawing.arrow(284, 126, 312, 68)
    drawing.text(306, 112, "the result", "small")
    drawing.write("await")


def device() -> None:
    """Draw the host and the device."""
    drawing = Drawing(246, "The host and the device, each with a memory of its own, and copies between them")
    for x, kind, name, cores in ((14, "host", "host (CPU)", 4), (250, "device", "device (GPU)", 24)):
        drawing.box(x, 14, 136, 218, kind)
        drawing.text(x + 68, 36, name, "bold middle")
        across = 2 if cores == 4 else 6
        size = 28 if cores == 4 else 17
        left = x + 68 - across * (size + 3) / 2
        for at in range(cores):
            drawing.box(left + at % across * (size + 3), 48 + at // across * (size + 3), size, size)
        drawing.text(x + 68, 147, "a few fast cores" if cores == 4 else "thousands of cores", "small middle")
        drawing.box(x + 10, 160, 116, 60, "box")
        drawing.text(x + 68, 180, "memory", "small middle")
    drawing.text(82, 206, "NumPy array", "small middle")
    drawing.text(318, 206, "DeviceArray", "small middle")
    drawing.arrow(142, 178, 258, 178)
    drawing.text(200, 170, "to_device", "code middle")
    drawing.arrow(258, 204, 142, 204)
    drawing.text(200, 222, "to_host", "code middle")
    drawing.write("device")


def kernel() -> None:
    """Draw one kernel and its threads."""
    drawing = Drawing(230, "One kernel, executed by many threads, each with an index of its own")
    drawing.box(60, 14, 280, 34, "other")
    drawing.text(200, 36, "y[i] = 2 * x[i];", "code middle")
    for at in range(6):
        x = 16 + at * 62.4
        middle = x + 28
        drawing.arrow(100 + at * 40, 48, middle, 76)
        drawing.box(x, 78, 56, 44, "device")
        drawing.text(middle, 96, "thread", "small middle")
        drawing.text(middle, 114, f"i = {at}", "code middle")
        drawing.arrow(middle, 122, middle, 150)
        drawing.box(x, 152, 56, 28, "box", f"y[{at}]")
    drawing.text(200, 210, "All threads run the same code, side by side.", "small middle")
    drawing.write("kernel")


def threads_of(drawing: Drawing, y: float, items: int | None) -> None:
    """Draw two blocks of four threads; from `items` on, threads have no item."""
    for block in range(2):
        left = 12 + block * 190
        drawing.box(left, y, 186, 84, "box")
        drawing.text(left + 93, y + 20, f"block {block}", "bold middle")
        for thread in range(4):
            x = left + 7 + thread * 44
            has = items is None or block * 4 + thread < items
            drawing.box(x, y + 30, 40, 44, "device" if has else "none", str(thread))


def block() -> None:
    """Draw a grid of blocks."""
    drawing = Drawing(152, "A grid of two blocks, of four threads each")
    drawing.text(200, 26, "the grid of a launch: gridDim.x is 2", "middle")
    threads_of(drawing, 38, None)
    drawing.text(200, 142, "blockDim.x is 4: a block has four threads", "middle")
    drawing.write("block")


def index() -> None:
    """Draw the index of a thread."""
    drawing = Drawing(246, "The index of a thread: its block times the threads of a block, and its place in the block")
    drawing.text(12, 26, "blockIdx.x", "code")
    drawing.text(12, 138, "threadIdx.x", "code")
    for number in range(8):
        block_, thread = divmod(number, 4)
        x = 12 + number * 47.4
        chosen = "other" if number == 6 else "device"
        if thread == 0:
            drawing.box(x, 36, 186, 30, "box", f"block {block_}")
        drawing.box(x, 82, 42, 36, chosen, str(thread))
        drawing.box(x, 152, 42, 30, "other" if number == 6 else "box", f"i = {number}")
    drawing.arrow(317, 118, 317, 150)
    drawing.text(200, 208, "i = blockIdx.x * blockDim.x + threadIdx.x", "code middle")
    drawing.text(200, 230, "6 =     1      *     4      +      2     ", "code middle")
    drawing.write("index")


def guard() -> None:
    """Draw the threads that have no item."""
    drawing = Drawing(218, "Eight threads for an array of six items: the last two have none")
    threads_of(drawing, 14, 6)
    for number in range(8):
        block_, thread = divmod(number, 4)
        x = 12 + block_ * 190 + 7 + thread * 44
        drawing.arrow(x + 20, 88, x + 20, 124, "" if number < 6 else "dashed")
        if number < 6:
            drawing.box(x, 126, 40, 30, "box", f"y[{number}]")
    drawing.box(297, 126, 84, 30, "none", "not ours")
    drawing.text(12, 182, "n is 6. Threads 6 and 7 exist all the same,", "small")
    drawing.text(12, 201, "and if (i < n) keeps them from touching memory.", "small")
    drawing.write("guard")


def stream() -> None:
    """Draw two streams, of which one waits for the other."""
    drawing = Drawing(206, "Two streams: each runs its work in order, and one waits for the other")
    drawing.text(14, 28, "stream 0", "bold")
    drawing.box(14, 38, 92, 32, "device", "copy x")
    drawing.box(110, 38, 92, 32, "device", "kernel A")
    drawing.box(294, 38, 92, 32, "other", "kernel C")
    drawing.text(14, 112, "stream 1", "bold")
    drawing.box(14, 122, 110, 32, "device", "copy z")
    drawing.box(128, 122, 128, 32, "device", "kernel B")
    drawing.arrow(256, 132, 312, 72)
    drawing.text(292, 112, "C waits for B", "small")
    drawing.text(14, 190, "time", "small quiet")
    drawing.arrow(46, 185, 386, 185)
    drawing.write("stream")


def page_locked() -> None:
    """Draw the two ways of memory to the device."""
    drawing = Drawing(226, "Ordinary memory goes through page-locked memory on its way to the device")
    drawing.text(14, 26, "ordinary memory (NumPy)", "bold")
    drawing.box(14, 38, 96, 40, "box", "np.array")
    drawing.arrow(110, 58, 148, 58)
    drawing.box(150, 38, 100, 40, "host", "page-locked")
    drawing.arrow(250, 58, 304, 58)
    drawing.box(306, 38, 80, 40, "device", "device")
    drawing.text(14, 98, "a thread carries the bytes, chunk by chunk", "small quiet")
    drawing.text(14, 140, "page-locked memory (HostArray)", "bold")
    drawing.box(150, 152, 100, 40, "host", "HostArray")
    drawing.arrow(250, 172, 304, 172)
    drawing.box(306, 152, 80, 40, "device", "device")
    drawing.text(14, 212, "the device fetches the bytes itself", "small quiet")
    drawing.write("page-locked")


def main() -> None:
    """Write all drawings."""
    for draw in (awaiting, device, kernel, block, index, guard, stream, page_locked):
        draw()


if __name__ == "__main__":
    main()
