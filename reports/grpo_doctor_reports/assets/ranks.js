// Which ranks the charts show: all, the slowest, or a list such as 0-7,12.

function parseRanks(text) {
  const known = facts.ranks.all;
  const wanted = text.trim().toLowerCase();
  if (wanted === "" || wanted === "all") return null;
  if (wanted === "slowest") return new Set(facts.ranks.slowest);
  const chosen = new Set();
  for (const part of wanted.split(/[\s,;]+/).filter(Boolean)) {
    const match = /^(\d{1,9})(?:[-–](\d{1,9}))?$/.exec(part);
    if (!match) return undefined;
    const [first, last] = [Number(match[1]), Number(match[2] ?? match[1])];
    known.filter((rank) => rank >= first && rank <= last).forEach((rank) => chosen.add(rank));
  }
  return chosen.size ? chosen : undefined;
}

function isShown(rank) {
  return view.ranks === null || view.ranks.has(rank);
}

function setUpRanks() {
  const field = document.getElementById("rank-filter");
  if (!field) return;
  const found = document.getElementById("rank-found");
  const all = facts.ranks.all.length;
  let timer;
  const apply = () => {
    const ranks = parseRanks(field.value);
    field.setAttribute("aria-invalid", String(ranks === undefined));
    found.textContent = ranks === undefined ? "no such ranks" : `${ranks ? ranks.size : all} of ${all}`;
    if (ranks !== undefined) choose("ranks", ranks);
  };
  field.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(apply, 200); });
  field.addEventListener("change", () => { clearTimeout(timer); apply(); });
  field.addEventListener("focus", () => field.select());
  apply();
  when("ranks", () => ["heatmap", "lanes", "strips"].forEach(repaint));
}
