// What the reader has chosen to see, and who wants to know when that changes.
const view = {
  time: null, // [from, to] in seconds; null: the whole run
  step: null, // [from, to] in step numbers; null: all
  finding: null, // anchor of the finding that is lit
  ranks: null, // Set of ranks; null: all
  focus: null, // index into facts.steps of the step that is looked at
};
const listeners = {};

function when(what, react) {
  (listeners[what] ??= []).push(react);
}

function choose(what, value) {
  if (view[what] === value) return;
  view[what] = value;
  tell(what);
}

function tell(what) {
  (listeners[what] ?? []).forEach((react) => react());
}

// An element with text in it; nothing here reads markup.
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "style") Object.entries(value).forEach(([key, one]) => element.style.setProperty(key, one));
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}
