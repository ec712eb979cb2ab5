function kindColor(kind) {
  const known = { steady: token("muted"), open: token("high"), warmup: token("line") };
  return known[kind] ?? (token(`kind-${kind === "eval" ? "eval" : kind === "checkpoint" ? "checkpoint" : "other"}`) || token("muted"));
}

shapers.steps = () => {
  const { median } = facts.steps;
  const middle = { type: "line", xref: "paper", x0: 0, x1: 1, y0: median, y1: median, line: { color: token("ink"), width: 1, dash: "dot" } };
  return [middle, ...focusFrame(knots() ? "time" : "step")];
};

const stepBuckets = once(() => {
  const packed = facts.steps.buckets;
  const [seconds, worst, worstStep, worstRank] = ["seconds", "worst", "worstStep", "worstRank"].map((name) => unpack(packed[name]));
  return { ...unpackBuckets(packed), seconds, worst, worstStep, worstRank, names: packed.names };
});

// Columns of this width of the chart: bars of the mean by phase, and the worst step of each.
function stepColumns(element) {
  const buckets = stepBuckets();
  const scale = timeUnit().divisor;
  const [from, to] = rangeOf("time");
  const width = Math.max(100, element.clientWidth - 72);
  const [start, end] = [buckets.start, buckets.end].map((moments) => moments.map((moment) => moment / scale));
  return columnsOf(buckets, start, end, [from, to], (to - from) / width).map((column) => {
    const longest = column.members.reduce((a, b) => ((buckets.worst[b] ?? -1) > (buckets.worst[a] ?? -1) ? b : a));
    return {
      ...column, ...stepsOf(column, buckets), stack: stackOf(column, buckets), kinds: kindsOf(column, buckets),
      seconds: meanOf(buckets.seconds, column, buckets),
      worst: buckets.worst[longest], worstStep: buckets.worstStep[longest], worstRank: buckets.worstRank[longest],
    };
  });
}

function columnWords(column) {
  const { names } = stepBuckets();
  const { median } = facts.steps;
  const many = column.count > 1;
  if (column.seconds === null) return [`${column.name}: never ended`];
  return [
    `${column.name}: ${many ? "mean " : ""}${duration(column.seconds)}, ${change(column.seconds, median)} against the median`,
    many && column.worst !== null ? `longest: step ${column.worstStep} with ${duration(column.worst)}` : "",
    column.worstRank >= 0 ? `rank ${column.worstRank} was the slowest${many ? " in it" : ""}` : "",
    ...[...column.stack].reverse().map(({ phase, low, high, wait }) =>
      `${names[phase].name} ${duration(high - low)}${wait > 0 ? `, of it wait ${duration(wait)}` : ""}`),
    column.kinds.length ? `${column.kinds.join(", ")}${column.used ? "" : ", not in the mean"}` : "",
  ].filter(Boolean);
}

// Lit steps have a line under their columns; no bar changes its colour.
function litBoxes(columns, bottom) {
  const finding = litFinding();
  if (!finding || !finding.steps.length) return [];
  return columns.filter(({ first, last }) => finding.steps.some((step) => first <= step && step <= last))
    .map(({ start, end }) => [start, end, bottom, 0]);
}

painters.steps = (element) => {
  const { names, kinds } = stepBuckets();
  const columns = stepColumns(element);
  element.columns = columns;
  const top = Math.max(1e-9, ...columns.map(({ worst, seconds }) => worst ?? seconds ?? 0));
  const below = -0.045 * top;
  const parts = columns.flatMap(({ start, end, stack }) => stack.map((part) => ({ ...part, start, end })));
  const bars = names.map(({ name, color }, phase) => ({
    ...outlines(parts.filter((part) => part.phase === phase).map(({ start, end, low, high }) => [start, end, low, high])),
    fillcolor: color, opacity: litPhase(name) ? 1 : DIM_PHASE,
  }));
  const marks = columns.filter(({ worst, seconds }) => worst !== null && worst > 1.005 * seconds);
  const worst = {
    type: "scatter", mode: "lines", hoverinfo: "skip", connectgaps: false, line: { color: token("ink"), width: 1.5 },
    x: marks.flatMap(({ start, end }) => [start, end, null]), y: marks.flatMap((column) => [column.worst, column.worst, null]),
  };
  const apart = kinds.filter((kind) => kind !== "steady").map((kind) => ({
    ...outlines(columns.filter((column) => column.kinds.includes(kind)).map(({ start, end }) => [start, end, below, 0.3 * below])),
    fillcolor: kindColor(kind),
  }));
  const lit = { ...outlines(litBoxes(columns, below)), fillcolor: token("link") };
  const points = {
    type: "scatter", mode: "markers", x: columns.map(({ start, end }) => (start + end) / 2),
    y: columns.map(({ worst: longest, seconds }) => longest ?? seconds ?? 0), hoverinfo: "text",
    marker: { size: 9, opacity: 0 }, text: columns.map((column) => lines(columnWords(column))),
  };
  const { name } = timeUnit();
  return Plotly.react(element, [...bars, ...apart, lit, worst, points], layout({
    height: element.clientHeight, margin: { l: 64, r: 8, t: 6, b: 38 }, hovermode: "x", hoverdistance: 40, dragmode: "zoom",
    xaxis: timeAxis(`time since the recording began, ${name}`),
    yaxis: axis({ range: [below, 1.06 * top], nticks: 4, ticksuffix: " s ", automargin: false }),
    shapes: shapers.steps(),
  }), CONFIG).then(() => {
    followAxis(element, "time");
    if (element.dataset.clicks) return;
    element.dataset.clicks = "yes";
    element.on("plotly_click", ({ points: [{ pointNumber }] }) => {
      const column = element.columns[pointNumber];
      const at = column ? unpack(facts.steps.number).indexOf(column.worstStep) : -1;
      if (at >= 0) focusStep(at);
    });
  });
};

// What a column stands for depends on the range, so that another range is another drawing.
movers.steps = painters.steps;
