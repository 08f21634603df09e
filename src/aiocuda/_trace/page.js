"use strict";
// Shows the trace in #data. A slice is [begin, duration, kind, title, operation, asked, depth]; times are nanoseconds.
const data = JSON.parse(document.getElementById("data").textContent);
const text = (number) => data.texts[number];
const KINDS = ["launch", "copy", "fill", "allocate", "call", "graph", "function", "await", "step", "submit"];
const ROW = 18, GROUP = 22, AXIS = 22, COUNTS = 46, LABELS = 190;
const PARTS = [["build", "--allocate"], ["submit", "--step"], ["queue", "--copy"], ["run", "--launch"],
               ["wake", "--function"]];

function duration(ns) {
  if (ns === null || ns === undefined) return "not known";
  for (const [unit, size] of [["s", 1e9], ["ms", 1e6], ["µs", 1e3]])
    if (Math.abs(ns) >= size) return `${Number((ns / size).toPrecision(3))} ${unit}`;
  return `${Math.round(ns)} ns`;
}
// A time on the axis, with as many digits as tell it from the next.
function moment(ns, step) {
  const [unit, size] = [["s", 1e9], ["ms", 1e6], ["µs", 1e3], ["ns", 1]].find(([, each]) => step >= each) ?? ["ns", 1];
  return `${(ns / size).toFixed(0)} ${unit}`;
}
const bytes = (n) => n >= 1 << 20 ? `${(n / (1 << 20)).toPrecision(3)} MiB` : n >= 1024 ? `${(n / 1024).toPrecision(3)} KiB` : `${n} B`;
const percent = (part) => `${Math.round(part * 100)} %`;
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
function element(tag, content, attributes = {}) {
  const made = document.createElement(tag);
  if (content instanceof Node) made.append(content);
  else if (content !== undefined) made.textContent = content;
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}
const operation = (number) => {
  const [kind, name, place, asked, device, stream, state, size, needs, built, called, returned, started, ended] =
    data.operations[number];
  return {number, kind: text(kind), name: text(name), place: text(place), asked, device, stream, state: text(state),
          size, needs, built, called, returned, started, ended};
};
const asked = (index) => {
  const [kind, outcome, name, place, who, results, begun, ended] = data.asked[index];
  return {index, kind, outcome, name: text(name), place: text(place), who: text(who), results, begun, ended};
};

// --- the timeline ---------------------------------------------------------------------------------------------------

const canvas = document.getElementById("timeline");
const lanes = [];  // what is drawn, from top to bottom
let height = AXIS;
{
  let group = null;
  for (const [index, track] of data.tracks.entries()) {
    if (track.group !== group) {
      group = track.group;
      lanes.push({kind: "group", title: group, top: height});
      height += GROUP;
    }
    const depth = 1 + track.slices.reduce((most, each) => Math.max(most, each[6]), 0);
    lanes.push({kind: "track", title: track.name, top: height, index, slices: track.slices, depth,
                starts: Float64Array.from(track.slices, (each) => each[0]),
                longest: track.slices.reduce((most, each) => Math.max(most, each[1]), 0)});
    height += depth * ROW + 4;
  }
  for (const counts of data.counts) {
    lanes.push({kind: "counts", title: counts.name, top: height, counts,
                most: counts.points.reduce((most, [, value]) => Math.max(most, value), 1)});
    height += COUNTS;
  }
}
const times = data.tracks.flatMap((track) => track.slices.map((each) => [each[0], each[0] + each[1]]));
const first = times.reduce((least, [begin]) => Math.min(least, begin), times.length ? Infinity : 0);
const last = times.reduce((most, [, end]) => Math.max(most, end), data.took * (times.length ? 0 : 1));
const whole = {begin: first - (last - first) * 0.02, end: last + (last - first) * 0.02 + 1};
let view = {...whole};
let selected = null;  // {operation} or {asked}

const width = () => canvas.clientWidth;
const x = (at) => LABELS + (at - view.begin) / (view.end - view.begin) * (width() - LABELS);
const at = (position) => view.begin + (position - LABELS) / (width() - LABELS) * (view.end - view.begin);

// The first slice that may reach into the view.
function begin_of(lane) {
  let low = 0, high = lane.starts.length;
  const from = view.begin - lane.longest;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (lane.starts[middle] < from) low = middle + 1; else high = middle;
  }
  return low;
}
function is_selected(slice) {
  if (!selected) return false;
  if (selected.operation !== undefined) return slice[4] === selected.operation;
  return slice[5] === selected.asked && text(slice[2]) === "await";
}
function place_of(track, index) {
  const lane = lanes.find((each) => each.index === track && each.kind === "track");
  return {lane, slice: lane.slices[index]};
}

function draw() {
  const scale = window.devicePixelRatio || 1;
  canvas.style.height = `${height}px`;
  canvas.width = Math.round(width() * scale);
  canvas.height = Math.round(height * scale);
  const c = canvas.getContext("2d");
  c.scale(scale, scale);
  const ink = colour("--ink"), soft = colour("--soft"), line = colour("--line"), mark = colour("--mark");
  const colours = Object.fromEntries(KINDS.map((kind) => [kind, colour(`--${kind}`)]));
  c.font = "11px system-ui, sans-serif";
  c.textBaseline = "middle";
  draw_axis(c, soft, line);
  let drawn = 0;
  for (const lane of lanes) {
    c.fillStyle = lane.kind === "group" ? ink : soft;
    c.fillText(lane.title, 6, lane.top + (lane.kind === "group" ? GROUP : ROW) / 2, LABELS - 12);
    if (lane.kind === "group") {
      c.fillStyle = line;
      c.fillRect(0, lane.top, width(), 1);
    }
    c.save();
    c.beginPath();
    c.rect(LABELS, lane.top, width() - LABELS, COUNTS + 400);
    c.clip();
    if (lane.kind === "track") drawn += draw_track(c, lane, colours, mark);
    if (lane.kind === "counts") draw_counts(c, lane, soft, colours.launch);
    c.restore();
  }
  draw_arrows(c, mark);
  canvas.dataset.drawn = drawn;
  document.getElementById("range").textContent =
    `${duration(view.end - view.begin)} from ${duration(view.begin)} on`;
}
function draw_axis(c, soft, line) {
  const span = view.end - view.begin;
  let step = 10 ** Math.floor(Math.log10(span / 6));
  for (const factor of [2, 5, 10]) if (span / step > 9) step *= factor / (factor === 10 ? 5 : factor === 5 ? 2 : 1);
  for (let mark_at = Math.ceil(view.begin / step) * step; mark_at < view.end; mark_at += step) {
    c.fillStyle = line;
    c.fillRect(x(mark_at), 0, 1, height);
    c.fillStyle = soft;
    c.fillText(moment(mark_at, step), x(mark_at) + 4, AXIS / 2);
  }
}
function draw_track(c, lane, colours, mark) {
  let drawn = 0;
  const ends = [];  // of what was drawn last at each depth: what would lie on it is left out
  for (let i = begin_of(lane); i < lane.slices.length; ++i) {
    const slice = lane.slices[i], [begin, took, kind, title,,, depth] = slice;
    if (begin > view.end) break;
    if (begin + took < view.begin) continue;
    const left = Math.max(x(begin), LABELS), right = Math.max(x(begin + took), left + 1);
    const chosen = is_selected(slice);
    if (right <= (ends[depth] ?? -1) && !chosen) continue;
    ends[depth] = right;
    const top = lane.top + depth * ROW;
    c.fillStyle = colours[text(kind)];
    c.fillRect(left, top, Math.max(right - left - 0.5, 0.7), ROW - 2);
    if (chosen) {
      c.strokeStyle = mark;
      c.lineWidth = 2;
      c.strokeRect(left, top, Math.max(right - left, 2), ROW - 2);
    }
    if (right - left > 34) {
      c.save();
      c.beginPath();
      c.rect(left, top, right - left - 3, ROW);
      c.clip();
      c.fillStyle = ["await", "step"].includes(text(kind)) ? colour("--ink") : colour("--paper");
      c.fillText(text(title), left + 4, top + ROW / 2 - 1);
      c.restore();
    }
    ++drawn;
  }
  return drawn;
}
function draw_counts(c, lane, soft, fill) {
  const bottom = lane.top + COUNTS - 6, tall = COUNTS - 24;
  c.fillStyle = fill;
  c.globalAlpha = 0.5;
  const points = lane.counts.points;
  for (let i = 0; i < points.length; ++i) {
    const [from, value] = points[i], until = i + 1 < points.length ? points[i + 1][0] : last;
    if (until < view.begin || from > view.end) continue;
    const tallness = value / lane.most * tall;
    c.fillRect(x(from), bottom - tallness, Math.max(x(until) - x(from), 0.5), tallness);
  }
  c.globalAlpha = 1;
  c.fillStyle = soft;
  c.fillText(`at most ${lane.counts.unit === "bytes" ? bytes(lane.most) : lane.most}`, LABELS + 4, lane.top + ROW / 2);
}
function draw_arrows(c, mark) {
  if (!selected) return;
  c.beginPath();
  c.rect(LABELS, 0, width() - LABELS, height);
  c.clip();
  c.strokeStyle = c.fillStyle = mark;
  c.lineWidth = 1.3;
  for (const [kind, from_track, from, to_track, to] of data.arrows) {
    const begin = place_of(from_track, from), end = place_of(to_track, to);
    if (!is_selected(begin.slice) && !is_selected(end.slice)) continue;
    const x0 = x(kind === "submit" ? begin.slice[0] : begin.slice[0] + begin.slice[1]);
    const x1 = x(kind === "wake" ? end.slice[0] + end.slice[1] : end.slice[0]);
    const y0 = begin.lane.top + begin.slice[6] * ROW + ROW / 2, y1 = end.lane.top + end.slice[6] * ROW + ROW / 2;
    if (Math.max(x0, x1) < LABELS || Math.min(x0, x1) > width()) continue;
    c.beginPath();
    c.moveTo(x0, y0);
    c.bezierCurveTo(x0 + 24, y0, x1 - 24, y1, x1, y1);
    c.stroke();
    c.beginPath();
    c.arc(x1, y1, 3, 0, 7);
    c.fill();
  }
}

function hit(position, top) {
  let best = null;
  for (const lane of lanes) {
    if (lane.kind !== "track" || top < lane.top || top >= lane.top + lane.depth * ROW) continue;
    const depth = Math.floor((top - lane.top) / ROW);
    for (let i = begin_of(lane); i < lane.slices.length && lane.slices[i][0] <= view.end; ++i) {
      const slice = lane.slices[i];
      const left = x(slice[0]), right = Math.max(x(slice[0] + slice[1]), left + 3);
      if (slice[6] === depth && position >= left - 1 && position <= right) best = slice;
    }
  }
  return best;
}
function zoom(factor, around) {
  const span = Math.min(Math.max((view.end - view.begin) * factor, 20), whole.end - whole.begin);
  const part = (around - view.begin) / (view.end - view.begin);
  view = {begin: around - span * part, end: around + span * (1 - part)};
  draw();
}
canvas.addEventListener("wheel", (event) => {
  event.preventDefault();
  zoom(Math.exp(event.deltaY / 300), at(event.offsetX));
}, {passive: false});
let dragged = null;
canvas.addEventListener("pointerdown", (event) => {
  dragged = {from: event.offsetX, view: {...view}, moved: false};
  canvas.setPointerCapture(event.pointerId);
});
canvas.addEventListener("pointermove", (event) => {
  if (!dragged) {
    const slice = hit(event.offsetX, event.offsetY);
    canvas.title = slice ? `${text(slice[3])}, ${duration(slice[1])}` : "";
    return;
  }
  const by = event.offsetX - dragged.from;
  dragged.moved ||= Math.abs(by) > 3;
  const shift = by / (width() - LABELS) * (dragged.view.end - dragged.view.begin);
  view = {begin: dragged.view.begin - shift, end: dragged.view.end - shift};
  if (dragged.moved) draw();
});
canvas.addEventListener("pointerup", (event) => {
  const was = dragged;
  dragged = null;
  if (!was || was.moved) return;
  const slice = hit(event.offsetX, event.offsetY);
  select(!slice ? null : slice[4] !== null ? {operation: slice[4]} : {asked: slice[5]});
});
canvas.addEventListener("keydown", (event) => {
  const middle = (view.begin + view.end) / 2, step = (view.end - view.begin) / 8;
  const actions = {"+": () => zoom(0.7, middle), "-": () => zoom(1.4, middle),
                   ArrowLeft: () => move(-step), ArrowRight: () => move(step), 0: show_all};
  if (!actions[event.key]) return;
  event.preventDefault();
  actions[event.key]();
});
function move(by) {
  view = {begin: view.begin + by, end: view.end + by};
  draw();
}
function show_all() {
  view = {...whole};
  draw();
}
document.getElementById("whole").addEventListener("click", show_all);

// --- what is selected -----------------------------------------------------------------------------------------------

function select(what, shows = false) {
  selected = what;
  for (const node of document.querySelectorAll(".node.selected")) node.classList.remove("selected");
  const panel = document.getElementById("selected");
  panel.replaceChildren();
  if (!what) {
    panel.append(element("p", "Nothing is selected.", {class: "hint"}));
  } else {
    const list = element("dl");
    const put = (name, value) => {
      if (value === undefined || value === null || value === "") return;
      list.append(element("dt", name), element("dd", String(value)));
    };
    if (what.operation !== undefined) {
      const each = operation(what.operation);
      panel.append(element("strong", each.kind === "launch" ? `launch of ${each.name}` : each.name));
      put("number", each.number);
      put("built at", each.place);
      put("where", each.stream === null ? "host" : `device ${each.device}, stream ${each.stream}`);
      put("state", each.state);
      put("bytes", each.size ? bytes(each.size) : null);
      put("built", each.built === null ? null : duration(each.built));
      put("submitted", `${duration(each.called)}, in ${duration(each.returned - each.called)}`);
      if (each.started !== null) {
        put("queued", duration(Math.max(0, each.started - each.returned)));
        put("ran", duration(each.ended - each.started));
      }
      put("needed", each.needs.map((number) => `${operation(number).name} (${number})`).join(", "));
      if (each.asked !== null) put("asked by", `${asked(each.asked).who}, ${asked(each.asked).kind} ${each.asked}`);
      document.querySelector(`.node[data-operation="${each.number}"]`)?.classList.add("selected");
      if (shows) reveal(each.started ?? each.called, each.ended ?? each.returned);
    } else if (what.asked !== undefined && what.asked !== null) {
      const each = asked(what.asked);
      panel.append(element("strong", `${each.kind} of ${each.name}`));
      put("number", each.index);
      put("by", each.who);
      put("built at", each.place);
      put("outcome", each.outcome);
      put("took", each.ended === null ? "it goes on" : duration(each.ended - each.begun));
      const parts = data.analysis.awaits.find((one) => one.asked === each.index);
      if (parts) for (const [name] of PARTS) put(name, duration(parts[`${name}_ns`]));
      if (shows) reveal(each.begun, each.ended ?? data.took);
    }
    panel.append(list);
  }
  draw();
}
function reveal(begin, end) {
  const span = Math.max((end - begin) * 6, 2000), middle = (begin + end) / 2;
  view = {begin: middle - span / 2, end: middle + span / 2};
}

// --- tables ---------------------------------------------------------------------------------------------------------

function table(id, heads, rows) {
  const made = document.getElementById(id);
  const is_number = heads.map((head) => head.startsWith("#"));
  const top = element("tr");
  heads.forEach((head, i) => top.append(element("th", head.replace("#", ""), is_number[i] ? {class: "number"} : {})));
  made.append(top);
  for (const {cells, attributes = {}} of rows) {
    const row = element("tr", undefined, attributes);
    cells.forEach((cell, i) => row.append(element("td", cell, is_number[i] ? {class: "number"} : {})));
    made.append(row);
  }
  if (!rows.length) made.append(element("tr", element("td", "none", {colspan: heads.length, class: "hint"})));
  made.addEventListener("click", (event) => {
    const row = event.target.closest("tr");
    if (row?.dataset.operation !== undefined) select({operation: Number(row.dataset.operation)}, true);
    if (row?.dataset.asked !== undefined) select({asked: Number(row.dataset.asked)}, true);
  });
}
const found = data.analysis;
document.title = `${data.name} · aiocuda trace`;
document.querySelector("h1").textContent = data.name;
document.getElementById("facts").textContent =
  `${data.operations.length} operations, ${data.asked.length} asked for, ${duration(data.took)}` +
  (data.is_emulated ? ". The devices are emulated: their times are those of this machine, and of no GPU." : "");
for (const kind of KINDS) {
  const entry = element("span", kind);
  const square = element("i");
  square.style.background = `var(--${kind})`;
  entry.prepend(square);
  document.getElementById("legend").append(entry);
}
table("rows", ["what", "kind", "#count", "#device time", "#mean", "#queued", "waited for"], found.rows.map((row) => ({
  cells: [row.name, row.kind, row.count, duration(row.run_ns), duration(row.run_ns / row.count), duration(row.queued_ns),
          row.waited_ns.slice(0, 3).map(([name, took]) => `${name} ${duration(took)}`).join(", ")],
})));
document.getElementById("critical-note").textContent = found.critical.length
  ? `${found.critical.length} operations, which ran for ${duration(found.critical_run_ns)} of ${duration(found.critical_ns)}`
  : "No times of a device are known.";
document.getElementById("findings").hidden = !data.findings.length;
for (const each of data.findings) document.querySelector("#findings ul").append(element("li", each));
table("critical", ["#number", "what", "where", "#begins", "#ran", "built at"],
      found.critical.slice(-100).map(operation).map((each) => ({
        cells: [each.number, each.name, `device ${each.device}, stream ${each.stream}`, duration(each.started),
                duration(each.ended - each.started), each.place],
        attributes: {"data-operation": each.number},
      })));
table("awaits", ["#number", "what", "by", "outcome", "#took", "made of", "#build", "#submit", "#queue", "#run", "#wake"],
      found.awaits.slice(0, 500).map((parts) => {
        const each = asked(parts.asked), bar = element("div", undefined, {class: "bar"});
        const total = PARTS.reduce((sum, [name]) => sum + (name === "build" ? 0 : parts[`${name}_ns`]), 0) || 1;
        for (const [name, hue] of PARTS.slice(1)) {
          const piece = element("b", undefined, {title: `${name} ${duration(parts[`${name}_ns`])}`});
          piece.style.width = `${parts[`${name}_ns`] / total * 100}%`;
          piece.style.background = `var(${hue})`;
          bar.append(piece);
        }
        return {cells: [each.index, each.name, each.who, each.outcome, duration(each.ended - each.begun), bar,
                        ...PARTS.map(([name]) => duration(parts[`${name}_ns`]))],
                attributes: {"data-asked": each.index}};
      }));
table("streams", ["stream", "#operations", "#at work", "#of the time"], found.streams.map((each) => ({
  cells: [`device ${each.device}, stream ${each.stream}`, each.count, duration(each.busy_ns), percent(each.part)]})));
table("devices", ["device", "#at work", "#of the time", "#copies", "#other work", "#both at once"],
      found.devices.map((each) => ({
        cells: [`device ${each.device}`, duration(each.busy_ns), percent(each.part), duration(each.copies_ns),
                duration(each.kernels_ns), duration(each.both_ns)]})));
table("held", ["whose thread", "#in all", "#longest at once", "by"], found.held.map((each) => ({
  cells: [each.who, duration(each.total_ns), duration(each.longest_ns), asked(each.longest_of).name],
  attributes: {"data-asked": each.longest_of}})));
const nodes = document.querySelectorAll(".node");
document.getElementById("dag-note").textContent = nodes.length < data.operations.length
  ? `${nodes.length} of ${data.operations.length} operations: the critical path, and what it needed.`
  : "Thick: the critical path.";
for (const node of nodes) {
  const choose = () => select({operation: Number(node.dataset.operation)}, true);
  node.addEventListener("click", choose);
  node.addEventListener("keydown", (event) => event.key === "Enter" && choose());
}
new ResizeObserver(draw).observe(canvas.parentElement);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
draw();
