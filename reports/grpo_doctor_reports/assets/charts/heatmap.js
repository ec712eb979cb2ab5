function evenly(from, to, most) {
  const stride = Math.max(1, Math.ceil((to - from) / most));
  return Array.from({ length: Math.max(1, Math.ceil((to - from) / stride)) }, (_, at) => from + at * stride);
}

// One slow first step must not bleach the rest: colour stops at the 98th percentile if that is far below.
function colorRange(values) {
  const sorted = values.filter((value) => value !== null).sort((a, b) => a - b);
  if (!sorted.length) return [0, 1];
  const high = sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * 0.98))];
  const most = sorted[sorted.length - 1];
  const top = most > 1.6 * high ? high : most;
  const low = sorted[0] > 0.5 * top ? sorted[0] : 0;
  return [low, top > low ? top : low + 1e-9];
}

// Runs of neighbours among places in order, as [first, last].
function runsOf(places) {
  const runs = [];
  for (const place of places) {
    const before = runs[runs.length - 1];
    if (before && place === before[1] + 1) before[1] = place; else runs.push([place, place]);
  }
  return runs;
}

// What a lit finding is about has a frame; the colours of all cells stay those of the scale.
function frames(rows, steps) {
  const finding = litFinding();
  if (!finding || !(finding.ranks.length || finding.steps.length)) return [];
  const within = (items, isLit) => runsOf(items.flatMap((item, at) => (isLit(item) ? [at] : [])));
  const [down, across] = [within(rows, ({ rank }) => litRank(rank)), within(steps, litStep)];
  const x = [];
  const y = [];
  for (const [top, bottom] of down) {
    for (const [left, right] of across) {
      const [x0, x1, y0, y1] = [steps[left] - 0.5, steps[right] + 0.5, top - 0.5, bottom + 0.5];
      x.push(x0, x1, x1, x0, x0, null);
      y.push(y0, y0, y1, y1, y0, null);
    }
  }
  const frame = { type: "scatter", mode: "lines", x, y, hoverinfo: "skip", connectgaps: false };
  return [{ ...frame, line: { color: token("page"), width: 5 } }, { ...frame, line: { color: token("high"), width: 2 } }];
}

axisExtras.heatmap = stepExtras;
shapers.heatmap = () => focusFrame("step");

painters.heatmap = (element) => {
  const { ranks, options } = facts.heatmap;
  const option = options[Number(document.getElementById("heatmap-kind").value)];
  const steps = unpack(facts.heatmap.steps);
  const flat = unpack(option.z);
  const width = steps.length;
  const rows = ranks.map((rank, at) => ({ rank, z: flat.slice(at * width, (at + 1) * width) })).filter(({ rank }) => isShown(rank));
  const label = plain(option.label); // the only words of the document in a cell's text
  const hover = rows.map(({ rank, z }) => z.map((value, at) => `rank ${rank}, step ${steps[at]}<br>${label} ${duration(value)}`));
  const [zmin, zmax] = colorRange(rows.flatMap(({ z }) => z));
  const height = Math.min(560, Math.max(150, 74 + 22 * rows.length));
  element.style.setProperty("--plot-height", `${height}px`);
  const range = rangeOf("step");
  const y = evenly(0, rows.length, Math.max(2, Math.floor(height / 16)));
  const trace = {
    type: "heatmap", x: steps, z: rows.map(({ z }) => z), text: hover, hoverinfo: "text", zmin, zmax, hoverongaps: false,
    xgap: width < 200 ? 1 : 0, ygap: rows.length < 40 ? 1 : 0,
    colorscale: [0, 1, 2, 3, 4].map((at) => [at / 4, token(`heat-${at}`)]),
    colorbar: {
      thickness: 9, outlinewidth: 0, ticks: "", nticks: 5, ticksuffix: " s", x: 1.005, xpad: 6,
      tickfont: { size: 11, color: token("muted") },
    },
  };
  return Plotly.react(element, [trace, ...frames(rows, steps)], layout({
    height, hovermode: "closest", dragmode: "zoom", margin: { l: 64, r: 8, t: 4, b: 38 },
    xaxis: axis({
      ...stepTicks(range), tickformat: "d", range, fixedrange: false, showgrid: false, automargin: false,
      title: { text: "step", font: { size: 11, color: token("muted") }, standoff: 6 },
    }),
    yaxis: axis({ tickvals: y, ticktext: y.map((at) => `rank ${rows[at]?.rank ?? ""} `), showgrid: false, automargin: false, range: [rows.length - 0.5, -0.5] }),
    shapes: shapers.heatmap(),
  }), CONFIG).then(() => {
    followAxis(element, "step");
    if (element.dataset.clicks) return;
    element.dataset.clicks = "yes";
    element.on("plotly_click", ({ points }) => {
      const at = facts.steps ? unpack(facts.steps.number).indexOf(points[0].x) : -1;
      if (at >= 0) focusStep(at);
    });
  });
};

function setUpHeatmap() {
  document.getElementById("heatmap-kind")?.addEventListener("change", () => repaint("heatmap"));
  when("finding", chooseLitMatrix);
}

// A finding about phases is best seen in the matrix of the first of them; without a light all is as before.
let matrixBefore = null;
function chooseLitMatrix() {
  const select = document.getElementById("heatmap-kind");
  if (!select) return;
  const phase = litFinding()?.phases[0]?.split("/")[0];
  const at = facts.heatmap.options.findIndex(({ label }) => label === phase);
  if (at >= 0) {
    matrixBefore ??= select.value;
    select.value = String(at);
  } else if (matrixBefore !== null) {
    select.value = matrixBefore;
    matrixBefore = null;
  }
}
