// Starts a page: draws its plots, makes its tables and marks answer, and lists its sections.
"use strict";

(() => {
  const tip = document.createElement("div");
  tip.id = "tip";
  tip.hidden = true;
  tip.setAttribute("role", "status");
  document.body.append(tip);

  const element = (name, text, kind) => Object.assign(document.createElement(name), {textContent: text, className: kind || ""});

  // Puts the box beside a place of the window, inside the page.
  function showAt(box) {
    tip.hidden = false;
    const width = document.documentElement.clientWidth;
    const left = Math.max(8, Math.min(box.left + box.width / 2 + 12, width - tip.offsetWidth - 8));
    const above = box.top - tip.offsetHeight - 10;
    tip.style.left = `${left + window.scrollX}px`;
    tip.style.top = `${(above > 0 ? above : box.bottom + 10) + window.scrollY}px`;
  }

  function close() {
    tip.hidden = true;
    tip.classList.remove("open");
  }

  // Returns [name, value] pairs of the setting that an element stands for, or nothing.
  function detailsOf(target) {
    const key = target.dataset.key;
    const data = target.closest("article")?.querySelector("script.details");
    const all = data ? JSON.parse(data.textContent) : {};
    return key && Object.hasOwn(all, key) ? all[key] : null;
  }

  function hover(target) {
    if (tip.classList.contains("open") || !target.dataset.tip) return;
    tip.replaceChildren(element("p", target.dataset.tip));
    showAt(target.getBoundingClientRect());
  }

  // Shows a setting's parameters until the box is closed.
  function open(target) {
    const details = detailsOf(target);
    if (!details) return false;
    const button = element("button", "✕", "close");
    button.setAttribute("aria-label", "Close");
    button.addEventListener("click", close);
    const list = document.createElement("dl");
    for (const [name, value] of details) list.append(element("dt", name), element("dd", value));
    tip.replaceChildren(button, element("strong", target.dataset.key), list);
    tip.classList.add("open");
    showAt(target.getBoundingClientRect());
    return true;
  }

  const chosen = (event) => event.target.closest?.("[data-key], [data-tip]");

  function answer() {
    document.addEventListener("pointerover", (event) => {
      const target = chosen(event);
      if (target) hover(target);
      else if (!tip.classList.contains("open")) close();
    });
    document.addEventListener("focusin", (event) => chosen(event) && hover(chosen(event)));
    document.addEventListener("click", (event) => {
      if (tip.contains(event.target)) return;
      close();
      const target = chosen(event);
      if (target && !open(target)) hover(target);
    });
    document.addEventListener("keydown", (event) => {
      if (event.key === "Escape") close();
      if (event.key === "Enter" && chosen(event)) open(chosen(event));
    });
  }

  // Fades what stands for a setting whose row is filtered out.
  function fade(article, names) {
    for (const one of article.querySelectorAll("[data-key]")) {
      if (names.has(one.dataset.key)) one.classList.toggle("faded", !names.get(one.dataset.key));
    }
  }

  // Makes the names of settings in a table open their parameters.
  function linkNames(table, article) {
    const data = article.querySelector("script.details");
    const known = data ? JSON.parse(data.textContent) : {};
    for (const row of table.tBodies[0].rows) {
      const cell = row.cells[0];
      const name = cell.textContent;
      if (!Object.hasOwn(known, name)) continue;
      const button = element("button", name, "name");
      button.dataset.key = name;
      cell.replaceChildren(button);
    }
  }

  function listSections() {
    const headings = [...document.querySelectorAll("main h2[id], main h3[id]")];
    const several = document.querySelectorAll("main article > h2").length > 2; // two: a task, and how it was measured
    const shown = headings.filter((heading) => !several || heading.tagName === "H2");
    if (shown.length < 3) return;
    const nav = document.createElement("nav");
    nav.setAttribute("aria-label", "Sections");
    for (const heading of shown) {
      const link = element("a", heading.textContent);
      link.href = `#${heading.id}`;
      nav.append(link, " ");
    }
    document.querySelector("header").append(nav);
  }

  const figures = [...document.querySelectorAll("figure.plot")];
  const widths = new WeakMap();
  const drawAll = () => {
    for (const figure of figures) {
      const width = figure.clientWidth;
      if (widths.get(figure) === width) continue;
      widths.set(figure, width);
      Plots.draw(figure);
    }
  };

  for (const article of document.querySelectorAll("article")) {
    for (const table of article.querySelectorAll(".table table")) {
      linkNames(table, article);
      Tables.makeSortable(table);
      Tables.makeFilterable(table, (names) => fade(article, names));
    }
  }
  listSections();
  drawAll();
  answer();
  new ResizeObserver(() => requestAnimationFrame(drawAll)).observe(document.body);
})();
