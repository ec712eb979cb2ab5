// The page itself: theme, copy buttons. Everything below works without charts.
const root = document.documentElement;
root.classList.add("scripted");

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

async function toClipboard(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = document.createElement("textarea");
  area.value = text;
  document.body.append(area);
  area.select();
  const copied = document.execCommand("copy");
  area.remove();
  if (!copied) throw new Error("not copied");
}

function setUpCopyButtons() {
  for (const button of document.querySelectorAll("button.copy")) {
    const label = button.textContent;
    button.addEventListener("click", async () => {
      const text = button.dataset.copy ?? button.previousElementSibling.textContent;
      try {
        await toClipboard(text);
        button.textContent = "Copied";
      } catch {
        button.textContent = "Press Ctrl+C";
        getSelection().selectAllChildren(button.previousElementSibling ?? button);
      }
      setTimeout(() => { button.textContent = label; }, 1500);
    });
  }
}

// Paper is light and has nothing to click: open every fold, print in the light theme, then go back.
function setUpPrinting(redraw) {
  let chosen;
  addEventListener("beforeprint", () => {
    chosen = root.dataset.theme;
    document.querySelectorAll("details").forEach((one) => { one.open = true; });
    root.dataset.theme = "light";
    redraw();
  });
  addEventListener("afterprint", () => {
    if (chosen) root.dataset.theme = chosen; else delete root.dataset.theme;
    redraw();
  });
}

// An element inside a closed <details> is out of reach of its own link.
function openTarget() {
  let element = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  for (; element; element = element.parentElement) {
    if (element.tagName === "DETAILS") element.open = true;
  }
}
