const STRIP_PX = 58;
const STRIP_GAP_PX = 26;
const AXIS_PX = 40;

// Strips lie on the phases of one rank where those are exact: one that is lit, else the first shown.
function backgroundRank() {
  if (!facts.lanes) return null;
  const lit = litFinding()?.ranks ?? [];
  const lanes = lanesShown();
  return (lanes.find(({ rank }) => lit.includes(rank)) ?? lanes[0])?.rank ?? null;
}

function tints(rank, divisor) {
  if (rank === null) return [];
  const moments = litMoments();
  const pieces = phasePieces(rank);
  return facts.lanes.phases.flatMap(({ name, color }, phase) => [true, false].map((light) => {
    const mine = pieces.filter((one) => one.phase === phase && (litPhase(name) && isLitTime(moments, one.start, one.end)) === light);
    const opacity = litFinding() ? (light ? 0.4 : 0.06) : 0.16;
    return { ...outlines(mine.map(({ start, end }) => [start / divisor, end / divisor, 0, 1])), yaxis: "y", fillcolor: color, opacity };
  }));
}

// A line of a rank that is filtered out is not drawn; GPUs and hosts stay.
function isLineShown(line) {
  const rank = /^rank (\d+)$/.exec(line.label);
  return !rank || isShown(Number(rank[1]));
}

function stripTraces(strip, yaxis, divisor, unitOfTime) {
  const drawn = strip.lines.filter(isLineShown);
  const many = drawn.length > 1;
  return drawn.flatMap((line) => {
    const x = unpack(line.t).map((time) => time / divisor);
    const y = unpack(line.v);
    const trace = {
      type: "scatter", mode: "lines", x, y, yaxis, hoverinfo: "text", line: { width: many ? 0.9 : 1.3, color: token("ink") },
      opacity: many ? 0.5 : 1, connectgaps: false,
      text: y.map((value, at) => lines([`${line.label}: ${shown(value, strip.unit)}`, `at ${shown(x[at], unitOfTime)}`])),
    };
    return [...spreadTraces(line, x, { yaxis }, token("ink"), drawn.length), trace];
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
  const { divisor, name } = timeUnit();
  const height = 8 + AXIS_PX + strips.length * (STRIP_PX + STRIP_GAP_PX);
  const inner = height - AXIS_PX - 8;
  const top = (at) => 1 - ((at + 1) * STRIP_GAP_PX + at * STRIP_PX) / inner;
  const axes = { yaxis: axis({ domain: [0, 1], range: [0, 1], visible: false, anchor: "x" }) };
  const traces = tints(backgroundRank(), divisor);
  strips.forEach((strip, at) => {
    axes[`yaxis${at + 2}`] = stripAxis(strip, [Math.max(0, top(at) - STRIP_PX / inner), top(at)]);
    traces.push(...stripTraces(strip, `y${at + 2}`, divisor, name));
  });
  return Plotly.react(element, traces, layout({
    height, margin: { l: 64, r: 8, t: 8, b: AXIS_PX }, hovermode: "closest", dragmode: "zoom",
    annotations: strips.map((strip, at) => stripTitle(strip, top(at))),
    xaxis: timeAxis(`time since the recording began, ${name}`, {
      anchor: "free", position: 0, showspikes: true, spikemode: "across", spikethickness: 1, spikedash: "solid",
      spikecolor: token("muted"), spikesnap: "cursor",
    }),
    ...axes,
  }), CONFIG).then(() => { followAxis(element, "time"); sayStrip(element); });
};

function sayStrip(element) {
  if (element.dataset.says) return;
  element.dataset.says = "yes";
  element.on("plotly_hover", ({ points }) => {
    const time = points[0].x * timeUnit().divisor;
    say(`${duration(time)}: ${facts.lanes ? meanWordsAt(time) : "no phases recorded"}`);
  });
}
