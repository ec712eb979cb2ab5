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

function litRank(rank) {
  const finding = litFinding();
  return !finding || !finding.ranks.length || finding.ranks.includes(rank);
}

function litStep(number) {
  const finding = litFinding();
  return !finding || !finding.steps.length || finding.steps.includes(number);
}

// Steps that are lit, as [from, to] in seconds; null: all of them.
function litMoments() {
  const steps = litFinding()?.steps ?? [];
  if (!steps.length || !knots.steps()) return null;
  const [number, start, end] = [facts.steps.number, facts.steps.start, facts.steps.end].map(unpack);
  return number.flatMap((one, at) => (steps.includes(one) ? [[start[at], end[at]]] : []));
}

function isLitTime(moments, from, to) {
  return moments === null || moments.some(([start, end]) => from < end && to > start);
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
    chip.textContent = finding ? `${finding.name} lit` : "";
    chip.setAttribute("aria-label", finding ? `${finding.name} lit: ${finding.title}. Put it out` : "");
  }
  ["waterfall", "steps", "heatmap", "lanes", "strips", "curves"].forEach(repaint);
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
