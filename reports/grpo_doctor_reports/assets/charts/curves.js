// Steps that a lit finding names, as lines through the curve; more than a few dozen would cover it.
const LIT_LINES = 40;

function litLines() {
  const steps = litFinding()?.steps ?? [];
  return steps.slice(0, LIT_LINES).map((step) => ({
    type: "line", x0: step, x1: step, yref: "paper", y0: 0, y1: 1, line: { color: token("high"), width: 1, dash: "dot" },
  }));
}

shapers.curves = () => [...litLines(), ...focusFrame("step")];

// Evaluations as points over the curve of training, the best of them larger and with a rim.
function evaluationTraces(evaluation) {
  if (evaluation === undefined) return [];
  const [x, y] = [unpack(evaluation.x), unpack(evaluation.v)];
  const best = x.map((step) => step === evaluation.best);
  return [{
    type: "scatter", mode: "lines+markers", x, y, hoverinfo: "text", line: { width: 1.4, color: token("transfer") },
    marker: {
      color: token("transfer"), size: best.map((is) => (is ? 11 : 6)), symbol: best.map((is) => (is ? "star" : "circle")),
      line: { color: token("ink"), width: best.map((is) => (is ? 1 : 0)) },
    },
    text: y.map((value, at) => lines([`after step ${x[at]}`, `evaluation ${shown(value, "")}${best[at] ? ", the best" : ""}`])),
  }];
}

painters.curves = (element, index) => {
  const curve = facts.curves.curves[index];
  const [x, y] = [unpack(curve.x), unpack(curve.v)];
  const single = y.filter((value) => value !== null).length === 1;
  const trace = {
    type: "scatter", mode: single ? "markers" : "lines", x, y, hoverinfo: "text", line: { width: 1.4, color: token("link") },
    marker: { color: token("link") }, connectgaps: true,
    text: y.map((value, at) => lines([`step ${x[at]}`, `${curve.label} ${shown(value, "")}`])),
  };
  return Plotly.react(element, [...spreadTraces(curve, x, {}, token("link")), trace, ...evaluationTraces(curve.evaluation)], layout({
    height: element.clientHeight, hovermode: "x", margin: { l: 40, r: 6, t: 6, b: 22 }, dragmode: "zoom",
    xaxis: axis({ nticks: 5, showgrid: false, tickformat: "d", fixedrange: false, range: rangeOf("step"), ...stepTicks(rangeOf("step")) }), yaxis: axis({ nticks: 4 }),
    shapes: shapers.curves(),
  }), CONFIG).then(() => followAxis(element, "step"));
};

// Between few steps plotly would number halves of them, and round two to the same.
function stepTicks([from, to]) {
  return to - from < 6 ? { tick0: 0, dtick: 1 } : { tick0: null, dtick: null, tickmode: "auto" };
}

axisExtras.curves = stepExtras;

function stepExtras(range) {
  return Object.fromEntries(Object.entries(stepTicks(range)).map(([name, value]) => [`xaxis.${name}`, value]));
}
