// Charts are drawn, and drawn anew, while they are in view; plotly.js is unpacked for the first.
let ready = null;
const inView = new Set();

const numbersRead = inflate("numbers").then((text) => { numbers = JSON.parse(text); });

async function load() {
  await numbersRead;
  const script = document.createElement("script");
  script.textContent = await inflate("plotly"); // allowed by its hash in the page's policy
  document.head.append(script);
  if (!window.Plotly) throw new Error("plotly.js did not run");
}

async function paint(element) {
  element.isStale = false;
  try {
    ready ??= load();
    await ready;
    element.drawnFocus = view.focus;
    await painters[element.dataset.chart](element, Number(element.dataset.index));
    element.classList.add("drawn");
  } catch (error) {
    element.classList.add("failed");
    element.textContent = "This browser cannot draw the chart; its summary is below.";
    console.error(error);
  }
}

function repaint(name) {
  const drawn = document.querySelectorAll(name ? `.plot.drawn[data-chart="${name}"]` : ".plot.drawn");
  drawn.forEach((element) => { if (inView.has(element)) paint(element); else element.isStale = true; });
}

function setUpCharts() {
  const watcher = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) {
      if (!isIntersecting) { inView.delete(target); continue; }
      inView.add(target);
      if (target.isStale ?? true) paint(target); // never drawn, or drawn for something else
      else if (target.classList.contains("drawn")) moveAlong(target);
    }
  }, { rootMargin: "300px" });
  document.querySelectorAll(".plot").forEach((element) => watcher.observe(element));
}

// Plotly is there before it is needed, so that paper, which can't wait, has its charts.
function setUpPaper() {
  const idle = window.requestIdleCallback ?? ((run) => setTimeout(run, 500));
  if (document.querySelector(".plot")) addEventListener("load", () => idle(() => { ready ??= load(); }));
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

setUpTheme(() => repaint());
setUpTools();
setUpCopyButtons();
setUpFindings();
setUpChecks();
setUpDrawer();
setUpWhatif();
setUpAxis();
setUpRanks();
setUpStepper();
setUpHeatmap();
setUpLight();
setUpKeys();
setUpCharts();
setUpPaper();
addEventListener("hashchange", openTarget);
setUpPrinting(drawAll);
openTarget();
