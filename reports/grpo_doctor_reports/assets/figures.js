// Draws the figures that Python built: colors from the theme, boxes as outlines, what is
// highlighted, and the range that all charts share.
const TOKEN = "\u0001";
const DIM = 0.25;
const MOST_MARKS = 60;
// A double click shows the whole run in every chart, not only where it was made.
const CONFIG = { displayModeBar: false, displaylogo: false, responsive: true, doubleClick: false };

function colored(value) {
  if (typeof value === "string") return value.startsWith(TOKEN) ? token(value.slice(1)) : value;
  if (Array.isArray(value)) return value.some((one) => typeof one === "string" || (one !== null && typeof one === "object")) ? value.map(colored) : value;
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, colored(one)]));
}

function traceOf(packed, isClose) {
  const { boxes, ...rest } = packed;
  const trace = colored(rest);
  if (boxes) {
    const [x0, x1, y0, y1] = boxes;
    trace.x = x0.flatMap((from, at) => [from, from, x1[at], x1[at], from, null]);
    trace.y = y0.flatMap((from, at) => [from, y1[at], y1[at], from, from, null]);
  }
  if (trace.meta?.near) trace.visible = isClose;
  if (trace.meta?.phase && !litPhase(trace.meta.phase)) trace.opacity = DIM * (trace.opacity ?? 1);
  return trace;
}

// Whether single spans have room in what is shown.
function isClose({ layout: { meta } }) {
  if (!meta || meta.close === undefined) return true;
  const [from, to] = rangeOf("time");
  return meta.close === null || to - from <= meta.close;
}

// The step that is looked at and what a highlighted finding is about, as frames.
function framesOf({ layout: { meta } }) {
  if (!meta?.axis) return [];
  const span = (at) => spanOf(meta.axis, at);
  const frame = { type: "rect", xref: "x", yref: "paper", y0: 0, y1: 1, layer: "above" };
  const finding = litFinding();
  const shapes = [];
  const rows = finding && meta.ranks ? finding.ranks.map((rank) => meta.ranks.indexOf(rank)).filter((row) => row >= 0) : [];
  const steps = finding && facts.steps ? finding.steps.map((step) => facts.steps.number.indexOf(step)).filter((at) => at >= 0) : [];
  const line = { color: token("high"), width: 2 };
  for (const row of rows.slice(0, MOST_MARKS)) shapes.push({ ...frame, xref: "paper", x0: 0, x1: 1, yref: "y", y0: row - 0.5, y1: row + 0.5, line });
  for (const at of steps.slice(0, MOST_MARKS)) shapes.push({ ...frame, x0: span(at)[0], x1: span(at)[1], line: { width: 0 }, fillcolor: token("high"), opacity: 0.15 });
  if (view.focus !== null) shapes.push({ ...frame, x0: span(view.focus)[0], x1: span(view.focus)[1], line: { color: token("ink"), width: 1.5 } });
  return shapes;
}

function spanOf(kind, at) {
  const { number, start, end } = facts.steps;
  return kind === "step" ? [number[at] - 0.5, number[at] + 0.5] : [start[at], end[at]].map((one) => one / facts.time.divisor);
}

function figureOf(element) {
  return facts.figures[Number(element.dataset.figure)];
}

function layoutOf(figure) {
  const layout = colored(figure.layout);
  layout.font.family = getComputedStyle(document.body).fontFamily;
  layout.shapes = [...(layout.shapes ?? []), ...framesOf(figure)];
  if (layout.meta?.axis) Object.assign(layout.xaxis, { range: rangeOf(layout.meta.axis), ...ticksOf(layout.meta.axis) });
  return layout;
}

// Between few steps plotly would number parts of them, and round two to the same.
function ticksOf(kind) {
  const [from, to] = rangeOf(kind);
  return kind === "step" ? { tick0: to - from < 6 ? 0 : null, dtick: to - from < 6 ? 1 : null } : {};
}

async function draw(element) {
  const figure = figureOf(element);
  const isFirst = !element.classList.contains("drawn");
  element.isClose = isClose(figure);
  const traces = figure.data.map((trace) => traceOf(trace, element.isClose));
  if (element.dataset.chart === "heatmap") traces.forEach((trace, at) => { trace.visible = at === matrixShown(); });
  await Plotly.react(element, traces, layoutOf(figure), CONFIG);
  if (!isFirst) return;
  if (figure.layout.meta?.axis) followAxis(element, figure.layout.meta.axis);
  element.on("plotly_click", ({ points: [{ x, customdata }] }) => {
    const at = facts.steps ? facts.steps.number.indexOf(element.dataset.chart === "steps" ? customdata : x) : -1;
    if (at >= 0 && ["steps", "heatmap"].includes(element.dataset.chart)) focusStep(at);
  });
  if (element.dataset.chart === "lanes") element.addEventListener("pointermove", (event) => readOut(element, pointOf(element, event)));
}

// Brings a drawn chart to the range and the step that are looked at.
async function follow(element) {
  const figure = figureOf(element);
  if (!figure.layout.meta?.axis || !element._fullLayout) return;
  if (isClose(figure) !== element.isClose) { await draw(element); return; }
  const wanted = rangeOf(figure.layout.meta.axis);
  const { xaxis } = element._fullLayout;
  const isThere = Math.abs(xaxis.range[0] - wanted[0]) + Math.abs(xaxis.range[1] - wanted[1]) <= 1e-9 * Math.abs(wanted[1] - wanted[0]);
  if (isThere && element.drawnFocus === view.focus) return;
  element.drawnFocus = view.focus;
  const { shapes } = layoutOf(figure);
  const rows = view.time === null && view.step === null && figure.layout.meta.ranks ? { "yaxis.range": figure.layout.yaxis.range } : {};
  const ticks = Object.fromEntries(Object.entries(ticksOf(figure.layout.meta.axis)).map(([name, value]) => [`xaxis.${name}`, value]));
  await Plotly.relayout(element, { "xaxis.range": wanted, ...ticks, ...rows, shapes });
}

// What lies under the pointer in the timeline, in words.
function readOut(element, { x, y }) {
  const { labels } = figureOf(element).layout.meta;
  element.hovered = x;
  let found = null;
  for (const { boxes, meta } of figureOf(element).data) {
    if (!boxes || (meta.near && !element.isClose)) continue;
    const [x0, x1, y0, y1] = boxes;
    const at = x0.findIndex((from, one) => from <= x && x <= x1[one] && y0[one] <= y && y <= y1[one]);
    if (at >= 0 && meta.ground) found = null;
    else if (at >= 0) found = { name: meta.names[meta.name[at]], length: x1[at] - x0[at], share: (y1[at] - y0[at]) / 0.88, isFar: meta.far, isOpen: meta.open };
  }
  const row = labels[Math.round(y)] ?? "";
  const moment = duration(Math.max(0, x * facts.time.divisor));
  const length = found && (found.isFar ? `${percent(found.share)} of the step` : duration(found.length * facts.time.divisor));
  document.getElementById("readout").textContent = `${moment}, ${row}: ${found ? `${found.name}, ${length}${found.isOpen ? ", never ended" : ""}` : "no phase"}`;
}

function matrixShown() {
  return Number(document.getElementById("heatmap-kind").value);
}

// A finding about phases is best seen in the matrix of the first of them; without one nothing changes.
let matrixBefore = null;
function chooseLitMatrix() {
  const select = document.getElementById("heatmap-kind");
  if (!select) return;
  const phase = litFinding()?.phases[0]?.split("/")[0];
  const at = facts.labels.indexOf(phase);
  if (at >= 0) {
    matrixBefore ??= select.value;
    select.value = String(at);
  } else if (matrixBefore !== null) {
    select.value = matrixBefore;
    matrixBefore = null;
  }
}
