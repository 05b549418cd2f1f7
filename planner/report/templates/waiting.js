"use strict";
// Shows how far the search is; where it is over, the address leads to the answer. The server answers once a second: a
// timer of this page would sleep with its tab, and the search would be taken for left.
let leaves = false; // for what the form's buttons lead to, which a reload would end
document.querySelector("form").addEventListener("submit", () => { leaves = true; });
(async () => {
  for (;;) {
    const answer = await fetch("?next", { redirect: "manual" }).catch(() => null);
    if (leaves) return;
    if (answer === null) {
      await new Promise((done) => setTimeout(done, 1000));
      continue;
    }
    if (answer.type === "opaqueredirect" || !answer.ok) return location.reload();
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    document.getElementById("state").replaceChildren(...page.getElementById("state").childNodes);
  }
})();
