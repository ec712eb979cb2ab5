// What the charts draw from. `facts` are unpacked a moment after the page opens, before `start`.
let facts = null;

function inflate(id) {
  const packed = atob(document.getElementById(id).textContent);
  const bytes = Uint8Array.from(packed, (character) => character.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip")));
}

// A `Column` of Python: [decimals, first, difference, difference, ...], null where there is no value.
function unpack([decimals, ...differences]) {
  const scale = 10 ** Math.abs(decimals);
  let sum = 0;
  return differences.map((difference) => {
    sum += difference ?? 0;
    return difference === null ? null : decimals >= 0 ? sum / scale : sum * scale;
  });
}

// The columns in a value as arrays; everything else stays as it is.
function unpackAll(value) {
  if (Array.isArray(value)) return value.map(unpackAll);
  if (value === null || typeof value !== "object") return value;
  if (Array.isArray(value.n)) return unpack(value.n);
  return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, unpackAll(one)]));
}

function token(name) {
  const value = getComputedStyle(root).getPropertyValue(`--${name}`).trim();
  const [, light, dark] = /^light-dark\((.+), (.+)\)$/.exec(value) ?? [null, value, value];
  return isDark() ? dark : light;
}

// Three digits, as everywhere on the page: `4.70 s`, `12 min 04 s`.
function duration(seconds) {
  if (seconds === null) return "no value";
  if (seconds === 0) return "0 s";
  const three = (value) => (value >= 100 ? String(Math.round(value)) : value.toPrecision(3));
  if (seconds < 0.9995) return `${three(seconds * 1e3)} ms`;
  if (seconds < 120) return `${three(seconds)} s`;
  const whole = Math.round(seconds);
  const two = (value) => String(value).padStart(2, "0");
  if (whole < 7200) return `${Math.floor(whole / 60)} min ${two(whole % 60)} s`;
  return `${Math.floor(whole / 3600)} h ${two(Math.floor((whole % 3600) / 60))} min`;
}

function percent(share) {
  const value = 100 * share;
  return value > 0 && value < 0.1 ? "<0.1%" : `${value.toFixed(value < 9.95 ? 1 : 0).replace(/\.0$/, "")}%`;
}

// What the reader has chosen to see, and who wants to know when that changes.
const view = {
  time: null, // [from, to] in seconds; null: the whole run
  step: null, // [from, to] in step numbers; null: all
  finding: null, // anchor of the finding that is highlighted
  focus: null, // index into facts.steps of the step that is looked at
};
const listeners = {};

function when(what, react) {
  (listeners[what] ??= []).push(react);
}

function choose(what, value) {
  if (view[what] === value) return;
  view[what] = value;
  notify(what);
}

function notify(what) {
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
