// Keys for the whole page; they stay out of fields, and of whatever is focused and wants arrows.
function setUpKeys() {
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    const action = isTyping(event.target) ? null : keyAction(event.key, event.target);
    if (!action) return;
    event.preventDefault();
    action();
  });
}

function isTyping(target) {
  return target instanceof Element && target.closest("input:not([type=checkbox]), textarea, select, dialog .glossary") !== null;
}

function keyAction(key, target) {
  const drawer = document.getElementById("drawer").open;
  if (key === "g") return toggleDrawer;
  if (drawer) return null;
  const isZoomed = view.time !== null || view.step !== null;
  const arrowsFree = !target.closest?.(".scroll, pre, summary, fieldset");
  return {
    n: () => stepWorst(1),
    p: () => stepWorst(-1),
    "+": () => zoomBy(0.5),
    "=": () => zoomBy(0.5),
    "-": () => zoomBy(2),
    w: () => zoomBy(0.5, pointedAt()),
    s: () => zoomBy(2, pointedAt()),
    a: () => pan(-0.25),
    d: () => pan(0.25),
    0: leaveZoom,
    Escape: view.finding === null ? null : lightOff,
    ArrowLeft: isZoomed && arrowsFree ? () => pan(-0.25) : null,
    ArrowRight: isZoomed && arrowsFree ? () => pan(0.25) : null,
  }[key];
}

// Where the pointer is over the timeline, in the unit of its axis.
function pointedAt() {
  const moment = document.querySelector(".plot[data-chart=lanes]")?.hovered;
  return moment ? moment / timeUnit().divisor : undefined;
}

function leaveZoom() {
  showWholeRun();
  if (facts.steps) focusStep(null);
}
