"use strict";
// Draws the charts, ties their points to the rows of tables, and recomputes what is linear. Without it the page still reads.

const DENSE = 300; // marks, from which on edges between them would hide them

async function embed(holder) {
  const spec = JSON.parse(document.getElementById(holder.dataset.spec).textContent);
  holder.classList.toggle("dense", spec.data.values.length > DENSE);
  const { view } = await vegaEmbed(holder, spec, { renderer: "svg", actions: false, ast: true, tooltip: { theme: "page" } });
  view.description(holder.dataset.title);
  tie(holder, view);
  await view.runAsync();
}

// A click on a point marks the row of its id; the row's button marks the point.
function tie(holder, view) {
  const section = holder.closest("section");
  const rows = [...section.querySelectorAll("tr[data-point]")];
  if (!rows.length || !("chosen" in view.getState().signals)) return;
  const choose = (id) => {
    view.signal("chosen", id).runAsync();
    for (const row of rows) {
      row.classList.toggle("chosen", row.dataset.point === id);
      row.querySelector(".mark").setAttribute("aria-pressed", row.dataset.point === id);
    }
  };
  view.addEventListener("click", (_, item) => choose(item?.datum?.id ?? ""));
  for (const row of rows) {
    const button = row.querySelector(".mark");
    button.hidden = false;
    button.addEventListener("click", () =>
      choose(button.getAttribute("aria-pressed") === "true" ? "" : row.dataset.point));
  }
}

const significant = (value, least = 1) =>
  value.toLocaleString("en", { minimumSignificantDigits: least, maximumSignificantDigits: 3 });
const scaled = (value, steps, least) => {
  const [factor, unit] = steps.find(([each]) => value >= each) ?? steps.at(-1);
  return significant(value / factor, least) + unit;
};
const count = (value) => scaled(value, [[1e12, " T"], [1e9, " B"], [1e6, " M"], [1, ""]]);
const money = (value) => "$" + scaled(value, [[1e9, "B"], [1e6, "M"], [1e3, "k"], [1, ""]], 3);
const duration = (days) => scaled(days, [[1, " days"], [1 / 24, " hours"], [1 / 1440, " minutes"], [1 / 86400, " seconds"]]);

// days = tokens / (tokens a day); US dollars = days x 24 x accelerators x price.
function linear(form) {
  const { tokens, days, accelerators, price } = form.dataset;
  const set = (name, text) => form.querySelectorAll(`[data-of=${name}]`).forEach((each) => { each.value = text; });
  const show = () => {
    const share = 10 ** Number(form.elements.tokens.value);
    set("tokens", count(tokens * share));
    set("days", duration(days * share));
    if (price === undefined) return;
    const hour = price * Number(form.elements.price.value);
    set("price", `$${hour.toFixed(2)}`);
    set("usd", money(days * share * 24 * accelerators * hour));
  };
  form.hidden = false;
  form.addEventListener("input", show);
  form.addEventListener("reset", () => setTimeout(show));
  show();
}

function copying(button) {
  if (!navigator.clipboard) return;
  button.hidden = false;
  const text = button.parentElement.querySelector("code").textContent.replace(/^#\d+: .*?(?=\w+=)/, "");
  button.addEventListener("click", () =>
    navigator.clipboard.writeText(text).then(() => { button.textContent = "Copied"; }));
}

document.querySelectorAll("form.linear").forEach(linear);
document.querySelectorAll("button.copy").forEach(copying);
// What is in sight first is drawn first; the browser paints in between.
(async () => {
  for (const holder of document.querySelectorAll(".chart")) {
    await new Promise((resolve) => setTimeout(resolve));
    await embed(holder).catch((error) => console.error(error));
  }
  document.documentElement.dataset.drawn = "yes";
})();
