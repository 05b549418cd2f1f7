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

// What a cell says as a number in base units; texts, which hold none at their start, sort by their letters.
const UNITS = { ms: 1e-3, µs: 1e-6, min: 60, h: 3600, d: 86400, k: 1e3, kW: 1e3, M: 1e6, MW: 1e6, B: 1e9, G: 1e9, T: 1e12, KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30, TiB: 2 ** 40 };
function figure(text) {
  const [, number, unit] = /^[#$]?([+-]?[\d.,]+)\s*([^\s/]*)/.exec(text.trim()) ?? [];
  return number === undefined ? NaN : Number(number.replaceAll(",", "")) * (UNITS[unit] ?? 1);
}

// A click on a header sorts its column, and once more the other way round; long tables can be filtered.
const LONG = 8;
function sorting(table) {
  const body = table.tBodies[0];
  if (body.rows.length < 2) return;
  const cell = (row, place) => row.cells[place].textContent;
  [...table.tHead.rows[0].cells].forEach((head, place) => {
    const button = Object.assign(document.createElement("button"), { type: "button", className: "sort" });
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const sign = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
      for (const other of head.parentElement.cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
      const order = (a, b) => {
        const [one, two] = [figure(cell(a, place)), figure(cell(b, place))];
        if (isNaN(one) || isNaN(two)) return isNaN(one) - isNaN(two) || sign * cell(a, place).localeCompare(cell(b, place));
        return sign * (one - two);
      };
      body.append(...[...body.rows].sort(order));
    });
  });
  if (body.rows.length < LONG) return;
  const field = Object.assign(document.createElement("input"), { type: "search", className: "filter", placeholder: "Filter rows" });
  field.setAttribute("aria-label", `Filter rows: ${table.caption.textContent}`);
  field.addEventListener("input", () => {
    const words = field.value.toLowerCase().split(/\s+/);
    for (const row of body.rows) row.hidden = !words.every((word) => row.textContent.toLowerCase().includes(word));
  });
  table.parentElement.before(field);
}

document.querySelectorAll("table").forEach(sorting);
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
