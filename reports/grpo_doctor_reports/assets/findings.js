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
