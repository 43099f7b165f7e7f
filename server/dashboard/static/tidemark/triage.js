// Keys of the list of findings. Everything they do is a button or a field of the form as well.

const form = document.getElementById("triage");
const rows = [...form.querySelectorAll("tbody tr[id]")];
const help = document.getElementById("keys");
const why = form.querySelector("select[name=why]");
const reason = form.querySelector("input[name=reason]");
let place = -1;
let withdrawing = false;

function box(row) {
  return row?.querySelector("input[name=finding]");
}

function go(to) {
  if (!rows.length) return;
  rows[place]?.classList.remove("here");
  place = Math.max(0, Math.min(rows.length - 1, to));
  const row = rows[place];
  row.classList.add("here");
  row.querySelector("th a").focus({ preventScroll: true });
  row.scrollIntoView({ block: "nearest" });
}

// Acts are for those selected, or else for the one that the keys are at.
function target() {
  if (rows.some((row) => box(row)?.checked)) return true;
  const here = box(rows[place]);
  if (here) here.checked = true;
  return Boolean(here);
}

function press(act) {
  form.querySelector(`button[value="${act}"]`)?.click();
}

const keys = {
  j: () => go(place + 1),
  k: () => go(place - 1),
  x: () => {
    const here = box(rows[place]);
    if (here) here.checked = !here.checked;
  },
  a: () => target() && press("assign-me"),
  i: () => {
    if (!target()) return;
    withdrawing = true;
    why?.focus();
  },
  "/": () => document.getElementById("search")?.focus(),
  "?": () => help?.showModal(),
};

document.addEventListener("keydown", (event) => {
  const typing = event.target.closest("input:not([type=checkbox]), select, textarea, dialog[open]");
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
  const act = keys[event.key];
  if (!act) return;
  event.preventDefault();
  act();
});

form.addEventListener("focusin", (event) => {
  const at = rows.indexOf(event.target.closest("tr"));
  if (at >= 0 && at !== place) {
    rows[place]?.classList.remove("here");
    rows[at].classList.add("here");
    place = at;
  }
});

// Who goes elsewhere has changed their mind.
for (const field of [why, reason]) {
  field?.addEventListener("focusout", (event) => {
    if (event.relatedTarget !== why && event.relatedTarget !== reason) withdrawing = false;
  });
}

// Enter in the reason withdraws what `i` began to withdraw, and does nothing else.
reason?.addEventListener("keydown", (event) => {
  if (event.key !== "Enter") return;
  event.preventDefault();
  if (withdrawing) press("invalid");
});

for (const button of form.querySelectorAll("[data-opens]")) {
  button.hidden = false;
  button.addEventListener("click", () => help.showModal());
}
help?.querySelector(".closes").addEventListener("click", () => help.close());
