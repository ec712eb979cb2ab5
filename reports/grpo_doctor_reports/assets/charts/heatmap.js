function evenly(count, most) {
  const stride = Math.max(1, Math.ceil(count / most));
  return Array.from({ length: Math.ceil(count / stride) }, (_, at) => at * stride);
}

// One slow first step must not bleach the rest: colour stops at the 98th percentile if that is far below.
function colorRange(values) {
  const sorted = values.filter((value) => value !== null).sort((a, b) => a - b);
  const high = sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * 0.98))];
  const most = sorted[sorted.length - 1];
  const top = most > 1.6 * high ? high : most;
  const low = sorted[0] > 0.5 * top ? sorted[0] : 0;
  return [low, top > low ? top : low + 1e-9];
}

painters.heatmap = (element) => {
  const { ranks, steps, stepsPerColumn, options } = facts.heatmap;
  const option = options[Number(document.getElementById("heatmap-kind").value)];
  const firstSteps = unpack(steps);
  const flat = unpack(option.z);
  const width = firstSteps.length;
  const rows = ranks.map((_, at) => flat.slice(at * width, (at + 1) * width));
  const column = stepsPerColumn > 1 ? "around step" : "step";
  const hover = rows.map((row, rank) => row.map((value, at) =>
    lines([`rank ${ranks[rank]}, ${column} ${firstSteps[at]}`, `${option.label} ${duration(value)}`])));
  const [zmin, zmax] = colorRange(flat);
  const x = evenly(width, Math.max(2, Math.floor(element.clientWidth / 80)));
  const y = evenly(ranks.length, Math.max(2, Math.floor(element.clientHeight / 16)));
  const trace = {
    type: "heatmap", z: rows, text: hover, hoverinfo: "text", zmin, zmax, hoverongaps: false,
    xgap: width < 200 ? 1 : 0, ygap: 1,
    colorscale: [0, 1, 2, 3, 4].map((at) => [at / 4, token(`heat-${at}`)]),
    colorbar: {
      thickness: 9, outlinewidth: 0, ticks: "", nticks: 5, ticksuffix: " s", x: 1.005, xpad: 6,
      tickfont: { size: 11, color: token("muted") },
    },
  };
  return Plotly.react(element, [trace], layout({
    height: element.clientHeight, hovermode: "closest",
    xaxis: axis({ tickvals: x, ticktext: x.map((at) => String(firstSteps[at])), showgrid: false, title: { text: "step", font: { size: 11, color: token("muted") } } }),
    yaxis: axis({ tickvals: y, ticktext: y.map((at) => `rank ${ranks[at]} `), showgrid: false, range: [ranks.length - 0.5, -0.5] }),
  }), CONFIG);
};

function setUpHeatmap() {
  document.getElementById("heatmap-kind")?.addEventListener("change", () => repaint("heatmap"));
}
