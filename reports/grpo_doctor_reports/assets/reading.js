// A finding that is chosen marks what it is about, in every chart and table.
function litFinding() {
  return view.finding === null ? null : facts.findings[view.finding];
}

function litPhase(phase) {
  const finding = litFinding();
  if (!finding || !finding.phases.length) return true;
  const name = (one) => one.split("/")[0];
  return finding.phases.some((one) => name(one) === name(phase));
}

function lightUp(anchor) {
  choose("finding", Object.hasOwn(facts.findings, anchor) ? anchor : null);
}

function lightOff() {
  if (view.finding === null) return;
  lightUp("");
  try { history.replaceState(null, "", location.href.split("#")[0]); } catch { /* the address keeps it */ }
}

function showLit() {
  const finding = litFinding();
  root.classList.toggle("lit", finding !== null);
  for (const element of document.querySelectorAll("[data-phase]")) {
    element.classList.toggle("lit", Boolean(finding?.phases.length) && litPhase(element.dataset.phase));
  }
  document.querySelectorAll(".finding").forEach((one) => one.classList.toggle("lit", one.id === view.finding));
  document.querySelectorAll("button.light").forEach((one) => one.setAttribute("aria-pressed", String(one.dataset.finding === view.finding)));
  const chip = document.getElementById("light-off");
  if (chip) {
    chip.hidden = finding === null;
    chip.textContent = finding ? `${finding.name} highlighted` : "";
    chip.setAttribute("aria-label", finding ? `${finding.name} highlighted: ${finding.title}. Remove the highlight` : "");
  }
  chooseLitMatrix();
  repaint();
}

function setUpLight() {
  when("finding", showLit);
  document.getElementById("light-off")?.addEventListener("click", lightOff);
  for (const button of document.querySelectorAll("button.light")) {
    button.addEventListener("click", () => {
      if (view.finding === button.dataset.finding) { lightOff(); return; }
      lightUp(button.dataset.finding);
      document.querySelector(".explore").scrollIntoView();
    });
  }
  for (const header of document.querySelectorAll(".finding > header")) {
    const anchor = header.parentElement.id;
    header.addEventListener("click", (event) => {
      if (event.target.closest("button")) return;
      if (view.finding === anchor) { event.preventDefault(); lightOff(); } else lightUp(anchor);
    });
  }
  addEventListener("hashchange", () => lightUp(hashTarget()));
  lightUp(hashTarget());
}

// From one worst step to the next: the axis goes there, and its phases stand next to the median's.
function stepFacts(at) {
  const { number, seconds, slowest, kinds } = facts.steps;
  return { number: number[at], seconds: seconds[at], slowest: slowest[at], kind: kinds[at] };
}

function change(value, middle) {
  if (!(middle > 0)) return "";
  const percent = Math.round(100 * (value / middle - 1));
  return `${percent < 0 ? "−" : "+"}${Math.abs(percent)}%`;
}

function focusStep(at) {
  choose("focus", at);
  if (at === null) { notify("range"); return; }
  const kind = axisKind();
  const [start, end] = spanOf(kind, at);
  const around = kind === "time" ? 0.35 * (end - start) : 3;
  zoom(kind, [start - around, end + around]);
}

function stepWorst(direction) {
  const { worst } = facts.steps ?? { worst: [] };
  if (!worst.length) return;
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
  return place === 1 ? "worst" : `${place}${{ 2: "nd", 3: "rd" }[place] ?? "th"} worst`;
}

function stepHeading(step) {
  const parts = [`${duration(step.seconds)}, ${change(step.seconds, facts.steps.median)} vs. the median of ${duration(facts.steps.median)}`];
  if (step.kind !== "steady") parts.push(step.kind);
  if (step.slowest !== null) parts.push(`slowest rank: ${step.slowest}`);
  return make("h3", {}, `Step ${step.number}: `, make("span", { class: "count" }, parts.join("; ")));
}

function stepTable(at) {
  const rows = facts.steps.phases.map((phase) => {
    const value = phase.seconds[at];
    return { ...phase, value, more: value === null ? 0 : value - phase.median };
  }).filter(({ value }) => value !== null).sort((a, b) => Math.abs(b.more) - Math.abs(a.more)).slice(0, 12);
  if (!rows.length) return make("p", { class: "nothing" }, "No phases were recorded in this step.");
  const most = Math.max(...rows.map(({ more }) => Math.abs(more))) || 1;
  const head = make("tr", {}, ...[facts.steps.slowest[at] === null ? "Phase" : "Phase, mean over ranks", "This step", "Median", "Difference", ""].map((text, place) =>
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

// The tick boxes look up what was predicted for exactly the ticked fixes; nothing is computed here.
function setUpWhatif() {
  const field = document.getElementById("whatif-fixes");
  if (!field) return;
  const boxes = [...field.querySelectorAll("input")];
  const set = (choice) => { boxes.forEach((box, at) => { box.checked = choice(at); }); showWhatif(boxes); };
  boxes.forEach((box) => box.addEventListener("change", () => showWhatif(boxes)));
  document.getElementById("whatif-none").addEventListener("click", () => set(() => false));
  document.getElementById("whatif-together")?.addEventListener("click", () => set((at) => "together" in boxes[at].dataset));
  showWhatif(boxes);
}

function showWhatif(boxes) {
  const ticked = boxes.filter((box) => box.checked).map((box) => Number(box.value)).sort((a, b) => a - b);
  const { now, sets, texts } = facts.whatif;
  const found = Object.hasOwn(sets, ticked.join(",")) ? sets[ticked.join(",")] : null;
  const words = found ?? (ticked.length
    ? { time: "unknown", change: "", interval: "not predicted together" }
    : { time: now, change: "no change", interval: "", mid: 1, low: 1, high: 1 });
  const put = (id, text) => { document.getElementById(id).textContent = text; };
  put("whatif-time", words.time);
  put("whatif-change", words.change);
  put("whatif-interval", found?.interval ? `${found.interval}, ${found.range}` : words.interval);
  const bar = document.getElementById("whatif-bar").style;
  const interval = document.getElementById("whatif-interval-bar").style;
  bar.width = `${100 * Math.min(1, words.mid ?? 0)}%`;
  interval.left = `${100 * Math.min(1, words.low ?? 0)}%`;
  interval.width = `${100 * Math.max(0, Math.min(1, words.high ?? 0) - Math.min(1, words.low ?? 0))}%`;
  const typed = ticked.map((index) => texts[index]).filter(Boolean);
  const isFlag = (one) => one.startsWith("-") && !one.includes("\n");
  const flags = typed.filter(isFlag).join(" ");
  const line = [flags, ...typed.filter((one) => !isFlag(one))].filter(Boolean).join("\n");
  const code = document.querySelector("#whatif-outcome code");
  code.replaceChildren(...typeset(line || "–"));
  code.closest(".copyable").querySelector("button").disabled = !line;
}

// As the template does it: a line breaks between words, never inside `--a_flag`.
function typeset(line) {
  return line.split(/( |\n)/).map((word) => (word.trim()
    ? make("span", word.length > 34 ? { class: "long" } : {}, word) : word));
}

// Findings of one severity, and a search through the checks.
function setUpFindings() {
  const filter = document.getElementById("severity-filter");
  const buttons = [...(filter?.querySelectorAll("button") ?? [])];
  for (const button of buttons) {
    button.addEventListener("click", () => {
      buttons.forEach((one) => one.setAttribute("aria-pressed", String(one === button)));
      showSeverity(button.dataset.severity);
    });
  }
  addEventListener("hashchange", () => revealFinding(buttons));
}

function showSeverity(severity) {
  for (const family of document.querySelectorAll("#findings .family")) {
    const findings = [...family.querySelectorAll(".finding")];
    findings.forEach((one) => { one.hidden = Boolean(severity) && one.dataset.severity !== severity; });
    family.hidden = findings.every((one) => one.hidden);
  }
}

// A link to a finding that the filter hides shows all again.
function revealFinding(buttons) {
  const finding = document.getElementById(hashTarget());
  if (finding?.hidden) { buttons[0].click(); finding.scrollIntoView(); }
}

function setUpChecks() {
  const field = document.getElementById("checks-search");
  field?.addEventListener("input", () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    let found = 0;
    for (const list of document.querySelectorAll("#checks details")) {
      const items = [...list.querySelectorAll("li")];
      items.forEach((item) => { item.hidden = !words.every((word) => item.textContent.toLowerCase().includes(word)); });
      const left = items.filter((item) => !item.hidden).length;
      if (words.length) list.open = left > 0;
      found += left;
    }
    document.getElementById("checks-found").textContent = words.length ? `${found} found` : "";
  });
}

// The glossary next to what is being read; the words are those of the section at the end.
function setUpDrawer() {
  const drawer = document.getElementById("drawer");
  const words = document.getElementById("drawer-words");
  words.append(...[...document.querySelectorAll("#glossary-words > dl")].map((list) => list.cloneNode(true)));
  document.getElementById("open-glossary").addEventListener("click", toggleDrawer);
  document.getElementById("close-glossary").addEventListener("click", () => drawer.close());
  drawer.addEventListener("click", (event) => { if (event.target === drawer) drawer.close(); });
  const field = document.getElementById("glossary-search");
  field.addEventListener("input", () => {
    const wanted = field.value.trim().toLowerCase();
    words.querySelectorAll("dl > div").forEach((one) => { one.hidden = !one.textContent.toLowerCase().includes(wanted); });
  });
}

function toggleDrawer() {
  const drawer = document.getElementById("drawer");
  if (drawer.open) drawer.close(); else drawer.showModal();
}

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

// Where the pointer last was over the timeline.
function pointedAt() {
  return document.querySelector(".plot[data-chart=lanes]")?.hovered;
}

function leaveZoom() {
  showWholeRun();
  if (facts.steps) focusStep(null);
}
