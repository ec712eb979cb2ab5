// Charts are drawn when they come into view; plotly.js is unpacked for the first of them.
let ready = null;

async function load() {
  numbers = JSON.parse(await inflate("numbers"));
  const script = document.createElement("script");
  script.textContent = await inflate("plotly"); // allowed by its hash in the page's policy
  document.head.append(script);
  if (!window.Plotly) throw new Error("plotly.js did not run");
}

async function paint(element) {
  try {
    ready ??= load();
    await ready;
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
  drawn.forEach(paint);
}

function setUpCharts() {
  const watcher = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) {
      if (!isIntersecting) continue;
      watcher.unobserve(target);
      paint(target);
    }
  }, { rootMargin: "300px" });
  document.querySelectorAll(".plot").forEach((element) => watcher.observe(element));
}

setUpTheme(() => repaint());
setUpCopyButtons();
setUpHeatmap();
setUpStrips();
setUpCharts();
addEventListener("hashchange", openTarget);
setUpPrinting(() => repaint());
openTarget();
