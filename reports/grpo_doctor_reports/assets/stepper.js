// From one worst step to the next: the axis goes there, and its phases stand next to the median's.
function stepFacts(at) {
  const { number, seconds, slowest, kind, kinds } = facts.steps;
  return {
    number: unpack(number)[at], seconds: unpack(seconds)[at], slowest: unpack(slowest)[at],
    kind: kinds[unpack(kind)[at]],
  };
}

function change(value, middle) {
  if (!(middle > 0)) return "";
  const percent = Math.round(100 * (value / middle - 1));
  return `${percent < 0 ? "−" : "+"}${Math.abs(percent)}%`;
}

function focusStep(at) {
  choose("focus", at);
  if (at === null) { tell("range"); return; }
  if (!knots.steps()) {
    const { number } = stepFacts(at);
    zoom("step", [number - 3.5, number + 3.5]);
    return;
  }
  const [start, end] = [unpack(facts.steps.start)[at], unpack(facts.steps.end)[at]];
  const around = 0.35 * (end - start);
  zoom("time", [start - around, end + around].map((one) => one / timeUnit().divisor));
}

function stepWorst(direction) {
  const { worst } = facts.steps ?? { worst: [] };
  if (!worst.length || !numbers) return; // numbers are unpacked a moment after the page opens
  const now = worst.indexOf(view.focus);
  const next = now < 0 ? (direction > 0 ? 0 : worst.length - 1) : (now + direction + worst.length) % worst.length;
  focusStep(worst[next]);
  const { top, bottom } = document.querySelector(".explore").getBoundingClientRect();
  if (bottom < 200 || top > innerHeight - 200) document.getElementById("steps").scrollIntoView();
}

function showFocus() {
  const place = facts.steps.worst.indexOf(view.focus);
  const label = document.getElementById("worst-label");
  const detail = document.getElementById("step-detail");
  detail.hidden = view.focus === null;
  for (const path of document.querySelectorAll(".path")) path.classList.remove("focused");
  if (view.focus === null) {
    label.textContent = "worst steps";
  } else {
    const step = stepFacts(view.focus);
    label.textContent = place < 0 ? `step ${step.number}` : `step ${step.number}, ${ordinal(place + 1)} of ${facts.steps.worst.length}`;
    detail.replaceChildren(stepHeading(step), stepTable(view.focus));
    document.querySelector(`.path[data-step="${step.number}"]`)?.classList.add("focused");
  }
}

function ordinal(place) {
  return place === 1 ? "worst" : `worst but ${place - 1}`;
}

function stepHeading(step) {
  const parts = [`${duration(step.seconds)}, ${change(step.seconds, facts.steps.median)} against the median of ${duration(facts.steps.median)}`];
  if (step.kind !== "steady") parts.push(step.kind);
  if (step.slowest >= 0) parts.push(`rank ${step.slowest} was the slowest`);
  return make("h3", {}, `Step ${step.number}: `, make("span", { class: "count" }, parts.join("; ")));
}

function stepTable(at) {
  const rows = facts.steps.phases.map((phase) => {
    const value = unpack(phase.v)[at];
    return { ...phase, value, more: value === null ? 0 : value - phase.median };
  }).filter(({ value }) => value !== null).sort((a, b) => Math.abs(b.more) - Math.abs(a.more)).slice(0, 12);
  if (!rows.length) return make("p", { class: "nothing" }, "The document has no phases of this step.");
  const most = Math.max(...rows.map(({ more }) => Math.abs(more))) || 1;
  const head = make("tr", {}, ...["Phase, mean over ranks", "This step", "Median", "Difference", ""].map((text, place) =>
    make("th", { scope: "col", class: place && place < 4 ? "n" : "" }, text)));
  const body = rows.map(({ name, color, value, median, more }) => make("tr", { "data-phase": name },
    make("th", { scope: "row" }, make("i", { class: "swatch", style: { "--c": color }, "aria-hidden": "true" }), name),
    make("td", { class: "n" }, duration(value)), make("td", { class: "n" }, duration(median)),
    make("td", { class: "n" }, `${more < 0 ? "−" : "+"}${duration(Math.abs(more))}`),
    make("td", {}, make("span", { class: "difference" }, make("i", {
      class: more < 0 ? "shorter" : "longer", style: { width: `${(100 * Math.abs(more)) / most}%` },
    })))));
  return make("table", {}, make("thead", {}, head), make("tbody", {}, ...body));
}

function setUpStepper() {
  if (!facts.steps) return;
  document.getElementById("worst-next")?.addEventListener("click", () => stepWorst(1));
  document.getElementById("worst-previous")?.addEventListener("click", () => stepWorst(-1));
  when("focus", showFocus);
}
