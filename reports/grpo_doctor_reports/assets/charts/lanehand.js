// Pointer, wheel and words of the timeline.
const DRAG_LEAST_PX = 4;

function pointOf(element, event) {
  const { left } = element.getBoundingClientRect();
  const { top } = element.parts.scroll.getBoundingClientRect();
  const scale = timeScale(element);
  const [x, y] = [event.clientX - left, event.clientY - top];
  const lane = y < 0 ? null : lanesShown()[Math.floor((y + element.parts.scroll.scrollTop) / element.laneHeight)] ?? null;
  const within = (y + element.parts.scroll.scrollTop) % element.laneHeight;
  return { x, y, lane, within, moment: scale.moment(x), isInside: x >= LEFT_PX && x <= scale.right };
}

function handleLanes(element) {
  let drag = null;
  const { selection, scroll } = element.parts;
  element.addEventListener("pointerdown", (event) => {
    const point = pointOf(element, event);
    if (event.button !== 0 || !point.isInside) return;
    drag = { x: point.x, moment: point.moment, range: view.time ?? wholeTime(), pans: event.shiftKey, moves: false };
    element.setPointerCapture(event.pointerId);
    scroll.focus({ preventScroll: true });
    event.preventDefault();
  });
  element.addEventListener("pointermove", (event) => {
    const point = pointOf(element, event);
    if (!drag) { hoverLanes(element, point); return; }
    drag.moves ||= Math.abs(point.x - drag.x) >= DRAG_LEAST_PX;
    if (!drag.moves) return;
    if (drag.pans) panTo(element, drag, point.x); else showSelection(element, drag.x, point.x);
  });
  element.addEventListener("pointerup", (event) => {
    const [done, point] = [drag, pointOf(element, event)];
    drag = null;
    selection.hidden = true;
    if (!done?.moves || done.pans) return;
    const edges = [done.moment, point.moment].sort((a, b) => a - b);
    zoomSeconds(edges);
  });
  element.addEventListener("pointercancel", () => { drag = null; selection.hidden = true; });
  element.addEventListener("pointerleave", () => { element.hovered = null; choosePoint(element, null); sayView(element); });
  element.addEventListener("dblclick", showWholeRun);
  followWheel(element, (event) => pointOf(element, event).moment / timeUnit().divisor);
}

function zoomSeconds(edges) {
  zoom("time", edges.map((edge) => edge / timeUnit().divisor));
}

function panTo(element, drag, x) {
  const { perSecond } = timeScale(element);
  zoomSeconds(drag.range.map((edge) => edge - (x - drag.x) / perSecond));
}

function showSelection(element, from, to) {
  const { selection, scroll } = element.parts;
  const { right } = timeScale(element);
  const [left, end] = [Math.max(LEFT_PX, Math.min(from, to)), Math.min(right, Math.max(from, to))];
  selection.hidden = false;
  Object.assign(selection.style, { left: `${left}px`, width: `${end - left}px`, top: "0", height: `${headHeight() + scroll.clientHeight}px` });
}

function choosePoint(element, meeting) {
  if (element.chosen === meeting) return;
  element.chosen = meeting;
  drawLanes(element);
}

function hoverLanes(element, point) {
  if (!point.isInside) return;
  element.hovered = point.moment;
  const text = point.lane ? wordsAt(element, point) : meanWordsAt(point.moment);
  say(`${duration(Math.max(0, point.moment))}: ${text}`);
}

function wordsAt(element, { lane, moment, within }) {
  const closeUp = isCloseUp(timeScale(element));
  const inWindow = windowsInSight(timeScale(element)).some(({ start, end }) => start <= moment && moment <= end);
  if (inWindow) {
    const at = spanAt(lane.rank, moment, closeUp ? Math.floor(within / element.barHeight) : 0);
    choosePoint(element, at < 0 ? null : exactSpans().meeting[at] >= 0 ? exactSpans().meeting[at] : null);
    return at < 0 ? `rank ${lane.rank}: in no phase` : spanWords(lane.rank, at);
  }
  choosePoint(element, null);
  const { ranks, byRank } = laneMeans();
  const column = columnAt(laneColumns(timeScale(element)), moment);
  if (!column || !byRank.has(lane.rank)) return `rank ${lane.rank}: between steps`;
  return `rank ${lane.rank}, ${stackWords(column, ranks, byRank.get(lane.rank) * ranks.count)}`;
}

function meanWordsAt(moment) {
  const { mean } = laneMeans();
  const at = mean ? mean.start.findIndex((start, one) => start <= moment && moment <= mean.end[one]) : -1;
  return at < 0 ? "between steps" : `all ranks, ${stackWords({ members: [at] }, mean)}`;
}

function columnAt(columns, moment) {
  return columns.find(({ start, end }) => start <= moment && moment <= end);
}

function stackWords(column, buckets, offset = 0) {
  const stack = stackOf(column, buckets, offset);
  const { name, count } = stepsOf(column, buckets);
  if (!stack.length) return `${name}: never ended`;
  const whole = stack[stack.length - 1].high;
  const parts = [...stack].sort((a, b) => (b.high - b.low) - (a.high - a.low)).map(({ phase, low, high, wait }) =>
    `${facts.lanes.phases[phase].name} ${percent((high - low) / whole)}${wait > 0.0005 * whole ? ` (${percent(wait / whole)} waiting)` : ""}`);
  const kinds = kindsOf(column, buckets);
  return `${name}, ${count > 1 ? "mean " : ""}${duration(whole)}: ${parts.join(", ")}${kinds.length ? `; ${kinds.join(", ")}` : ""}`;
}

function percent(share) {
  const value = 100 * share;
  return value > 0 && value < 0.1 ? "<0.1%" : `${value.toFixed(value < 9.95 ? 1 : 0).replace(/\.0$/, "")}%`;
}

function say(text) {
  document.getElementById("strips-readout").textContent = text;
}

// Shares of the used steps in sight, from the columns that were drawn: what the caption says of all.
function sharesInView(element) {
  const sums = new Map();
  let [whole, steps] = [0, 0];
  const columns = element.inView ?? [];
  const used = columns.some((column) => column.used) ? columns.filter((column) => column.used) : columns;
  for (const { stack, count } of used) {
    if (!stack.length) continue;
    steps += count;
    whole += count * stack[stack.length - 1].high;
    for (const { phase, low, high } of stack) sums.set(phase, (sums.get(phase) ?? 0) + count * (high - low));
  }
  const shares = Object.fromEntries([...sums].map(([phase, seconds]) => [facts.lanes.phases[phase].name, seconds / whole]));
  return { steps, shares };
}

// What is in sight in words, while the pointer is elsewhere.
function sayView(element, lanes = lanesShown(), scale = timeScale(element)) {
  if (element.hovered || view.time === null) return;
  const { steps, shares } = element.viewShares;
  const parts = Object.entries(shares).sort((a, b) => b[1] - a[1]).map(([name, share]) => `${name} ${percent(share)}`);
  const spans = windowsInSight(scale).reduce((sum, { start, end }) => sum + Math.min(end, scale.to) - Math.max(start, scale.from), 0);
  const exact = spans > 0.9 * (scale.to - scale.from) ? "drawn span by span" : spans > 0 ? "in part span by span" : "as means";
  const links = element.linksLeftOut ? `; ${element.linksLeftOut} collectives not linked: point at one, or zoom in` : "";
  say(`In view: ${steps} steps of ${lanes.length} ranks, ${exact}${parts.length ? `: mean ${parts.join(", ")}` : ""}${links}.`);
}

// Buttons that lead to the windows; other slow steps are stepped through with n and p.
function setUpWindows() {
  for (const button of document.querySelectorAll("#windows button")) {
    const [start, end] = [Number(button.dataset.start), Number(button.dataset.end)];
    const around = 0.02 * (end - start);
    button.addEventListener("click", () => {
      if (!numbers) return; // unpacked a moment after the page opens
      if (button.dataset.start) zoomSeconds([start - around, end + around]); else leaveZoom();
    });
  }
}
