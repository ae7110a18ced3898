// Draws the plots of a page with D3, as wide as their window. Data are those of base/plots.h. Texts from results are
// set as text, never as HTML.
"use strict";

const Plots = (() => {
  const kShapes = [d3.symbolCircle, d3.symbolSquare, d3.symbolDiamond, d3.symbolTriangle, d3.symbolTriangle];
  const kLine = 14; // height of a label

  const number = d3.format(".4~g");
  const tick = (value) => (Math.abs(value) < 1e4 ? d3.format(".6~g") : d3.format(".3~s"))(value);

  // Returns the width of a text of a plot.
  const widthOf = (() => {
    const context = document.createElement("canvas").getContext("2d");
    context.font = '12px system-ui, "DejaVu Sans", sans-serif';
    return (text) => context.measureText(text).width;
  })();

  // Returns the element of a mark around the origin; shape 4 is a triangle on its tip.
  function shapeOf(parent, series, size) {
    return parent.append("path")
      .attr("class", `mark ${series.style}${series.filled ? "" : " hollow"}`)
      .attr("stroke-width", 1.5)
      .attr("d", d3.symbol().type(kShapes[series.shape] || d3.symbolCircle).size(size)())
      .attr("transform", series.shape === 4 ? "rotate(180)" : null);
  }

  function svgIn(parent, width, height, label) {
    return parent.append("svg").attr("viewBox", `0 0 ${width} ${height}`).attr("width", width).attr("height", height)
      .attr("role", "img").attr("aria-label", label);
  }

  // Returns the lowest and highest value with room on both sides.
  function extent(values) {
    if (!values.length) return [0, 1];
    const low = Math.min(...values);
    const high = Math.max(...values);
    const span = Math.max(high - low, Math.abs(high) * 0.02, 1e-6);
    return [low - span * 0.06, high + span * 0.06];
  }

  // Makes an element stand for what its data name: `about` is shown while the pointer rests on it.
  function stands(element, about) {
    element.attr("data-tip", about.title);
    if (about.key) element.attr("data-key", about.key).attr("tabindex", 0);
  }

  function legend(parent, entries) {
    if (entries.length < 2) return;
    const item = parent.append("ul").attr("class", "legend").selectAll("li").data(entries).join("li");
    item.each(function (entry) {
      const svg = d3.select(this).append("svg").attr("viewBox", "0 0 26 14").attr("aria-hidden", "true");
      entry.draw(svg);
      d3.select(this).append("span").text(entry.name);
    });
  }

  // ---- labels ----

  const overlap = (a, b) => a.x0 < b.x1 && b.x0 < a.x1 && a.y0 < b.y1 && b.y0 < a.y1;

  // Returns the places that a label may take around its mark: close ones first, then some with a line to the mark.
  function places(mark, width, frame) {
    const list = [];
    const distances = frame.right < 500 ? [0, 18, 36] : [0, 18, 36, 54, 72, 90];
    for (const far of distances) {
      list.push([mark.px + 9, mark.py - far], [mark.px - 9 - width, mark.py - far], [mark.px + 9, mark.py + far],
        [mark.px - 9 - width, mark.py + far], [mark.px - width / 2, mark.py - far - 14], [mark.px - width / 2, mark.py + far + 14]);
    }
    return list;
  }

  // Puts labels beside marks so that none covers a mark or another label; a label without room is left out.
  function drawLabels(svg, marks, frame) {
    const taken = marks.map((m) => ({x0: m.px - 6, x1: m.px + 6, y0: m.py - 6, y1: m.py + 6}));
    for (const mark of marks.filter((m) => m.label)) {
      const width = widthOf(mark.label) + 2;
      for (const [x, y] of places(mark, width, frame)) {
        const box = {x0: x, x1: x + width, y0: y - kLine / 2, y1: y + kLine / 2};
        const outside = box.x0 < frame.left || box.x1 > frame.right || box.y0 < frame.top || box.y1 > frame.bottom;
        if (outside || taken.some((other) => overlap(other, box))) continue;
        taken.push(box);
        const end = Math.max(box.x0, Math.min(box.x1, mark.px));
        if (Math.abs(y - mark.py) > 16) {
          svg.append("line").attr("class", "leader").attr("x1", mark.px).attr("y1", mark.py).attr("x2", end)
            .attr("y2", y < mark.py ? box.y1 : box.y0);
        }
        svg.append("text").attr("class", "label").attr("x", x).attr("y", y + 4).attr("data-key", mark.key || null)
          .attr("data-tip", mark.title).text(mark.label);
        break;
      }
    }
  }

  // ---- points and lines ----

  function axes(svg, x, y, frame, data) {
    const width = frame.right - frame.left;
    const whole = data.series.every((series) => series.marks.every((mark) => Number.isInteger(mark.x)));
    const ticks = x.ticks(Math.max(2, width / 110)).filter((value) => !whole || Number.isInteger(value));
    svg.append("g").attr("class", "axis").attr("transform", `translate(0,${frame.bottom})`)
      .call(d3.axisBottom(x).tickValues(ticks).tickFormat(tick).tickSize(frame.top - frame.bottom).tickPadding(8));
    svg.append("g").attr("class", "axis").attr("transform", `translate(${frame.left},0)`)
      .call(d3.axisLeft(y).ticks(6).tickFormat(tick).tickSize(-width).tickPadding(8));
    svg.append("text").attr("class", "axis-title").attr("x", 0).attr("y", 12).text(`${data.y} ↑`);
    svg.append("text").attr("class", "axis-title").attr("x", frame.right).attr("y", frame.bottom + 38)
      .attr("text-anchor", "end").text(`${data.x} →`);
  }

  function drawWhiskers(svg, mark, x, y) {
    const line = (x1, y1, x2, y2) => svg.append("line").attr("class", "whisker").attr("data-key", mark.key || null)
      .attr("x1", x1).attr("y1", y1).attr("x2", x2).attr("y2", y2);
    if (mark.x_interval) line(x(mark.x_interval[0]), mark.py, x(mark.x_interval[1]), mark.py);
    if (mark.y_interval) line(mark.px, y(mark.y_interval[0]), mark.px, y(mark.y_interval[1]));
  }

  function drawLevels(svg, data, x, y, frame) {
    for (const level of data.levels) {
      svg.append("line").attr("class", "level").attr("x1", frame.left).attr("x2", frame.right).attr("y1", y(level.y))
        .attr("y2", y(level.y));
      svg.append("text").attr("class", "axis-title").attr("x", frame.right).attr("y", y(level.y) - 4)
        .attr("text-anchor", "end").text(level.text);
    }
    if (!data.diagonal) return;
    const low = Math.max(x.domain()[0], y.domain()[0]);
    const high = Math.min(x.domain()[1], y.domain()[1]);
    if (low < high) {
      svg.append("line").attr("class", "whisker").attr("x1", x(low)).attr("y1", y(low)).attr("x2", x(high)).attr("y2", y(high));
    }
  }

  function drawPoints(parent, data, width) {
    const all = data.series.flatMap((series) => series.marks);
    const ends = (axis) => [
      ...all.flatMap((mark) => [mark[axis], ...(mark[`${axis}_interval`] || [])]),
      ...data.series.flatMap((series) => series.line.map((point) => point[axis === "x" ? 0 : 1])),
      ...(axis === "y" ? data.levels.map((level) => level.y) : [])];
    const height = Math.round(Math.max(300, Math.min(440, width * 0.62)));
    const frame = {left: 46, right: width - 10, top: 26, bottom: height - 48};
    legend(parent, data.series.filter((series) => series.name).map((series) => ({
      name: series.name,
      draw: (svg) => {
        if (series.line.length) drawLine(svg, series, [[1, 7], [25, 7]]);
        if (series.marks.length) shapeOf(svg.append("g").attr("transform", "translate(13,7)"), series, 55);
      },
    })));
    const svg = svgIn(parent, width, height, data.label);
    const x = d3.scaleLinear(extent(ends("x")), [frame.left, frame.right]);
    const y = d3.scaleLinear(extent(ends("y")), [frame.bottom, frame.top]);
    axes(svg, x, y, frame, data);
    drawLevels(svg, data, x, y, frame);
    for (const series of data.series) drawLine(svg, series, series.line.map(([px, py]) => [x(px), y(py)]));
    for (const mark of all) {
      mark.px = x(mark.x);
      mark.py = y(mark.y);
      drawWhiskers(svg, mark, x, y);
    }
    drawLabels(svg, all, frame);
    for (const series of data.series) {
      for (const mark of series.marks) {
        const place = svg.append("g").attr("transform", `translate(${mark.px},${mark.py})`);
        stands(shapeOf(place, series, 62), mark);
      }
    }
  }

  function drawLine(svg, series, points) {
    if (!points.length) return;
    svg.append("path").attr("class", `line ${series.style}`).attr("d", d3.line()(points)).attr("data-tip", series.line_title)
      .attr("stroke-width", series.line_width).attr("stroke-dasharray", series.dashes || null);
  }

  // ---- bars ----

  function drawBars(parent, data, width) {
    const row = width < 560 ? 40 : 24; // names stand above bars where there is no room beside them
    const beside = width >= 560;
    const longest = Math.max(...data.rows.map((bar) => widthOf(bar.name)));
    const left = beside ? Math.min(longest + 12, width * 0.36) : 0;
    const most = Math.max(...data.rows.map((bar) => d3.sum(bar.values)));
    const x = d3.scaleLinear([0, most], [0, width - left - 70]);
    legend(parent, data.parts.map((part) => ({
      name: part.name, draw: (svg) => svg.append("rect").attr("class", `box ${part.style}`).attr("width", 26).attr("height", 12).attr("y", 1),
    })));
    const svg = svgIn(parent, width, row * data.rows.length + 4, data.label);
    data.rows.forEach((bar, index) => {
      const top = row * index;
      const name = svg.append("text").attr("x", beside ? left - 10 : 0).attr("y", beside ? top + 16 : top + 14)
        .attr("text-anchor", beside ? "end" : "start").attr("data-key", bar.key || null).text(bar.name);
      shorten(name, beside ? left - 10 : width);
      let at = left;
      bar.values.forEach((value, part) => {
        if (!(value > 0)) return;
        const rect = svg.append("rect").attr("class", `box ${data.parts[part].style}`).attr("x", at)
          .attr("y", top + (beside ? 5 : 20)).attr("width", Math.max(x(value) - 1, 0.5)).attr("height", 14);
        stands(rect, {title: `${bar.name}: ${data.parts[part].name} ${number(value)} ${data.unit}`, key: bar.key});
        at += x(value);
      });
      svg.append("text").attr("x", at + 6).attr("y", top + (beside ? 16 : 31)).text(bar.total);
    });
  }

  // Cuts a text's end off where it is wider than `width`.
  function shorten(text, width) {
    let words = text.text();
    if (widthOf(words) <= width) return;
    while (words.length > 4 && widthOf(`${words}…`) > width) words = words.slice(0, -1).trimEnd();
    text.text(`${words}…`);
  }

  const kDrawings = {points: drawPoints, bars: drawBars};

  // Draws a figure's data.
  function draw(figure) {
    const data = JSON.parse(figure.querySelector("script.data").textContent);
    const place = figure.querySelector(".drawing");
    const kind = kDrawings[data.type];
    if (!place.clientWidth) return;
    const width = Math.min(place.clientWidth, 1000);
    place.replaceChildren();
    place.classList.add("drawn");
    kind(d3.select(place), data, width);
  }

  return {draw};
})();
