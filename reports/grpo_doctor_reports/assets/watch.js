// Follows a run: events of the server become text and bars. Nothing of the run is read as HTML.
const byId = (id) => document.getElementById(id);
const made = (tag, text, name) => {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (name) element.className = name;
  return element;
};
const seconds = (value) => {
  if (value < 1) return `${(value * 1000).toFixed(0)} ms`;
  if (value < 120) return `${value.toFixed(value < 10 ? 2 : 1)} s`;
  const minutes = Math.floor(value / 60);
  return minutes < 120 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
};
const gibibytes = (value) => `${(value / 2 ** 30).toFixed(1)} GiB`;
const GOING_ON = ["running", "unknown"];
const phaseClass = (phase) => (/^[a-z]+$/.test(phase) ? `phase-${phase}` : "");

const drawSteps = (steps) => {
  const longest = Math.max(...steps.map((step) => step.seconds), 1e-9);
  const phases = new Set();
  byId("steps").replaceChildren(...steps.map((step) => {
    const column = made("div");
    const parts = Object.entries(step.phases);
    column.title = [`step ${step.number}: ${seconds(step.seconds)}`,
      ...parts.map(([phase, took]) => `${phase} ${seconds(took)}`)].join("\n");
    column.style.height = `${(100 * step.seconds) / longest}%`;
    for (const [phase, took] of parts) {
      phases.add(phase);
      const part = made("i", undefined, phaseClass(phase));
      part.style.height = `${(100 * took) / step.seconds}%`;
      column.append(part);
    }
    return column;
  }));
  byId("legend").replaceChildren(...[...phases].map((phase) => {
    const entry = made("span");
    entry.append(made("i", undefined, phaseClass(phase)), phase);
    return entry;
  }));
};

const drawRows = (id, rows) => byId(id).replaceChildren(...rows.map((cells) => {
  const row = made("tr");
  row.append(...cells.map((cell) => {
    const data = made("td");
    data.append(cell);
    return data;
  }));
  return row;
}));

const busyBar = (percent) => {
  const bar = made("span", undefined, "live-bar");
  const part = made("i");
  part.style.width = `${Math.min(100, percent || 0)}%`;
  bar.append(part);
  return bar;
};

const draw = (now) => {
  byId("state").textContent = now.exit_code ? `${now.state} (exit code ${now.exit_code})` : now.state;
  const last = now.steps.at(-1);
  const usual = now.steps.map((step) => step.seconds).sort((a, b) => a - b)[now.steps.length >> 1];
  const headline = now.verdicts.length && GOING_ON.includes(now.state) ? now.verdicts.at(-1).headline
    : last ? `Step ${last.number} took ${seconds(last.seconds)}; the usual step takes ${seconds(usual)}.`
      : "No step has ended yet.";
  byId("headline").textContent = headline;
  const severe = (now.findings || []).filter((finding) => finding.severity === "high");
  byId("alarms").replaceChildren(...severe.map((finding) =>
    made("p", `${finding.title} (${finding.id})`, "live-verdict")));
  byId("verdicts").replaceChildren(...now.verdicts.map((verdict) => {
    const when = verdict.taken_unix_ns ? new Date(verdict.taken_unix_ns / 1e6).toLocaleTimeString() : "";
    return made("p", `${when} ${verdict.state}: ${verdict.headline}`, "live-verdict");
  }));
  const facts = [now.framework, now.command.join(" ").slice(0, 200)];
  if (now.duration_s) facts.unshift(seconds(now.duration_s));
  byId("facts").textContent = facts.filter(Boolean).join(" · ");
  drawSteps(now.steps);
  const where = Object.entries(now.where).map(([phase, count]) => `${count} in ${phase}`);
  byId("where").textContent = where.join(", ") || "No process records now.";
  drawRows("ranks", now.longest.map((rank) => [
    rank.role ? `${rank.role} ${rank.rank}` : `rank ${rank.rank}`,
    rank.step === null ? "" : `step ${rank.step}`, rank.phase, seconds(rank.since_s)]));
  drawRows("gpus", now.gpus.map((gpu) => [
    `${gpu.host} GPU ${gpu.index}`, busyBar(gpu.busy_pct),
    gpu.busy_pct === null ? "–" : `${gpu.busy_pct.toFixed(0)}%`,
    gpu.memory_bytes === null ? "–" : `${gibibytes(gpu.memory_bytes)} of ${gibibytes(gpu.memory_total_bytes)}`]));
  byId("no-gpus").hidden = now.gpus.length > 0;
};

setUpTheme(() => {});

const token = new URLSearchParams(location.search).get("token") || "";
const address = (path) => `${path}?token=${encodeURIComponent(token)}`;
const frames = [...document.querySelectorAll("iframe")];
// The new report is drawn next to the old one, which stays until it is whole.
const showReport = (version) => {
  const [next, shown] = frames[0].className.includes("waiting") ? frames : [frames[1], frames[0]];
  const top = shown.src ? shown.contentWindow.scrollY : 0;
  next.onload = () => {
    next.classList.remove("waiting");
    shown.classList.add("waiting");
    next.contentWindow.scrollTo(0, top);
    byId("drawn").textContent = `drawn at ${new Date().toLocaleTimeString()}`;
  };
  next.src = `${address("/report")}&version=${version}`;
};

const events = new EventSource(address("/events"));
events.addEventListener("now", (event) => draw(JSON.parse(event.data)));
events.addEventListener("report", (event) => showReport(event.data));
events.onerror = () => { byId("state").textContent = "not connected"; };
