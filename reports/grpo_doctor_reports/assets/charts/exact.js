// The windows of which every span is known: bars with names, waits hatched, collectives linked.
const BAR_PX = 14; // of a close-up, at least and at most
const BAR_MOST_PX = 30;
const MOST_DEPTH = 6;
const MOST_LINKED = 80; // collectives in sight; of more only the one under the pointer is linked
const WINDOW_LEAST_PX = 40; // a narrower window stays a column of means
const CLOSE_PX = 240; // a wider one shows the spans in its spans

const exactSpans = once(() => {
  const packed = facts.lanes.exact;
  const [ranks, counts, name, depth, start, length, meeting, open, waitCounts, waitStart, waitLength] = [
    "ranks", "counts", "name", "depth", "start", "length", "meeting", "open", "waitCounts", "waitStart", "waitLength",
  ].map((column) => unpack(packed[column]));
  const lanes = new Map();
  let [from, waitFrom] = [0, 0];
  ranks.forEach((rank, at) => {
    lanes.set(rank, { rank, from, to: from + counts[at], waitFrom, waitTo: waitFrom + waitCounts[at] });
    from += counts[at];
    waitFrom += waitCounts[at];
  });
  const last = new Map(); // collective -> its span on the rank that came last, in sight or not
  const rankOf = new Map();
  for (const lane of lanes.values()) {
    for (let at = lane.from; at < lane.to; at += 1) {
      if (meeting[at] < 0) continue;
      const before = last.get(meeting[at]);
      if (before !== undefined && start[before] >= start[at]) continue;
      last.set(meeting[at], at);
      rankOf.set(meeting[at], lane.rank);
    }
  }
  const deepest = Math.min(MOST_DEPTH, depth.reduce((most, one) => Math.max(most, one), 0));
  return { lanes, name, depth, start, length, meeting, open: new Set(open), waitStart, waitLength, deepest, last, rankOf };
});

function isWholeExact() {
  return facts.lanes.exact.windows.some(({ why }) => why === "whole");
}

// The windows in sight that are wide enough for bars. Of a run that is one window its steps have to
// be: bars of less than a pixel hide each other.
function windowsInSight(scale) {
  return facts.lanes.exact.windows.filter(({ why, start, end }) => {
    const length = why === "whole" ? meanStep() ?? Infinity : end - start;
    return end > scale.from && start < scale.to && length * scale.perSecond >= WINDOW_LEAST_PX;
  });
}

function meanStep() {
  const { mean, ranks } = laneMeans();
  if (!mean || !ranks) return null;
  const steps = mean.steps.reduce((sum, count) => sum + count, 0);
  return (mean.end[mean.count - 1] - mean.start[0]) / Math.max(1, steps);
}

// Whether names of nested spans have room, so that lanes are as high as their spans are deep.
function isCloseUp(scale) {
  return windowsInSight(scale).some(({ why, start, end }) =>
    why === "whole" || (Math.min(end, scale.to) - Math.max(start, scale.from)) * scale.perSecond >= CLOSE_PX);
}

function barColor({ phase, call }, depth, paint) {
  if (call) return blend(paint.muted, paint.page, 0.55);
  const color = phase >= 0 ? facts.lanes.phases[phase].color : paint.muted;
  const isLit = phase < 0 || litPhase(facts.lanes.phases[phase].name);
  return blend(color, paint.page, (depth ? 0.68 : 1) * (isLit ? 1 : DIM_PHASE));
}

// Bars of one lane within the windows; `points` collects where its collectives begin.
function drawBars(pen, lane, box, scale, paint, points) {
  const spans = exactSpans();
  const mine = spans.lanes.get(lane.rank);
  if (!mine) return 0;
  let drawn = 0;
  const { names } = facts.lanes.exact;
  for (let at = mine.from; at < mine.to; at += 1) {
    const [begin, end] = [spans.start[at], spans.start[at] + spans.length[at]];
    const depth = spans.depth[at];
    if (end < scale.from || begin > scale.to || depth > (box.isCloseUp ? MOST_DEPTH : 0)) continue;
    const left = Math.max(LEFT_PX, scale.x(begin));
    // No phase is wider than it is: parts of a pixel mix. A collective of no length is still seen.
    const width = Math.max(depth ? 0.8 : 0, Math.min(scale.right, scale.x(end)) - left);
    const [top, height] = box.isCloseUp ? [box.top + depth * box.bar, box.bar - 1] : [box.top, box.height];
    const color = barColor(names[spans.name[at]], depth, paint);
    pen.fillStyle = color;
    pen.fillRect(left, top, width, height);
    drawn += 1;
    if (spans.open.has(at)) outlineOpen(pen, left, top, width, height, paint);
    if (spans.meeting[at] >= 0) points.push({ at, meeting: spans.meeting[at], x: scale.x(begin), y: top + height / 2 });
    const text = width > 30 && height >= 9 ? fittedText(names[spans.name[at]].name, width) : "";
    if (text) {
      pen.fillStyle = inkOver(color);
      pen.fillText(text, left + 3, top + height / 2 + 0.5);
    }
  }
  hatchWaits(pen, mine, box, scale, paint);
  return drawn;
}

function outlineOpen(pen, left, top, width, height, paint) {
  pen.strokeStyle = paint.ink;
  pen.lineWidth = 1.5;
  pen.setLineDash([2, 2]);
  pen.strokeRect(left + 1, top + 1, Math.max(1, width - 2), height - 2);
  pen.setLineDash([]);
}

function hatchWaits(pen, mine, box, scale, paint) {
  const spans = exactSpans();
  pen.fillStyle = paint.hatch;
  const height = box.isCloseUp ? box.bar - 1 : box.height;
  for (let at = mine.waitFrom; at < mine.waitTo; at += 1) {
    const [begin, end] = [spans.waitStart[at], spans.waitStart[at] + spans.waitLength[at]];
    if (end < scale.from || begin > scale.to) continue;
    const left = Math.max(LEFT_PX, scale.x(begin));
    pen.fillRect(left, box.top, Math.min(scale.right, scale.x(end)) - left, height);
  }
}

// One line per collective from rank to rank, with a dot where the last rank arrives.
function drawLinks(pen, points, paint, chosen) {
  const byMeeting = new Map();
  for (const point of points) {
    if (!byMeeting.has(point.meeting)) byMeeting.set(point.meeting, []);
    byMeeting.get(point.meeting).push(point);
  }
  const several = [...byMeeting].filter(([, met]) => met.length > 1);
  const shown = several.length <= MOST_LINKED ? several : several.filter(([meeting]) => meeting === chosen);
  for (const [meeting, met] of shown) {
    const isChosen = meeting === chosen;
    pen.strokeStyle = paint.ink;
    pen.globalAlpha = isChosen ? 1 : 0.4;
    pen.lineWidth = isChosen ? 2 : 1;
    pen.beginPath();
    met.forEach(({ x, y }, at) => (at ? pen.lineTo(x, y) : pen.moveTo(x, y)));
    pen.stroke();
    pen.globalAlpha = 1;
    const last = met.find(({ at }) => exactSpans().last.get(meeting) === at);
    if (!last) continue; // its lane is scrolled out of sight
    pen.fillStyle = paint.high;
    pen.beginPath();
    pen.arc(last.x, last.y, isChosen ? 4 : 3, 0, 2 * Math.PI);
    pen.fill();
  }
  return several.length - shown.length;
}

// The innermost span of a rank at a moment, or the one at `depth`; -1 for none.
function spanAt(rank, moment, depth = null) {
  const spans = exactSpans();
  const mine = spans.lanes.get(rank);
  let best = -1;
  for (let at = mine?.from ?? 0; at < (mine?.to ?? 0); at += 1) {
    if (spans.start[at] > moment) break;
    if (spans.start[at] + spans.length[at] < moment) continue;
    if (depth === null || spans.depth[at] <= depth) best = at;
  }
  return best;
}

function spanWords(rank, at) {
  const spans = exactSpans();
  const mine = spans.lanes.get(rank);
  const [begin, end] = [spans.start[at], spans.start[at] + spans.length[at]];
  let waits = 0;
  for (let wait = mine.waitFrom; wait < mine.waitTo; wait += 1) {
    const [from, to] = [spans.waitStart[wait], spans.waitStart[wait] + spans.waitLength[wait]];
    waits += Math.max(0, Math.min(end, to) - Math.max(begin, from));
  }
  const { name, call } = facts.lanes.exact.names[spans.name[at]];
  const wait = waits > 0 ? `, of it ${duration(waits)} waiting for other ranks` : "";
  const open = spans.open.has(at) ? ", never ended" : "";
  const last = spans.rankOf.has(spans.meeting[at]) ? `; rank ${spans.rankOf.get(spans.meeting[at])} came last` : "";
  return `rank ${rank}: ${call ? "collective " : ""}${name} for ${duration(end - begin)}${wait}${open}${last}`;
}

// Pieces of the outermost phases of a rank, for the ground that samples lie on.
function phasePieces(rank) {
  const spans = exactSpans();
  const mine = spans.lanes.get(rank);
  const pieces = [];
  for (let at = mine?.from ?? 0; at < (mine?.to ?? 0); at += 1) {
    const { phase } = facts.lanes.exact.names[spans.name[at]];
    if (spans.depth[at] === 0 && phase >= 0) pieces.push({ phase, start: spans.start[at], end: spans.start[at] + spans.length[at] });
  }
  return pieces;
}
