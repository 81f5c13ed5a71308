// The little that a page cannot do by itself: the live stream, short cuts, the browser's
// own time zone, and a question before what cannot be undone.
"use strict";

(() => {
  const each = (selector, act) => document.querySelectorAll(selector).forEach(act);

  // Parts with hx-trigger="live from:body" ask for themselves anew when the server says
  // that something may have changed; a page that nobody sees does not.
  const path = document.body.dataset.live;
  let stream = null;
  function listen() {
    if (document.hidden) {
      if (stream) stream.close();
      stream = null;
    } else if (!stream) {
      stream = new EventSource(path);
      stream.addEventListener("live", () => htmx.trigger(document.body, "live"));
    }
  }
  if (path) {
    document.addEventListener("visibilitychange", () => {
      listen();
      if (stream) htmx.trigger(document.body, "live");
    });
    window.addEventListener("pagehide", () => stream && stream.close());
    listen();
  }

  // A part is not taken from under a hand: not while a field in it has the focus or text
  // in it is marked.
  document.addEventListener("htmx:beforeSwap", (event) => {
    const target = event.detail.target;
    if (!target.matches("[hx-trigger*=live]")) return;
    const marked = document.getSelection();
    const held = target.contains(document.activeElement) &&
      document.activeElement.matches("input, select, textarea");
    if (held || (!marked.isCollapsed && target.contains(marked.anchorNode))) {
      event.detail.shouldSwap = false;
    }
  });

  const zones = document.getElementById("zones");
  const own = Intl.DateTimeFormat().resolvedOptions().timeZone;
  if (zones && own && own !== "UTC") {
    for (const zone of [own, ...(Intl.supportedValuesOf?.("timeZone") ?? [])]) {
      zones.append(Object.assign(document.createElement("option"), { value: zone }));
    }
  }

  document.addEventListener("submit", (event) => {
    const question = event.submitter?.dataset.confirm ?? event.target.dataset.confirm;
    if (question && !window.confirm(question)) event.preventDefault();
  });

  // A select marked so sends its form at once; without scripts there is the button.
  document.addEventListener("change", (event) => {
    if (event.target.matches("[data-submits]")) event.target.form.requestSubmit();
    if (event.target.matches("[data-checks]")) {
      each(event.target.dataset.checks, (box) => { box.checked = event.target.checked; });
    }
  });

  const help = document.getElementById("shortcuts");
  each("[data-shortcuts]", (button) => {
    button.addEventListener("click", () => help.showModal());
  });
  let after_g = -Infinity;  // 0 is when the page began: its first keys would count
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest("input, select, textarea, dialog")) return;
    const was_g = event.timeStamp - after_g < 1500;
    after_g = -Infinity;
    const go = (found) => {
      if (!found) return;
      event.preventDefault();
      if (found.matches("input")) found.focus();
      else found.click();
    };
    if (was_g) go(document.querySelector(`.nav a[data-key="${CSS.escape(event.key)}"]`));
    else if (event.key === "g") after_g = event.timeStamp;
    else if (event.key === "/") go(document.querySelector("input[type=search]"));
    else if (event.key === "n") go(document.querySelector("a[data-new]"));
    else if (event.key === "?") help?.showModal();
  });
})();
