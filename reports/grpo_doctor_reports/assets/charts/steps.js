function kindColor(kind) {
  const known = { steady: token("muted"), open: token("high"), warmup: token("line") };
  return known[kind] ?? (token(`kind-${kind === "eval" ? "eval" : kind === "checkpoint" ? "checkpoint" : "other"}`) || token("muted"));
}

shapers.steps = () => {
  const { median } = facts.steps;
  const middle = { type: "line", xref: "paper", x0: 0, x1: 1, y0: median, y1: median, line: { color: token("ink"), width: 1, dash: "dot" } };
  return [middle, ...focusFrame(knots.steps() ? "time" : "step")];
};

painters.steps = (element) => {
  const { kinds, median } = facts.steps;
  const [number, seconds, kind, slowest] = [facts.steps.number, facts.steps.seconds, facts.steps.kind, facts.steps.slowest].map(unpack);
  const isTimed = knots.steps() !== null;
  const { divisor, name } = timeUnit();
  const [start, end] = isTimed
    ? [unpack(facts.steps.start).map((one) => one / divisor), unpack(facts.steps.end).map((one) => one / divisor)]
    : [number.map((one) => one - 0.5), number.map((one) => one + 0.5)];
  const boxes = (wanted, light) => number.flatMap((one, at) =>
    (kind[at] === wanted && litStep(one) === light ? [[start[at], end[at], 0, seconds[at]]] : []));
  const bars = kinds.flatMap((one, at) => [true, false].map((light) => (
    { ...outlines(boxes(at, light)), fillcolor: kindColor(one), opacity: light ? 0.9 : DIM })));
  const tops = {
    type: "scatter", mode: "markers", x: number.map((_, at) => (start[at] + end[at]) / 2), y: seconds, hoverinfo: "text",
    marker: { size: 9, opacity: 0 },
    text: number.map((one, at) => lines([
      `step ${one}: ${duration(seconds[at])}, ${change(seconds[at], median)} against the median`,
      slowest[at] >= 0 ? `rank ${slowest[at]} was the slowest` : "", kinds[kind[at]] === "steady" ? "" : kinds[kind[at]],
    ].filter(Boolean))),
  };
  const range = isTimed ? {} : { range: rangeOf("step"), tickformat: "d" };
  return Plotly.react(element, [...bars, tops], layout({
    height: element.clientHeight, margin: { l: 64, r: 8, t: 6, b: 38 }, hovermode: "x", hoverdistance: 40, dragmode: "zoom",
    xaxis: timeAxis(isTimed ? `time since the recording began, ${name}` : "step", range),
    yaxis: axis({ rangemode: "tozero", nticks: 4, ticksuffix: " s ", automargin: false }),
    shapes: shapers.steps(),
  }), CONFIG).then(() => {
    followAxis(element, isTimed ? "time" : "step");
    if (element.dataset.clicks) return;
    element.dataset.clicks = "yes";
    element.on("plotly_click", ({ points }) => focusStep(points[0].pointNumber));
  });
};
