const LANE_PX = 18;
const DIM = 0.12;

// All bands of one phase as one outline each of four corners: one SVG path instead of thousands.
function outlines(boxes) {
  const x = [];
  const y = [];
  for (const [from, to, low, high] of boxes) {
    x.push(from, from, to, to, from, null);
    y.push(low, high, high, low, low, null);
  }
  return { type: "scatter", mode: "lines", x, y, fill: "toself", line: { width: 0 }, hoverinfo: "skip", connectgaps: false };
}

function boxesOf(lane, divisor, low, high) {
  const edges = unpack(lane.edges);
  return unpack(lane.phase).map((phase, at) => ({
    phase, start: edges[2 * at], end: edges[2 * at + 1],
    box: [edges[2 * at] / divisor, edges[2 * at + 1] / divisor, low, high],
  }));
}

// The step that is looked at, as a frame; `scale` turns seconds into the chart's unit.
function focusFrame(kind) {
  if (view.focus === null || !facts.steps) return [];
  const line = { color: token("ink"), width: 1.5 };
  const frame = { type: "rect", xref: "x", yref: "paper", y0: 0, y1: 1, line, layer: "above" };
  if (kind !== "time") {
    const number = stepFacts(view.focus).number;
    const at = (value) => (kind === "column" ? along(knots.columns(), value) : value);
    return [{ ...frame, x0: at(number - 0.5), x1: at(number + 0.5) }];
  }
  const { divisor } = timeUnit();
  return [{ ...frame, x0: unpack(facts.steps.start)[view.focus] / divisor, x1: unpack(facts.steps.end)[view.focus] / divisor }];
}

function timeAxis(title, more = {}) {
  return axis({
    fixedrange: false, showgrid: false, range: rangeOf("time"), automargin: false,
    title: { text: title, font: { size: 11, color: token("muted") }, standoff: 6 }, ...more,
  });
}

shapers.lanes = (element) => [...(element.openShapes ?? []), ...focusFrame("time")];

painters.lanes = (element) => {
  const { divisor, name } = timeUnit();
  const lanes = lanesShown();
  const moments = litMoments();
  const byPhase = facts.lanes.phases.map(() => ({ lit: [], dim: [] }));
  const open = [];
  lanes.forEach((lane, row) => {
    const boxes = boxesOf(lane, divisor, row - 0.42, row + 0.42);
    for (const { phase, start, end, box } of boxes) {
      const isLit = litRank(lane.rank) && litPhase(facts.lanes.phases[phase].name) && isLitTime(moments, start, end);
      byPhase[phase][isLit ? "lit" : "dim"].push(box);
    }
    open.push(...lane.open.map((at) => boxes[at].box));
  });
  const traces = facts.lanes.phases.flatMap(({ color }, phase) => ["dim", "lit"].map((light) => (
    { ...outlines(byPhase[phase][light]), fillcolor: color, opacity: light === "lit" ? 1 : DIM })));
  element.openShapes = open.map(([x0, x1, y0, y1]) => (
    { type: "rect", x0, x1, y0, y1, line: { color: token("ink"), width: 2, dash: "dot" } }));
  const height = 44 + LANE_PX * lanes.length;
  element.style.setProperty("--plot-height", `${height}px`);
  return Plotly.react(element, traces, layout({
    height, margin: { l: 64, r: 8, t: 4, b: 38 }, dragmode: "zoom", hovermode: false,
    xaxis: timeAxis(`time since the recording began, ${name}`),
    yaxis: axis({
      range: [lanes.length - 0.5, -0.5], showgrid: false, automargin: false,
      tickvals: lanes.map((_, row) => row), ticktext: lanes.map(({ rank }) => `rank ${rank} `),
    }),
    shapes: shapers.lanes(element),
  }), CONFIG).then(() => { followAxis(element, "time"); sayLane(element); });
};

// What the pointer is over, in words: the bands are single paths, so that plotly can't tell.
function sayLane(element) {
  if (element.dataset.says) return;
  element.dataset.says = "yes";
  element.addEventListener("mousemove", (event) => {
    const { xaxis, yaxis } = element._fullLayout;
    const { left, top } = element.getBoundingClientRect();
    const lane = lanesShown()[Math.round(yaxis.p2d(event.clientY - top - yaxis._offset))];
    const time = xaxis.p2d(event.clientX - left - xaxis._offset) * timeUnit().divisor;
    if (lane && time >= 0) document.getElementById("strips-readout").textContent = `${duration(time)}: ${phaseAt(lane, time)}`;
  });
}

function phaseAt(lane, time) {
  if (!lane) return "no phases recorded";
  const edges = unpack(lane.edges);
  const phases = unpack(lane.phase);
  const at = phases.findIndex((_, band) => edges[2 * band] <= time && time <= edges[2 * band + 1]);
  const place = at < 0 ? "in no phase" : `in ${facts.lanes.phases[phases[at]].name} for ${duration(edges[2 * at + 1] - edges[2 * at])}`;
  return `rank ${lane.rank} is ${place}`;
}
