painters.curves = (element, index) => {
  const curve = facts.curves.curves[index];
  const [x, y] = [unpack(curve.x), unpack(curve.v)];
  const single = y.filter((value) => value !== null).length === 1;
  const trace = {
    type: "scatter", mode: single ? "markers" : "lines", x, y, hoverinfo: "text", line: { width: 1.4, color: token("link") },
    marker: { color: token("link") }, connectgaps: true,
    text: y.map((value, at) => lines([`step ${x[at]}`, `${curve.label} ${shown(value, "")}`])),
  };
  return Plotly.react(element, [...spreadTraces(curve, x, {}, token("link")), trace], layout({
    height: element.clientHeight, hovermode: "x", margin: { l: 40, r: 6, t: 6, b: 22 },
    xaxis: axis({ nticks: 5, showgrid: false, tickformat: "d" }), yaxis: axis({ nticks: 4 }),
  }), CONFIG);
};
