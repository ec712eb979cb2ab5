// One axis for all charts over the run. Charts count in time or in step numbers; knots tie the two.
const LEAST_PART = 1e-5; // of the whole axis: closer than this there is nothing to see

// Seconds and step numbers at the same moments; null where the document has no steps.
let tied;
function knots() {
  if (tied !== undefined || !facts.steps) return tied ?? null;
  const { number, start, end } = facts.steps;
  const last = number.length - 1;
  tied = ascending([...start, end[last]], [...number.map((one) => one - 0.5), number[last] + 0.5]);
  return tied;
}

function ascending(x, y) {
  const kept = x.map((_, at) => at).filter((at) => at === 0 || (x[at] > x[at - 1] && y[at] > y[at - 1]));
  return [kept.map((at) => x[at]), kept.map((at) => y[at])];
}

function along([from, to], value) {
  const beyond = from.findIndex((one) => one > value);
  if (beyond === 0) return to[0];
  if (beyond < 0) return to[to.length - 1];
  const part = (value - from[beyond - 1]) / (from[beyond] - from[beyond - 1]);
  return to[beyond - 1] + part * (to[beyond] - to[beyond - 1]);
}

// The whole of an axis, in the unit of the charts.
function whole(kind) {
  if (kind === "time") return [0, facts.time.end / facts.time.divisor];
  if (facts.steps) return [facts.steps.number[0] - 0.5, facts.steps.number[facts.steps.number.length - 1] + 0.5];
  return facts.figures.find(({ layout }) => layout.meta?.axis === "step")?.layout.xaxis.range ?? [0, 1];
}

// What charts of this kind show now.
function rangeOf(kind) {
  return view[kind] ?? whole(kind);
}

function fitted([from, to], [first, last]) {
  const width = Math.min(last - first, Math.max(to - from, (last - first) * LEAST_PART));
  const start = Math.min(Math.max(from, first), last - width);
  return width >= last - first ? null : [start, start + width];
}

// Zooms every chart to a range of one kind; both kinds where they are tied.
function zoom(kind, range) {
  const [seconds, steps] = knots() ?? [];
  const times = seconds?.map((one) => one / facts.time.divisor);
  const wanted = kind === "step" ? atLeastOneStep(range) : range;
  view[kind] = fitted(wanted, whole(kind));
  if (times && kind === "time") view.step = view.time && fitted(atLeastOneStep(view.time.map((one) => along([times, steps], one))), whole("step"));
  if (times && kind === "step") view.time = view.step && fitted(view.step.map((one) => along([steps, times], one)), whole("time"));
  notify("range");
}

function atLeastOneStep([from, to]) {
  return to - from >= 1 ? [from, to] : [(from + to - 1) / 2, (from + to + 1) / 2];
}

function showWholeRun() {
  view.time = view.step = null;
  notify("range");
}

function pan(part) {
  const [from, to] = rangeOf(axisKind());
  zoom(axisKind(), [from + part * (to - from), to + part * (to - from)]);
}

// `around` stays where it is; the middle does without one.
function zoomBy(factor, around) {
  const [from, to] = rangeOf(axisKind());
  const still = around ?? (from + to) / 2;
  zoom(axisKind(), [still - factor * (still - from), still + factor * (to - still)]);
}

function axisKind() {
  return facts.figures.some(({ layout }) => layout.meta?.axis === "time") ? "time" : "step";
}

function followAxis(element, kind) {
  element.on("plotly_relayout", (change) => {
    if ("xaxis.range[0]" in change) zoom(kind, [change["xaxis.range[0]"], change["xaxis.range[1]"]]);
  });
  element.on("plotly_doubleclick", showWholeRun);
  // The wheel zooms around the pointer with Ctrl, or once the chart has the focus; else it scrolls
  // the page. With Shift it moves.
  element.addEventListener("wheel", (event) => {
    const zooms = event.ctrlKey || event.metaKey || element.contains(document.activeElement);
    if (kind !== axisKind() || !(zooms || event.shiftKey)) return;
    event.preventDefault();
    const amount = event.deltaY || event.deltaX;
    if (event.shiftKey) pan(Math.sign(amount) * 0.1);
    else zoomBy(Math.exp(Math.max(-120, Math.min(120, amount)) / 400), pointOf(element, event).x);
  }, { passive: false });
}

// Where the pointer is, in the units of a chart's axes.
function pointOf(element, event) {
  const { xaxis, yaxis } = element._fullLayout;
  const { left, top } = element.getBoundingClientRect();
  return { x: xaxis.p2d(event.clientX - left - xaxis._offset), y: yaxis.p2d(event.clientY - top - yaxis._offset) };
}

function setUpAxis() {
  const label = document.getElementById("window-label");
  const reset = document.getElementById("window-reset");
  when("range", () => {
    moveDrawn();
    const [from, to] = view.time ?? view.step ?? [];
    const moments = [from, to].map((one) => duration(one * facts.time.divisor));
    if (reset) reset.hidden = from === undefined;
    if (label) label.textContent = from === undefined ? "whole run" : view.time ? `${moments[0]} to ${moments[1]}` : `steps ${Math.round(from)} to ${Math.round(to)}`;
  });
  reset?.addEventListener("click", showWholeRun);
  for (const button of document.querySelectorAll("#windows button")) {
    const [start, end] = [Number(button.dataset.start), Number(button.dataset.end)];
    const around = 0.02 * (end - start);
    button.addEventListener("click", () => {
      if (button.dataset.start) zoom("time", [start - around, end + around].map((one) => one / facts.time.divisor)); else leaveZoom();
    });
  }
}
