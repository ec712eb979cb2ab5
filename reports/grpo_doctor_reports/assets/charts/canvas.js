// What charts that are drawn by hand share: a canvas of sharp pixels, colours, hatching, ticks, text.
const LEFT_PX = 64; // as the margins of the charts that plotly draws: one axis for all
const RIGHT_PX = 8;

function penOf(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.font = `11px ${getComputedStyle(document.body).fontFamily}`;
  pen.textBaseline = "middle";
  return pen;
}

function rgbOf(color) {
  const hex = color.replace("#", "");
  return [0, 2, 4].map((at) => parseInt(hex.slice(at, at + 2), 16));
}

// `part` of a colour over another one; both are #rrggbb.
function blend(color, ground, part) {
  const [over, under] = [rgbOf(color), rgbOf(ground)];
  return `#${over.map((value, at) => Math.round(part * value + (1 - part) * under[at]).toString(16).padStart(2, "0")).join("")}`;
}

function luminance(color) {
  const linear = rgbOf(color).map((value) => (value / 255 <= 0.04045 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
}

// The text colour, dark or light, with the larger contrast.
function inkOver(color) {
  const light = luminance(color);
  return (light + 0.05) / 0.053 > 1.05 / (light + 0.05) ? "#0c0d10" : "#ffffff";
}

// Diagonal lines of a colour with nothing between them.
function hatching(pen, color) {
  const tile = document.createElement("canvas");
  const ratio = window.devicePixelRatio || 1;
  const size = 5;
  [tile.width, tile.height] = [size * ratio, size * ratio];
  const brush = tile.getContext("2d");
  brush.scale(ratio, ratio);
  brush.strokeStyle = color;
  brush.lineWidth = 1.6;
  brush.beginPath();
  for (const shift of [-size, 0, size]) {
    brush.moveTo(shift - 1, size + 1);
    brush.lineTo(shift + size + 1, -1);
  }
  brush.stroke();
  const pattern = pen.createPattern(tile, "repeat");
  pattern.setTransform(new DOMMatrix().scale(1 / ratio));
  return pattern;
}

function ticksOf(from, to, most) {
  const rough = (to - from) / Math.max(1, most);
  const power = 10 ** Math.floor(Math.log10(rough));
  const stride = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough);
  const digits = Math.max(0, -Math.floor(Math.log10(stride)));
  const first = Math.ceil(from / stride);
  return Array.from({ length: Math.max(0, Math.floor(to / stride) - first + 1) }, (_, at) => {
    const value = (first + at) * stride;
    return { value, text: value.toFixed(Math.min(9, digits)) };
  });
}

// As much of a text as fits; nothing rather than two letters.
function fittedText(text, width) {
  const letters = Math.floor((width - 6) / 6.1);
  if (letters >= text.length) return text;
  return letters < 4 ? "" : `${text.slice(0, letters - 1)}…`;
}

// Neighbouring steps as columns that are wide enough to see; a column is the mean of its steps.
const COLUMN_PX = 3;

// Unpacks what `buckets_data` and its stacks have packed; `rows` lanes follow each other in a stack.
function unpackBuckets(packed) {
  const [first, last, steps, used, kind, start, end] =
    ["first", "last", "steps", "used", "kind", "start", "end"].map((name) => unpack(packed[name]));
  const stacks = packed.stacks.map(({ phase, v, wait }) => ({ phase, v: unpack(v), wait: wait === null ? null : unpack(wait) }));
  return { first, last, steps, used, kind, kinds: packed.kinds, start, end, stacks, count: first.length };
}

// Buckets that meet [from, to), merged with those beside them until each is COLUMN_PX wide.
// `start` and `end` are in the unit of the range, `perPixel` is that unit's part of a pixel.
function columnsOf(buckets, start, end, [from, to], perPixel) {
  const columns = [];
  for (let at = 0; at < buckets.count; at += 1) {
    if (end[at] <= from || start[at] >= to) continue;
    const before = columns[columns.length - 1];
    const joins = before && buckets.used[at] === before.used && start[at] >= before.start
      && before.end - before.start < COLUMN_PX * perPixel;
    if (joins) {
      before.members.push(at);
      before.end = end[at];
    } else {
      columns.push({ members: [at], start: start[at], end: end[at], used: buckets.used[at] });
    }
  }
  return columns;
}

// Seconds of each stack in a column, weighted by steps; `offset` is where the lane begins.
function meanOf(values, column, buckets, offset = 0) {
  let [sum, steps] = [0, 0];
  for (const at of column.members) {
    const value = values[offset + at];
    if (value === null) continue;
    sum += value * buckets.steps[at];
    steps += buckets.steps[at];
  }
  return steps ? sum / steps : null;
}

// What of a column each phase takes, bottom up: [{ phase, low, high, wait }] in seconds; the wait
// is the uppermost part.
function stackOf(column, buckets, offset = 0) {
  let top = 0;
  const parts = [];
  for (const { phase, v, wait } of buckets.stacks) {
    const seconds = meanOf(v, column, buckets, offset);
    if (!(seconds > 0)) continue;
    const waits = wait === null ? 0 : Math.min(seconds, meanOf(wait, column, buckets, offset) ?? 0);
    parts.push({ phase, low: top, high: top + seconds, wait: waits });
    top += seconds;
  }
  return parts;
}

function stepsOf(column, buckets) {
  const [first, last] = [buckets.first[column.members[0]], buckets.last[column.members[column.members.length - 1]]];
  const count = column.members.reduce((sum, at) => sum + buckets.steps[at], 0);
  return { first, last, count, name: first === last ? `step ${first}` : `steps ${first} to ${last}` };
}

function kindsOf(column, buckets) {
  return [...new Set(column.members.map((at) => buckets.kinds[buckets.kind[at]]))].filter((kind) => kind !== "steady");
}
