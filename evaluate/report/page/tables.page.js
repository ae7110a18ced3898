// Makes the tables of a page sortable, and those with many rows filterable.
"use strict";

const Tables = (() => {
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
    const tools = document.createElement("div");
    tools.className = "tools";
    const input = document.createElement("input");
    input.type = "search";
    input.placeholder = "Filter rows, such as: bild aligned";
    input.setAttribute("aria-label", "Filter rows by words");
    const count = document.createElement("span");
    count.className = "hint";
    count.setAttribute("role", "status");
    tools.append(input, count);
    table.parentElement.before(tools);
    input.addEventListener("input", () => {
      const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      const shown = filter(table, words, onFilter);
      count.textContent = words.length ? `${shown} of ${rows}` : "";
    });
  }

  return {makeSortable, makeFilterable};
})();
