// The run over time: the mean of all ranks and a lane for each. Far away the height of a column is
// shared by the phases as its mean step's time is; close to a window of exact spans, bars.
const HEAD_PX = 36; // ticks, and the ribbon of windows and unusual steps
const MEAN_PX = 64;
const LANE_PX = 40;
const LEAST_PX = 60;
const MOST_PX = 560;
const NARROWEST_LANE_PX = 14;
const DIM_PHASE = 0.25;
const DIM = 0.12;

// All bands of one phase as one outline each of four corners: one SVG path instead of thousands.
function outlines(boxes) {
  const x = [];
  const y = [];
  for (const [from, to, low, high] of boxes) {
    x.push(from, from, to, to, from, null);
    y.push(low, high, high, low, low, null);
  }
  return { type: "scatter", mode: "lines", x, y, fill: "toself", line: { width: 0 }, hoverinfo: "skip", connectgaps: false };
}

// The step that is looked at, as a frame.
function focusFrame(kind) {
  if (view.focus === null || !facts.steps) return [];
  const line = { color: token("ink"), width: 1.5 };
  const frame = { type: "rect", xref: "x", yref: "paper", y0: 0, y1: 1, line, layer: "above" };
  if (kind === "step") {
    const { number } = stepFacts(view.focus);
    return [{ ...frame, x0: number - 0.5, x1: number + 0.5 }];
  }
  const { divisor } = timeUnit();
  return [{ ...frame, x0: unpack(facts.steps.start)[view.focus] / divisor, x1: unpack(facts.steps.end)[view.focus] / divisor }];
}

function timeAxis(title, more = {}) {
  return axis({
    fixedrange: false, showgrid: false, range: rangeOf("time"), automargin: false,
    title: { text: title, font: { size: 11, color: token("muted") }, standoff: 6 }, ...more,
  });
}

const laneMeans = once(() => {
  const { mean, ranks } = facts.lanes;
  const byRank = new Map();
  if (ranks) unpack(ranks.ranks).forEach((rank, at) => byRank.set(rank, at));
  return { mean: mean && unpackBuckets(mean), ranks: ranks && unpackBuckets(ranks), byRank };
});

// Every rank that is asked for, also those without phases of their own.
function lanesShown() {
  const known = new Set([...laneMeans().byRank.keys(), ...exactSpans().lanes.keys()]);
  return [...known].sort((a, b) => a - b).filter(isShown).map((rank) => ({ rank }));
}

function lanesHeight(lanes) {
  return Math.min(MOST_PX, Math.max(LEAST_PX, LANE_PX * lanes));
}

function timeScale(element) {
  const [from, to] = view.time ?? wholeTime();
  const right = Math.max(LEFT_PX + 50, element.clientWidth - RIGHT_PX);
  const perSecond = (right - LEFT_PX) / Math.max(1e-9, to - from);
  return {
    from, to, right, perSecond,
    x: (moment) => LEFT_PX + (moment - from) * perSecond,
    moment: (x) => from + (x - LEFT_PX) / perSecond,
  };
}

function lanesPaint(pen) {
  const [page, ink, muted, line, sunken, high, link] = ["page", "ink", "muted", "line", "sunken", "high", "link"].map(token);
  return { page, ink, muted, line, sunken, high, link, hatch: hatching(pen, page) };
}

function buildLanes(element) {
  const head = make("canvas", { class: "lanes-head" });
  const body = make("canvas", { class: "lanes-body" });
  const size = make("div", { class: "lanes-size" }, body);
  const scroll = make("div", { class: "lanes-view", tabindex: "0", role: "img", "aria-label": `Timeline: ${facts.lanes.summary}` }, size);
  const selection = make("div", { class: "lanes-selection", hidden: "" });
  element.replaceChildren(head, scroll, selection);
  element.parts = { head, body, size, scroll, selection };
  element.chosen = null; // the collective under the pointer
  scroll.addEventListener("scroll", () => drawLanes(element));
  new ResizeObserver(() => { if (element.parts.width !== element.clientWidth) drawLanes(element); }).observe(element);
  handleLanes(element);
}

painters.lanes = (element) => {
  if (!element.parts) buildLanes(element);
  drawLanes(element);
  element.dataset.follows = "time";
};
painters.lanes.needsNoPlotly = true;
movers.lanes = painters.lanes;

function drawLanes(element) {
  const { body, size, scroll, head } = element.parts;
  const lanes = lanesShown();
  const scale = timeScale(element);
  const closeUp = isCloseUp(scale);
  const height = lanesHeight(lanes.length);
  const fitting = Math.max(NARROWEST_LANE_PX, Math.min(LANE_PX, Math.floor(height / Math.max(1, lanes.length))));
  const laneHeight = closeUp ? Math.max(fitting, (1 + exactSpans().deepest) * BAR_PX + 6) : fitting;
  element.shownRange = [scale.from / timeUnit().divisor, scale.to / timeUnit().divisor];
  element.parts.width = element.clientWidth;
  element.laneHeight = laneHeight;
  element.barHeight = Math.min(BAR_MOST_PX, Math.floor((laneHeight - 6) / (1 + exactSpans().deepest)));
  element.lanesDrawn = lanes.length;
  size.style.height = `${Math.max(height, laneHeight * lanes.length)}px`;
  scroll.style.height = `${height}px`;
  element.style.setProperty("--plot-height", `${headHeight() + height}px`);
  drawHead(penOf(head, element.clientWidth, headHeight()), element, scale);
  element.viewShares = sharesInView(element);
  const pen = penOf(body, element.clientWidth, height);
  const paint = lanesPaint(pen);
  const first = Math.max(0, Math.floor(scroll.scrollTop / laneHeight));
  const beyond = Math.min(lanes.length, Math.ceil((scroll.scrollTop + height) / laneHeight));
  const columns = laneColumns(scale);
  const points = [];
  element.barsDrawn = 0;
  for (let at = first; at < beyond; at += 1) {
    const top = at * laneHeight - scroll.scrollTop;
    const box = { top: top + 1, height: laneHeight - 3, isCloseUp: closeUp, bar: element.barHeight };
    element.barsDrawn += drawLane(pen, lanes[at], box, scale, columns, paint, points);
    drawLaneName(pen, lanes[at].rank, at, top, laneHeight, paint);
  }
  element.linksLeftOut = closeUp ? drawLinks(pen, points, paint, element.chosen) : 0;
  drawFocus(pen, scale, height, paint);
  sayBelow(pen, lanes.length - beyond, height, paint);
  sayView(element, lanes, scale);
}

function headHeight() {
  return HEAD_PX + (laneMeans().mean ? MEAN_PX : 0);
}

function laneColumns(scale) {
  const { ranks } = laneMeans();
  return ranks ? columnsOf(ranks, ranks.start, ranks.end, [scale.from, scale.to], 1 / scale.perSecond) : [];
}

function drawLane(pen, lane, box, scale, columns, paint, points) {
  const { ranks, byRank } = laneMeans();
  pen.fillStyle = paint.sunken;
  pen.fillRect(LEFT_PX, box.top, scale.right - LEFT_PX, box.height);
  pen.save();
  pen.beginPath();
  pen.rect(LEFT_PX, box.top, scale.right - LEFT_PX, box.height);
  pen.clip();
  const shared = box.isCloseUp ? { ...box, height: Math.min(box.height, LANE_PX) } : box;
  if (byRank.has(lane.rank)) {
    const offset = byRank.get(lane.rank) * ranks.count;
    for (const column of columns) drawColumn(pen, column, stackOf(column, ranks, offset), shared, scale, paint);
  }
  for (const { start, end } of windowsInSight(scale)) {
    const [left, right] = [Math.max(LEFT_PX, scale.x(start)), Math.min(scale.right, scale.x(end))];
    pen.fillStyle = paint.sunken;
    pen.fillRect(left, box.top, right - left, box.height);
  }
  const bars = windowsInSight(scale).length ? drawBars(pen, lane, box, scale, paint, points) : 0;
  pen.restore();
  return bars;
}

// One column: the phases from the top down, each as high as its share; its wait is hatched.
function drawColumn(pen, column, stack, box, scale, paint) {
  const whole = stack.length ? stack[stack.length - 1].high : 0;
  if (!whole) return;
  // Whole pixels: edges between two would shimmer over a thousand columns.
  const left = Math.max(LEFT_PX, Math.round(scale.x(column.start)));
  const right = Math.min(scale.right, Math.ceil(scale.x(column.end)));
  const width = Math.max(1, right - left - (right - left > 14 ? 1 : 0));
  pen.globalAlpha = column.used ? 1 : 0.45;
  for (const { phase, low, high, wait } of stack) {
    const { name, color } = facts.lanes.phases[phase];
    const [top, bottom] = [box.top + (low / whole) * box.height, box.top + (high / whole) * box.height];
    const shade = name === "unattributed" ? blend(color, paint.page, 0.35) : color;
    pen.fillStyle = litPhase(name) ? shade : blend(shade, paint.page, DIM_PHASE);
    pen.fillRect(left, top, width, bottom - top);
    if (wait > 0) {
      const high_ = (wait / whole) * box.height;
      pen.fillStyle = paint.hatch;
      pen.fillRect(left, bottom - high_, width, high_);
    }
  }
  pen.globalAlpha = 1;
}

function drawLaneName(pen, rank, at, top, laneHeight, paint) {
  const every = Math.ceil(12 / laneHeight);
  const isNamed = litFinding()?.ranks.includes(rank);
  if (at % every && !isNamed) return;
  pen.fillStyle = isNamed ? paint.link : paint.muted;
  pen.textAlign = "right";
  pen.fillText(`rank ${rank}`, LEFT_PX - 6, top + Math.max(6, Math.min(laneHeight, BAR_PX + 2) / 2));
  pen.textAlign = "left";
  if (isNamed) pen.fillRect(LEFT_PX - 3, top, 2.5, laneHeight - 1);
}

function drawHead(pen, element, scale) {
  const paint = lanesPaint(pen);
  // Close to a step, its moments are told from where the view begins: 12 min 4 s and 0.25 s.
  const isClose = scale.to - scale.from < 10 && scale.from > 10;
  const base = isClose ? Math.floor(scale.from) : 0;
  const { divisor, name } = isClose ? { divisor: 1, name: clock(base) } : timeUnit();
  pen.fillStyle = paint.muted;
  pen.textAlign = "right";
  pen.fillText(name, LEFT_PX - 6, 9);
  pen.textAlign = "center";
  const [from, to] = [(scale.from - base) / divisor, (scale.to - base) / divisor];
  for (const { value, text: number } of ticksOf(from, to, (scale.right - LEFT_PX) / 90)) {
    const text = isClose ? `+${number} s` : number;
    const x = scale.x(base + value * divisor);
    if (x < LEFT_PX + 8 || x > scale.right - 8) continue;
    pen.fillRect(x, 16, 1, 3);
    pen.fillText(text, x, 9);
  }
  pen.textAlign = "left";
  drawRibbon(pen, scale, paint);
  const { mean } = laneMeans();
  if (!mean) return;
  const box = { top: HEAD_PX, height: MEAN_PX - 8 };
  pen.fillStyle = paint.sunken;
  pen.fillRect(LEFT_PX, box.top, scale.right - LEFT_PX, box.height);
  const columns = columnsOf(mean, mean.start, mean.end, [scale.from, scale.to], 1 / scale.perSecond);
  element.inView = columns.map((column) => ({ ...stepsOf(column, mean), used: column.used, stack: stackOf(column, mean) }));
  for (const column of columns) drawColumn(pen, column, stackOf(column, mean), box, scale, paint);
  pen.fillStyle = paint.ink;
  pen.textAlign = "right";
  pen.fillText("mean", LEFT_PX - 6, HEAD_PX + box.height / 2);
  pen.textAlign = "left";
}

// Whole seconds as 14:53 or 1:14:53.
function clock(seconds) {
  const parts = [Math.floor(seconds / 3600), Math.floor((seconds % 3600) / 60), seconds % 60];
  return (parts[0] ? parts : parts.slice(1)).map((part, at) => (at ? String(part).padStart(2, "0") : part)).join(":");
}

// Marks over the lanes: exact windows, steps of another kind, lit steps.
function drawRibbon(pen, scale, paint) {
  const { mean } = laneMeans();
  const strip = (start, end, top, color) => {
    if (end < scale.from || start > scale.to) return;
    const left = Math.max(LEFT_PX, scale.x(start));
    pen.fillStyle = color;
    pen.fillRect(left, top, Math.max(2, Math.min(scale.right, scale.x(end)) - left), 4);
  };
  if (!isWholeExact()) for (const { start, end } of facts.lanes.exact.windows) strip(start, end, 22, paint.link);
  for (let at = 0; mean && at < mean.count; at += 1) {
    const kind = mean.kinds[mean.kind[at]];
    if (kind !== "steady") strip(mean.start[at], mean.end[at], 28, kindColor(kind));
  }
  for (const [start, end] of litMoments() ?? []) strip(start, end, 28, paint.link);
}

// Lanes that are out of sight are counted, on paper too.
function sayBelow(pen, count, height, paint) {
  if (count <= 0) return;
  pen.fillStyle = paint.page;
  pen.fillRect(0, height - 15, LEFT_PX - 3, 15);
  pen.fillStyle = paint.ink;
  pen.textAlign = "right";
  pen.fillText(`${count} below`, LEFT_PX - 6, height - 7);
  pen.textAlign = "left";
}

function drawFocus(pen, scale, height, paint) {
  const [frame] = focusFrame("time");
  if (!frame) return;
  const { divisor } = timeUnit();
  const [left, right] = [scale.x(frame.x0 * divisor), scale.x(frame.x1 * divisor)];
  pen.save();
  pen.beginPath();
  pen.rect(LEFT_PX, 0, scale.right - LEFT_PX, height);
  pen.clip();
  pen.strokeStyle = paint.ink;
  pen.lineWidth = 1.5;
  pen.strokeRect(left, 1, right - left, height - 2);
  pen.restore();
}
