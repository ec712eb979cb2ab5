const LANE_PX = 14;
const STRIP_PX = 58;
const STRIP_GAP_PX = 26;
const AXIS_PX = 40;

function timeUnit(end) {
  if (end < 300) return { divisor: 1, name: "s" };
  return end < 3 * 3600 ? { divisor: 60, name: "min" } : { divisor: 3600, name: "h" };
}

function chosenRank() {
  const at = Number(document.getElementById("strips-rank")?.value ?? 0);
  return facts.strips.bands.ranks[at];
}

// All bands of one phase as one outline each of four corners: one SVG path instead of thousands.
function bandTraces(rank, divisor, yaxis, opacity) {
  if (!rank) return [];
  const edges = unpack(rank.edges);
  const phases = unpack(rank.phase);
  return facts.strips.bands.phases.map(({ color }, phase) => {
    const x = [];
    const y = [];
    phases.forEach((one, at) => {
      if (one !== phase) return;
      const [start, end] = [edges[2 * at] / divisor, edges[2 * at + 1] / divisor];
      x.push(start, start, end, end, start, null);
      y.push(0, 1, 1, 0, 0, null);
    });
    return {
      type: "scatter", mode: "lines", x, y, yaxis, fill: "toself", fillcolor: color, opacity,
      line: { width: 0 }, hoverinfo: "skip", connectgaps: false,
    };
  });
}

function openBandShapes(rank, divisor, lane) {
  const edges = rank ? unpack(rank.edges) : [];
  return (rank?.open ?? []).map((at) => ({
    type: "rect", xref: "x", yref: "paper", x0: edges[2 * at] / divisor, x1: edges[2 * at + 1] / divisor,
    y0: lane[0], y1: lane[1], line: { color: token("ink"), width: 2, dash: "dot" },
  }));
}

function stripTraces(strip, yaxis, divisor, unitOfTime) {
  const many = strip.lines.length > 1;
  return strip.lines.flatMap((line) => {
    const x = unpack(line.t).map((time) => time / divisor);
    const y = unpack(line.v);
    const drawn = {
      type: "scatter", mode: "lines", x, y, yaxis, hoverinfo: "text", line: { width: many ? 0.9 : 1.3, color: token("ink") },
      opacity: many ? 0.5 : 1, connectgaps: false,
      text: y.map((value, at) => lines([`${line.label}: ${shown(value, strip.unit)}`, `at ${shown(x[at], unitOfTime)}`])),
    };
    return [...spreadTraces(line, x, { yaxis }, token("ink"), strip.lines.length), drawn];
  });
}

function stripAxis(strip, domain) {
  const isPercent = strip.unit === "%";
  const most = isPercent ? Math.max(...strip.lines.flatMap((line) => unpack(line.high ?? line.v)).filter(Number.isFinite)) : 0;
  const range = isPercent && most <= 100 ? { range: [0, 102], tickvals: [0, 50, 100] } : { rangemode: "tozero", nticks: 3 };
  return axis({ domain, anchor: "x", automargin: false, ...range });
}

function stripTitle(strip, top) {
  return {
    xref: "paper", yref: "paper", x: 0, y: top, xanchor: "left", yanchor: "bottom", showarrow: false,
    text: plain(strip.unit ? `${strip.title}, ${strip.unit}` : strip.title), font: { size: 11.5, color: token("ink") },
  };
}

painters.strips = (element, index) => {
  const strips = facts.strips.groups[index]?.strips ?? [];
  const rank = chosenRank();
  const { divisor, name } = timeUnit(facts.strips.end);
  const height = LANE_PX + 8 + AXIS_PX + strips.length * (STRIP_PX + STRIP_GAP_PX);
  const inner = height - AXIS_PX - 8;
  const lane = [1 - LANE_PX / inner, 1];
  const top = (at) => 1 - (LANE_PX + (at + 1) * STRIP_GAP_PX + at * STRIP_PX) / inner;
  const axes = {
    yaxis: axis({ domain: [0, 1], range: [0, 1], visible: false, anchor: "x" }),
    yaxis2: axis({ domain: lane, range: [0, 1], visible: false, anchor: "x" }),
  };
  const traces = [...bandTraces(rank, divisor, "y", 0.16), ...bandTraces(rank, divisor, "y2", 1)];
  strips.forEach((strip, at) => {
    axes[`yaxis${at + 3}`] = stripAxis(strip, [Math.max(0, top(at) - STRIP_PX / inner), top(at)]);
    traces.push(...stripTraces(strip, `y${at + 3}`, divisor, name));
  });
  const zoomed = element._fullLayout?.xaxis?.range;
  return Plotly.react(element, traces, layout({
    height, margin: { l: 44, r: 8, t: 8, b: AXIS_PX }, hovermode: "closest", dragmode: "zoom",
    annotations: strips.map((strip, at) => stripTitle(strip, top(at))),
    shapes: openBandShapes(rank, divisor, lane),
    xaxis: axis({
      fixedrange: false, showgrid: false, anchor: "free", position: 0, range: zoomed ?? [0, facts.strips.end / divisor],
      showspikes: true, spikemode: "across", spikethickness: 1, spikedash: "solid", spikecolor: token("muted"), spikesnap: "cursor",
      title: { text: `time since the recording began, ${name}`, font: { size: 11, color: token("muted") } },
    }),
    ...axes,
  }), CONFIG).then(() => linkStrips(element, divisor));
};

function linkStrips(element, divisor) {
  if (element.dataset.linked) return;
  element.dataset.linked = "yes";
  element.on("plotly_relayout", (change) => {
    if (change["xaxis.autorange"]) zoomStrips([0, facts.strips.end / divisor]);
    else if ("xaxis.range[0]" in change) zoomStrips([change["xaxis.range[0]"], change["xaxis.range[1]"]]);
  });
  element.on("plotly_hover", ({ points }) => {
    const time = points[0].x * divisor;
    document.getElementById("strips-readout").textContent = `${duration(time)}: ${phaseAt(chosenRank(), time)}`;
  });
}

function zoomStrips(range) {
  for (const other of document.querySelectorAll('[data-chart="strips"].js-plotly-plot')) {
    const [from, to] = other._fullLayout.xaxis.range;
    if (from !== range[0] || to !== range[1]) Plotly.relayout(other, { "xaxis.range": range });
  }
}

function phaseAt(rank, time) {
  if (!rank) return "no phases recorded";
  const edges = unpack(rank.edges);
  const at = unpack(rank.phase).findIndex((_, band) => edges[2 * band] <= time && time <= edges[2 * band + 1]);
  const phase = at < 0 ? "in no phase" : `in ${facts.strips.bands.phases[unpack(rank.phase)[at]].name}`;
  return `rank ${rank.rank} is ${phase}`;
}

function setUpStrips() {
  document.getElementById("strips-rank")?.addEventListener("change", () => repaint("strips"));
}
