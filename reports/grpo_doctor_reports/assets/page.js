// The page itself: theme, paper, links. Everything below works without charts.
const root = document.documentElement;

const THEME_KEY = "grpo-doctor-theme";

function remembered() {
  try { return localStorage.getItem(THEME_KEY); } catch { return null; } // file:// may forbid storage
}

function remember(theme) {
  try { localStorage.setItem(THEME_KEY, theme); } catch { /* then it lasts until the page closes */ }
}

function isDark() {
  const system = matchMedia("(prefers-color-scheme: dark)").matches;
  return root.dataset.theme ? root.dataset.theme === "dark" : system;
}

function setUpTheme(redraw) {
  const button = document.getElementById("theme");
  const label = () => { button.textContent = isDark() ? "Light" : "Dark"; };
  const saved = remembered();
  if (saved === "dark" || saved === "light") root.dataset.theme = saved;
  label();
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    remember(root.dataset.theme);
    label();
    redraw();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { label(); redraw(); });
}

// Paper is light and has nothing to click: open every fold, print in the light theme, then go back.
function setUpPrinting(redraw) {
  let chosen;
  let opened = [];
  addEventListener("beforeprint", () => {
    chosen = root.dataset.theme;
    opened = [...document.querySelectorAll("details:not([open])")];
    opened.forEach((one) => { one.open = true; });
    root.dataset.theme = "light";
    root.classList.add("printing"); // as narrow as paper, so that charts are drawn for its width
    redraw();
  });
  addEventListener("afterprint", () => {
    opened.forEach((one) => { one.open = false; });
    root.classList.remove("printing");
    if (chosen) root.dataset.theme = chosen; else delete root.dataset.theme;
    redraw();
  });
}

function hashTarget() {
  try { return decodeURIComponent(location.hash.slice(1)); } catch { return ""; }
}

// An element inside a closed <details> is out of reach of its own link.
function openTarget() {
  let element = document.getElementById(hashTarget());
  element?.querySelectorAll(":scope > details").forEach((one) => { one.open = true; });
  for (; element; element = element.parentElement) {
    if (element.tagName === "DETAILS") element.open = true;
  }
}

// Copying, also where the browser gives no clipboard: a page on file:// in some of them.
async function toClipboard(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    copyBySelection(text);
  }
}

function copyBySelection(text) {
  const area = document.createElement("textarea");
  area.value = text;
  area.className = "visually-hidden";
  area.setAttribute("aria-hidden", "true");
  const focused = document.activeElement;
  document.body.append(area);
  area.select();
  const copied = document.execCommand("copy");
  area.remove();
  focused?.focus({ preventScroll: true });
  if (!copied) throw new Error("not copied");
}

// The last resort: the text itself, selected, to be copied by hand.
function showToCopy(text) {
  const dialog = document.createElement("dialog");
  const area = document.createElement("textarea");
  const close = document.createElement("button");
  dialog.className = "by-hand";
  area.readOnly = true;
  area.rows = Math.min(16, text.split("\n").length + 1);
  area.value = text;
  area.setAttribute("aria-label", "Text to copy");
  close.textContent = "Close";
  close.addEventListener("click", () => dialog.close());
  dialog.addEventListener("close", () => dialog.remove());
  dialog.append("This browser does not let the page copy. Press Ctrl+C or ⌘C.", area, close);
  document.body.append(dialog);
  dialog.showModal();
  area.select();
}

function setUpCopyButtons() {
  for (const button of document.querySelectorAll("button.copy")) {
    const label = button.textContent;
    button.addEventListener("click", async () => {
      const text = button.dataset.copy ?? button.previousElementSibling.textContent;
      try {
        await toClipboard(text);
        button.textContent = "Copied";
        setTimeout(() => { button.textContent = label; }, 1500);
      } catch {
        showToCopy(text);
      }
    });
  }
}
