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
  const { now, sets, spellings } = facts.whatif;
  const found = Object.hasOwn(sets, ticked.join(",")) ? sets[ticked.join(",")] : null;
  const words = found ?? (ticked.length
    ? { time: "unknown", change: "", interval: "these were not predicted together" }
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
  const typed = ticked.map((index) => spellings[index]).filter(Boolean);
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
