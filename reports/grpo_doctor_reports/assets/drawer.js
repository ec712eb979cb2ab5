// The glossary beside what is being read; the words are those of the section at the end.
function setUpDrawer() {
  const drawer = document.getElementById("drawer");
  const words = document.getElementById("drawer-words");
  words.append(...[...document.querySelectorAll("#glossary-words > dl")].map((list) => list.cloneNode(true)));
  document.getElementById("open-glossary").addEventListener("click", toggleDrawer);
  document.getElementById("close-glossary").addEventListener("click", () => drawer.close());
  drawer.addEventListener("click", (event) => { if (event.target === drawer) drawer.close(); });
  const field = document.getElementById("glossary-search");
  field.addEventListener("input", () => {
    const wanted = field.value.trim().toLowerCase();
    words.querySelectorAll("dl > div").forEach((one) => { one.hidden = !one.textContent.toLowerCase().includes(wanted); });
  });
}

function toggleDrawer() {
  const drawer = document.getElementById("drawer");
  if (drawer.open) drawer.close(); else drawer.showModal();
}
