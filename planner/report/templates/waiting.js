"use strict";
// Shows how far the search is, once a second; where it is over, the address leads to the answer.
setInterval(async () => {
  const answer = await fetch(location.href, { redirect: "manual" });
  if (answer.type === "opaqueredirect" || !answer.ok) return location.reload();
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  document.getElementById("state").replaceChildren(...page.getElementById("state").childNodes);
}, 1000);
