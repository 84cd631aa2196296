// Follows an import: asks for its numbers until it is done.
"use strict";
const box = document.getElementById("progress");
const show = (name, value) => { box.querySelector(`[data-${name}]`).textContent = value; };

async function follow() {
  const answer = await fetch(box.dataset.address, { headers: { Accept: "application/json" } });
  if (!answer.ok) return;
  const now = await answer.json();
  const bar = box.querySelector("[data-bar]");
  bar.max = Math.max(now.good_rows, 1);
  bar.value = now.written;
  show("status", now.status);
  show("written", now.written);
  show("good", now.good_rows);
  show("bad", now.bad_rows);
  box.toggleAttribute("data-done", now.done);
  if (!now.done) setTimeout(follow, 1500);
}

if (box) follow();
