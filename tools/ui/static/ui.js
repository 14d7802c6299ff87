// Looks again every few seconds, and puts what is new in its place. Without it the page works, too.
"use strict";
(() => {
  const every = Number(document.body.dataset.every || 0) * 1000;
  const lost = document.getElementById("lost");
  if (!every || !lost) return;
  let timer = 0;

  const keyOf = (one) =>
    one.id ? `#${CSS.escape(one.id)}`
      : one.getAttribute("href") ? `[href="${CSS.escape(one.getAttribute("href"))}"]`
        : one.parentElement && one.parentElement.id ? `#${CSS.escape(one.parentElement.id)} > ${one.localName}`
          : "";

  function swap(fresh) {
    const selection = document.getSelection();
    for (const old of document.querySelectorAll("[data-live]")) {
      const other = fresh.getElementById(old.id);
      if (!other || old.innerHTML === other.innerHTML) continue;
      // Who marks a text to copy it, keeps it.
      if (selection && !selection.isCollapsed && old.contains(selection.anchorNode)) continue;
      const open = [...old.querySelectorAll("details[open][id]")].map((one) => one.id);
      const focus = old.contains(document.activeElement) ? keyOf(document.activeElement) : "";
      old.className = other.className;
      old.innerHTML = other.innerHTML;
      for (const id of open) document.getElementById(id)?.setAttribute("open", "");
      if (focus) old.querySelector(focus)?.focus({ preventScroll: true });
    }
  }

  async function look() {
    timer = 0;
    if (document.hidden) return;
    let goesOn = true;
    try {
      const answer = await fetch(location.href, {
        headers: { "X-Live": "1" }, cache: "no-store", signal: AbortSignal.timeout(15000),
      });
      if (answer.status === 401) { location.reload(); return; }
      if (!answer.ok) throw new Error(String(answer.status));
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      swap(fresh);
      goesOn = fresh.body.dataset.every !== "0";
      lost.hidden = true;
      document.body.classList.remove("old");
    } catch {
      lost.hidden = false;
      document.body.classList.add("old");
    }
    if (goesOn) timer = setTimeout(look, every);
  }

  document.addEventListener("visibilitychange", () => { if (!document.hidden && !timer) look(); });
  timer = setTimeout(look, every);
})();
