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
