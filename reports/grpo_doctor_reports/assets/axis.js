// One axis for all charts over the run. Charts count in seconds ("time") or in step numbers ("step");
// knots tie the two together.
const LEAST_PART = 1e-5; // of the whole axis: closer than this there is nothing to see

// Seconds and step numbers at the same moments; null where the document has no steps.
const knots = once(() => {
  if (!facts.steps) return null;
  const [number, start, end] = [facts.steps.number, facts.steps.start, facts.steps.end].map(unpack);
  const last = number.length - 1;
  return ascending([...start, end[last]], [...number.map((one) => one - 0.5), number[last] + 0.5]);
});

function once(compute) {
  let value;
  return () => (value ??= { it: compute() }).it;
}

function ascending(x, y) {
  const kept = x.map((_, at) => at).filter((at) => at === 0 || (x[at] > x[at - 1] && y[at] > y[at - 1]));
  return [kept.map((at) => x[at]), kept.map((at) => y[at])];
}

function along([from, to], value) {
  if (value <= from[0]) return to[0];
  let [low, high] = [0, from.length - 1];
  if (value >= from[high]) return to[high];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (from[middle] <= value) low = middle; else high = middle;
  }
  return to[low] + ((value - from[low]) / (from[high] - from[low])) * (to[high] - to[low]);
}

function wholeTime() {
  const end = facts.lanes?.end ?? facts.strips?.end;
  return [0, end ?? (facts.steps ? Math.max(...unpack(facts.steps.end)) : 1)];
}

function wholeSteps() {
  const index = facts.steps?.number ?? facts.heatmap?.steps ?? facts.curves?.curves[0].x;
  const number = index === undefined ? [0] : unpack(index);
  return [number[0] - 0.5, number[number.length - 1] + 0.5];
}

function timeUnit() {
  const [, end] = wholeTime();
  if (end < 300) return { divisor: 1, name: "s" };
  return end < 3 * 3600 ? { divisor: 60, name: "min" } : { divisor: 3600, name: "h" };
}

// What a chart of this kind shows now, in its own unit.
function rangeOf(kind) {
  if (kind === "time") return (view.time ?? wholeTime()).map((one) => one / timeUnit().divisor);
  return view.step ?? wholeSteps();
}

function fitted([from, to], [first, last]) {
  const width = Math.min(last - first, Math.max(to - from, (last - first) * LEAST_PART));
  const start = Math.min(Math.max(from, first), last - width);
  return width >= last - first ? null : [start, start + width];
}

// Zooms every chart to a range that is given in the unit of `kind`.
function zoom(kind, range) {
  const tied = knots();
  const [x, y] = tied ?? [[], []];
  if (kind === "time") {
    view.time = fitted(range.map((one) => one * timeUnit().divisor), wholeTime());
    if (tied) view.step = view.time && fitted(atLeastOneStep(view.time.map((one) => along([x, y], one))), wholeSteps());
  } else {
    view.step = fitted(atLeastOneStep(range), wholeSteps());
    if (tied) view.time = view.step && fitted(view.step.map((one) => along([y, x], one)), wholeTime());
  }
  tell("range");
}

function atLeastOneStep([from, to]) {
  return to - from >= 1 ? [from, to] : [(from + to - 1) / 2, (from + to + 1) / 2];
}

function showWholeRun() {
  view.time = view.step = null;
  tell("range");
}

function pan(part) {
  if (!numbers) return;
  const [from, to] = axisInUse();
  zoom(axisKind(), [from + part * (to - from), to + part * (to - from)]);
}

// `around` stays where it is; the middle does without one.
function zoomBy(factor, around) {
  if (!numbers) return;
  const [from, to] = axisInUse();
  const still = around ?? (from + to) / 2;
  zoom(axisKind(), [still - factor * (still - from), still + factor * (to - still)]);
}

function axisKind() {
  return facts.lanes || facts.strips || knots() ? "time" : "step";
}

function axisInUse() {
  return rangeOf(axisKind());
}

const shapers = {}; // chart name -> (element) => lines and frames over the chart
const axisExtras = {}; // chart name -> (range) => more of the layout that depends on the range
const movers = {}; // chart name -> painter of charts that another range changes altogether

function followAxis(element, kind) {
  if (element.dataset.follows) return;
  element.dataset.follows = kind;
  element.on("plotly_relayout", (change) => {
    if ("xaxis.range[0]" in change) zoom(kind, [change["xaxis.range[0]"], change["xaxis.range[1]"]]);
  });
  element.on("plotly_doubleclick", showWholeRun);
  if (kind === "time") {
    followWheel(element, (event) => {
      const { xaxis } = element._fullLayout;
      return xaxis.p2d(event.clientX - element.getBoundingClientRect().left - xaxis._offset);
    });
  }
}

// The wheel zooms around the pointer with Ctrl, or once the chart has the focus; else it scrolls
// the page. With Shift it moves.
function followWheel(element, valueAt) {
  element.addEventListener("wheel", (event) => {
    const zooms = event.ctrlKey || event.metaKey || element.contains(document.activeElement);
    if (!numbers || !(zooms || event.shiftKey)) return;
    event.preventDefault();
    const amount = event.deltaY || event.deltaX;
    if (event.shiftKey) { pan(Math.sign(amount) * 0.1); return; }
    zoomBy(Math.exp(Math.max(-120, Math.min(120, amount)) / 400), valueAt(event));
  }, { passive: false });
}

// Brings a drawn chart to the range and the step that are looked at; nothing else is drawn again.
function moveAlong(element) {
  if (!element.dataset.follows) return;
  const { chart, follows } = element.dataset;
  if (movers[chart]) return movers[chart](element);
  const wanted = rangeOf(follows);
  const [from, to] = element._fullLayout.xaxis.range;
  const isThere = Math.abs(from - wanted[0]) + Math.abs(to - wanted[1]) <= 1e-9 * Math.abs(to - from);
  if (isThere && element.drawnFocus === view.focus) return;
  element.drawnFocus = view.focus;
  const extra = axisExtras[chart]?.(wanted) ?? {};
  return Plotly.relayout(element, { "xaxis.range": wanted, ...extra, shapes: shapers[chart]?.(element) ?? [] });
}

function setUpAxis() {
  const label = document.getElementById("window-label");
  const reset = document.getElementById("window-reset");
  when("range", () => {
    moveDrawn();
    const [from, to] = view.time ?? view.step ?? [];
    const steps = `steps ${Math.round(from)} to ${Math.round(to)}`;
    if (reset) reset.hidden = from === undefined;
    if (label) label.textContent = from === undefined ? "whole run" : view.time ? `${duration(from)} to ${duration(to)}` : steps;
  });
  reset?.addEventListener("click", showWholeRun);
}
