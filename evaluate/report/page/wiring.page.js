// Starts a page: draws its plots, makes its tables sort and filter and its marks answer, and lists its sections.
"use strict";

(() => {
  const tip = document.createElement("div");
  tip.id = "tip";
  tip.hidden = true;
  tip.setAttribute("role", "status");
  document.body.append(tip);

  const element = (name, text, kind) => Object.assign(document.createElement(name), {textContent: text, className: kind || ""});

  // ---- tables ----

  const kFilteredRows = 7; // tables with fewer rows have no filter

  // Returns the number that a cell begins with, or null.
  function numberOf(text) {
    const found = text.replace("−", "-").match(/^\s*[-+]?\d[\d,]*(\.\d+)?/);
    return found ? parseFloat(found[0].replaceAll(",", "")) : null;
  }

  // Compares two cells; empty ones come last in either direction.
  function compare(a, b, direction) {
    if (!a.trim() || !b.trim()) return (a.trim() ? 0 : 1) - (b.trim() ? 0 : 1);
    const [x, y] = [numberOf(a), numberOf(b)];
    return direction * (x !== null && y !== null ? x - y : a.localeCompare(b));
  }

  function sort(table, column, direction) {
    const body = table.tBodies[0];
    const rows = [...body.rows].map((row) => [row.cells[column].textContent, row]);
    rows.sort(([a], [b]) => compare(a, b, direction));
    body.append(...rows.map(([, row]) => row));
    [...table.tHead.rows[0].cells].forEach((cell, index) => {
      if (index === column) cell.setAttribute("aria-sort", direction > 0 ? "ascending" : "descending");
      else cell.removeAttribute("aria-sort");
    });
  }

  function makeSortable(table) {
    [...table.tHead.rows[0].cells].forEach((cell, column) => {
      const button = document.createElement("button");
      button.append(...cell.childNodes);
      cell.append(button);
      button.addEventListener("click", () => {
        // Names from A, error rates from the lowest, other numbers from the largest.
        const first = cell.classList.contains("left") || cell.classList.contains("lowest") ? 1 : -1;
        const sorted = cell.getAttribute("aria-sort");
        sort(table, column, sorted ? (sorted === "ascending" ? -1 : 1) : first);
      });
    });
  }

  // Shows the rows that hold all words. `onFilter` hears whether each row's first cell is shown.
  function filter(table, words, onFilter) {
    let shown = 0;
    const names = new Map();
    for (const row of table.tBodies[0].rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
      shown += row.hidden ? 0 : 1;
      names.set(row.cells[0].textContent, !row.hidden);
    }
    onFilter(names);
    return shown;
  }

  function makeFilterable(table, onFilter) {
    const rows = table.tBodies[0].rows.length;
    if (rows < kFilteredRows) return;
    const tools = element("div", "", "tools");
    const input = Object.assign(document.createElement("input"), {type: "search", placeholder: "Filter rows, such as: bild aligned"});
    input.setAttribute("aria-label", "Filter rows by words");
    const count = element("span", "", "hint");
    count.setAttribute("role", "status");
    tools.append(input, count);
    table.parentElement.before(tools);
    input.addEventListener("input", () => {
      const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      const shown = filter(table, words, onFilter);
      count.textContent = words.length ? `${shown} of ${rows}` : "";
    });
  }

  // ---- what a mark stands for ----

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

  // Returns the parameters of an article's settings: lists of [name, value].
  function parametersIn(article) {
    const data = article?.querySelector("script.parameters");
    return data ? JSON.parse(data.textContent) : {};
  }

  // Returns the parameters of the setting that an element stands for, and its row of the table of settings; or nothing.
  function detailsOf(target) {
    const key = target.dataset.key;
    const article = target.closest("article");
    const parameters = parametersIn(article);
    if (!key || !Object.hasOwn(parameters, key)) return null;
    const table = article.querySelector(".table table");
    const row = [...table.tBodies[0].rows].find((one) => one.cells[0].textContent === key);
    const numbers = [...(row?.cells || [])].slice(1)
      .map((cell, index) => [table.tHead.rows[0].cells[index + 1].textContent, cell.textContent]);
    return [...parameters[key], ...numbers.filter(([, value]) => value)];
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
    const known = parametersIn(article);
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
      makeSortable(table);
      makeFilterable(table, (names) => fade(article, names));
    }
  }
  listSections();
  drawAll();
  answer();
  new ResizeObserver(() => requestAnimationFrame(drawAll)).observe(document.body);
})();
