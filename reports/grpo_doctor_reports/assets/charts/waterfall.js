painters.waterfall = (element) => {
  const rows = facts.waterfall.rows;
  const y = rows.map((_, at) => at);
  const end = (row) => row.start + row.work + row.transfer + row.wait;
  const reach = (row) => Math.max(end(row), row.start + (row.p90 ?? 0));
  const hover = rows.map((row) => lines(row.hover));
  const colors = rows.map((row) => row.color);
  const opacity = rows.map((row) => (litPhase(row.phase) ? 1 : DIM));
  const bar = { type: "bar", orientation: "h", y, width: 0.62, hovertext: hover, hoverinfo: "text", textposition: "none" };
  const work = { ...bar, x: rows.map((row) => row.work), base: rows.map((row) => row.start), marker: { color: colors, opacity } };
  const wait = {
    ...bar, x: rows.map((row) => row.wait), base: rows.map((row) => row.start + row.work + row.transfer),
    marker: {
      color: colors, opacity, line: { color: colors, width: rows.map((row) => (row.wait > 0 ? 1 : 0)) },
      pattern: { shape: "/", fgcolor: colors, bgcolor: token("page"), fillmode: "replace", size: 5, solidity: 0.4 },
    },
  };
  const transfer = {
    ...bar, x: rows.map((row) => row.transfer), base: rows.map((row) => row.start + row.work),
    marker: {
      color: colors, opacity,
      pattern: { shape: "|", fgcolor: colors, bgcolor: token("page"), fillmode: "replace", size: 6, solidity: 0.6 },
    },
  };
  const whiskers = {
    type: "scatter", mode: "markers", x: rows.map(end), y, hoverinfo: "skip", marker: { size: 0.1, opacity: 0 },
    error_x: {
      type: "data", symmetric: false, color: token("ink"), thickness: 1, width: 3,
      array: rows.map((row) => (row.p90 === null ? 0 : Math.max(0, row.start + row.p90 - end(row)))),
      arrayminus: rows.map((row) => (row.p10 === null ? 0 : Math.max(0, end(row) - row.start - row.p10))),
    },
  };
  const labels = {
    type: "scatter", mode: "text", x: rows.map(reach), y, hoverinfo: "skip", cliponaxis: false,
    text: rows.map((row) => `  ${plain(row.label)}`), textposition: "middle right",
    textfont: { color: rows.map((row) => token(litPhase(row.phase) ? "ink" : "muted")), size: 12 },
  };
  const longest = Math.max(...rows.map(reach));
  return Plotly.react(element, [work, transfer, wait, whiskers, labels], layout({
    barmode: "overlay", hovermode: "closest", height: element.clientHeight,
    xaxis: axis({ range: [0, longest * (1 + 75 / Math.max(150, element.clientWidth - 175)) || 1], title: { text: "seconds since the step began", font: { size: 11, color: token("muted") } } }),
    yaxis: axis({
      range: [rows.length - 0.4, -0.6], showgrid: false, tickvals: y,
      ticktext: rows.map((row) => `${plain(row.phase)} `), tickfont: { color: token("ink"), size: 12 },
    }),
  }), CONFIG);
};
