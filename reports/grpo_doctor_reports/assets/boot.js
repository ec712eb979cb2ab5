// Charts are drawn when they come into view, the others when the page is idle, and again while they
// are in view; plotly.js is unpacked for the first.
let ready = null;
const inView = new Set();

async function load() {
  const script = document.createElement("script");
  script.textContent = await inflate("plotly").text(); // allowed by its hash in the page's policy
  document.head.append(script);
  if (!window.Plotly) throw new Error("plotly.js did not run");
}

// An element is painted by one run at a time. Whatever is asked for meanwhile is done once more
// after it, with the state of then: the last state wins, in whatever order plotly gets ready.
function paint(element) {
  element.isStale = false;
  element.isWanted = true;
  run(element);
}

// The same for a chart that only has to follow the axis.
function move(element) {
  element.isBehind = true;
  run(element);
}

async function run(element) {
  if (element.isRunning) return;
  element.isRunning = true;
  while (element.isWanted || element.isBehind) {
    const paints = element.isWanted;
    element.isWanted = element.isBehind = false;
    await (paints ? paintOnce(element) : moveOnce(element));
  }
  element.isRunning = false; // nothing was awaited since the check, so that nothing is missed
}

async function moveOnce(element) {
  try { await follow(element); } catch (error) { console.error(error); } // thrown, it would leave the chart running
}

async function paintOnce(element) {
  try {
    await (ready ??= load());
    element.drawnFocus = view.focus;
    await draw(element);
    element.classList.add("drawn");
  } catch (error) {
    element.classList.add("failed");
    element.textContent = "This browser cannot draw the chart; its summary is below.";
    console.error(error);
  }
}

// What was drawn or is being drawn looks different now; what was never in view is drawn later.
function repaint(name) {
  document.querySelectorAll(name ? `.plot[data-chart="${name}"]` : ".plot").forEach((element) => {
    if (element.isStale === undefined) return;
    if (inView.has(element)) paint(element); else element.isStale = true;
  });
}

function moveDrawn() {
  inView.forEach((element) => { if (element.isStale === false) move(element); });
}

function setUpCharts() {
  const watcher = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) {
      if (!isIntersecting) { inView.delete(target); continue; }
      inView.add(target);
      if (target.isStale ?? true) paint(target); // never drawn, or drawn for something else
      else move(target);
    }
  }, { rootMargin: "300px" });
  document.querySelectorAll(".plot").forEach((element) => watcher.observe(element));
}

// Paper and a picture of the whole page are not scrolled: what was never in view is drawn one by one.
function setUpPaper() {
  const idle = window.requestIdleCallback ?? ((run) => setTimeout(run, 500));
  const drawNext = async () => {
    const unseen = [...document.querySelectorAll(".plot")].find((one) => one.isStale === undefined && !one.closest("details:not([open])"));
    if (!unseen) { if (document.querySelector(".plot")) ready ??= load(); return; }
    unseen.isStale = false;
    await run(Object.assign(unseen, { isWanted: true }));
    idle(drawNext);
  };
  idle(drawNext);
}

function drawAll() {
  if (window.Plotly) document.querySelectorAll(".plot").forEach((element) => paint(element));
}

// The tools stay right under the top bar, which is two lines high on a narrow window.
function setUpTools() {
  const bar = document.querySelector(".topbar");
  const place = () => root.style.setProperty("--topbar", `${bar.offsetHeight}px`);
  new ResizeObserver(place).observe(bar);
  place();
}

function start() {
  setUpWhatif();
  setUpAxis();
  setUpStepper();
  document.getElementById("heatmap-kind")?.addEventListener("change", () => repaint("heatmap"));
  setUpLight();
  setUpKeys();
  setUpCharts();
  setUpPaper();
}

setUpTheme(() => repaint());
setUpTools();
setUpCopyButtons();
setUpFindings();
setUpChecks();
setUpDrawer();
addEventListener("hashchange", openTarget);
setUpPrinting(drawAll);
openTarget();
inflate("facts").json().then((packed) => { facts = unpackAll(packed); start(); });
