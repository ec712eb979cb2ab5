// What the charts draw from, and what they are drawn with.
const facts = JSON.parse(document.getElementById("facts").textContent);
const painters = {}; // chart name -> (element, index) => Plotly.react(...)
let numbers = null;

function inflate(id) {
  const packed = atob(document.getElementById(id).textContent);
  const bytes = Uint8Array.from(packed, (character) => character.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip")));
}

// Array `index` of the pool: [decimals, first, difference, difference, ...] of `NumberPool`, null where there is no value.
const unpacked = new Map();
function unpack(index) {
  if (!unpacked.has(index)) {
    const [decimals, ...differences] = numbers[index];
    const scale = 10 ** Math.abs(decimals);
    let sum = 0;
    unpacked.set(index, differences.map((difference) => {
      sum += difference ?? 0;
      return difference === null ? null : decimals >= 0 ? sum / scale : sum * scale;
    }));
  }
  return unpacked.get(index);
}

// Plotly reads text as pseudo-HTML; what it shows must be what was written.
function plain(text) {
  return String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
}

function lines(texts) {
  return texts.map(plain).join("<br>");
}

function token(name) {
  const value = getComputedStyle(root).getPropertyValue(`--${name}`).trim();
  const [, light, dark] = /^light-dark\((.+), (.+)\)$/.exec(value) ?? [null, value, value];
  return isDark() ? dark : light;
}

// Three digits, as everywhere on the page: `4.70 s`, `1,350 MHz`.
function shown(value, unit) {
  if (value === null) return "no value";
  const size = Math.abs(value);
  const isSmall = size > 0 && size < 1e-4;
  const text = size >= 100 ? Math.round(value).toLocaleString("en-US")
    : Number.isInteger(value) ? String(value) : isSmall ? value.toExponential(2) : value.toPrecision(3);
  return unit ? `${text} ${unit}` : text;
}

function duration(seconds) {
  if (seconds === null) return "no value";
  if (seconds === 0) return "0 s";
  if (seconds < 0.9995) return shown(seconds * 1e3, "ms");
  if (seconds < 120) return shown(seconds, "s");
  const whole = Math.round(seconds);
  const two = (value) => String(value).padStart(2, "0");
  if (whole < 7200) return `${Math.floor(whole / 60)} min ${two(whole % 60)} s`;
  return `${Math.floor(whole / 3600)} h ${two(Math.floor((whole % 3600) / 60))} min`;
}

// What lies between the lows and highs of merged samples, as one pale area.
function spreadTraces(line, x, more, color, lineCount = 1) {
  if (line.low === undefined) return [];
  const [low, high] = [unpack(line.low), unpack(line.high)];
  const known = x.map((_, at) => at).filter((at) => low[at] !== null);
  const back = [...known].reverse();
  return [{
    type: "scatter", mode: "lines", hoverinfo: "skip", line: { width: 0 }, fill: "toself", fillcolor: color,
    opacity: Math.max(0.02, 0.16 / lineCount), ...more,
    x: [...known.map((at) => x[at]), ...back.map((at) => x[at])],
    y: [...known.map((at) => low[at]), ...back.map((at) => high[at])],
  }];
}

function axis(more) {
  return {
    gridcolor: token("line"), linecolor: token("line"), zeroline: false, ticks: "",
    tickfont: { color: token("muted"), size: 11 }, fixedrange: true, automargin: true, ...more,
  };
}

function layout(more) {
  return {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", showlegend: false,
    font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: token("ink") },
    margin: { l: 8, r: 8, t: 8, b: 8 },
    hoverlabel: {
      bgcolor: token("surface"), bordercolor: token("muted"), align: "left",
      font: { color: token("ink"), size: 12 },
    },
    ...more,
  };
}

// A double click shows the whole run in every chart, not only where it was made.
const CONFIG = { displayModeBar: false, displaylogo: false, responsive: true, doubleClick: false };

// What the reader has chosen to see, and who wants to know when that changes.
const view = {
  time: null, // [from, to] in seconds; null: the whole run
  step: null, // [from, to] in step numbers; null: all
  finding: null, // anchor of the finding that is lit
  ranks: null, // Set of ranks; null: all
  focus: null, // index into facts.steps of the step that is looked at
};
const listeners = {};

function when(what, react) {
  (listeners[what] ??= []).push(react);
}

function choose(what, value) {
  if (view[what] === value) return;
  view[what] = value;
  tell(what);
}

function tell(what) {
  (listeners[what] ?? []).forEach((react) => react());
}

// An element with text in it; nothing here reads markup.
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "style") Object.entries(value).forEach(([key, one]) => element.style.setProperty(key, one));
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}
