"use strict";
// Everything that a report holds reaches the page as text: elements are made by name, and nothing is ever parsed as HTML.
const data = JSON.parse(document.querySelector("script#data").textContent);
const root = document.documentElement;
const make = (tag, attributes = {}, ...children) => {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null) element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
};
const number = (value) => value.toLocaleString("en-US");

// Colours.
const themes = ["auto", "light", "dark"];
const themeButton = document.getElementById("theme");
themeButton.addEventListener("click", () => {
  const next = themes[(themes.indexOf(root.dataset.theme || "auto") + 1) % themes.length];
  if (next === "auto") delete root.dataset.theme; else root.dataset.theme = next;
  themeButton.textContent = `Colours: ${next}`;
  redraw();
});
const maps = new Map();
const redraw = () => maps.forEach((draw) => draw());
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
const colour = (name) => getComputedStyle(root).getPropertyValue(name).trim();

// Filter and search.
const panels = [...document.querySelectorAll(".panel")];
const search = document.getElementById("search");
const toggles = [...document.querySelectorAll(".toggles button")];
const kinds = ["state", "standing", "candidate"];
const filter = () => {
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  const pressed = {};
  for (const kind of kinds) {
    pressed[kind] = new Set(toggles.filter((each) => each.dataset[kind] && each.getAttribute("aria-pressed") === "true")
      .map((each) => each.dataset[kind]));
  }
  let shown = 0;
  for (const panel of panels) {
    const fits = words.every((word) => panel.dataset.search.includes(word)) &&
      kinds.every((kind) => !pressed[kind].size || pressed[kind].has(panel.dataset[kind]));
    panel.hidden = !fits;
    shown += fits;
  }
  document.getElementById("shown").textContent =
    shown === panels.length ? number(shown) : `${number(shown)} of ${number(panels.length)}`;
  listTests(words);
};
let waiting = 0;
search.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(filter, 80); });
for (const toggle of toggles) {
  toggle.addEventListener("click", () => {
    toggle.setAttribute("aria-pressed", String(toggle.getAttribute("aria-pressed") !== "true"));
    filter();
  });
}
const searchFor = (text) => { search.value = text; filter(); document.getElementById("findings").scrollIntoView(); };

// The grid of operators.
const meaning = new Map(data.letters);
const drawGrid = () => {
  if (!data.grid.length) return;
  const used = new Set();
  const head = make("tr", {}, make("th", {scope: "col"}, "family"));
  data.candidates.forEach((name) => head.append(make("th", {scope: "col"}, name)));
  const body = make("tbody");
  for (const family of data.grid) {
    const row = make("tr", {}, make("th", {scope: "row"}, family.family));
    family.states.forEach((states, at) => row.append(cell(family, states, data.candidates[at], used)));
    body.append(row);
  }
  document.getElementById("grid").append(make("thead", {}, head), body);
  for (const [letter, words] of data.letters) {
    if (used.has(letter)) {
      document.getElementById("legend").append(make("span", {}, make("span", {class: `sq ${letter}`}), words));
    }
  }
  document.getElementById("operators").hidden = false;
};
const cell = (family, states, candidate, used) => {
  const squares = make("td");
  let aligned = 0, compared = 0;
  [...states].forEach((letter, i) => {
    used.add(letter);
    aligned += letter === "a";
    compared += letter !== "-";
    const name = `${family.operators[i]} on ${candidate}: ${meaning.get(letter)}`;
    const hasFinding = !"ai-".includes(letter);
    squares.append(make("button", {
      type: "button", class: `sq ${letter}`, title: name, "aria-label": name, tabindex: hasFinding ? 0 : -1,
      onclick: () => searchFor(family.operators[i]),
    }));
  });
  squares.append(make("div", {class: "count quiet"}, compared ? `${aligned} of ${compared} aligned` : "not compared"));
  return squares;
};

// The table of tests: rows are made as they are asked for, because a run may have thousands.
const table = document.getElementById("tests-table");
const moreTests = document.getElementById("tests-more");
const tests = new Map();
for (const row of data.tests) {
  if (!tests.has(row[0])) tests.set(row[0], new Map());
  tests.get(row[0]).set(row[1], row);
}
let testRows = 200, testWords = [];
const listTests = (words = testWords) => {
  testWords = words;
  const found = [...tests].filter(([name]) => words.every((word) => name.toLowerCase().includes(word)));
  const head = make("tr", {}, make("th", {scope: "col"}, "test"));
  data.candidates.forEach((name) => head.append(make("th", {scope: "col"}, name)));
  const body = make("tbody");
  for (const [name, rows] of found.slice(0, testRows)) {
    const line = make("tr", {}, make("th", {scope: "row"}, name));
    data.candidates.forEach((_, at) => line.append(outcome(rows.get(at))));
    body.append(line);
  }
  table.replaceChildren(make("thead", {}, head), body);
  moreTests.hidden = found.length <= testRows;
  document.getElementById("tests-shown").textContent =
    found.length === tests.size ? number(tests.size) : `${number(found.length)} of ${number(tests.size)}`;
};
const outcome = (row) => {
  if (!row) return make("td", {class: "quiet"}, "");
  const [, , name, aligned, compared, seconds, reason] = row;
  const title = `${name.replace("_", " ")}, ${seconds} s${reason ? `: ${reason}` : ""}`;
  return make("td", {class: `o-${name}`, title}, compared ? `${number(aligned)} of ${number(compared)}` : name.replace("_", " "));
};
moreTests.addEventListener("click", () => { testRows += 1000; listTests(); });

// The map of what is wrong.
const OUTSIDE = 96, NOT_FINITE = 255, LOWEST = 48, HIGHEST = 191;
const factor = (level) => 2 ** ((level - OUTSIDE) / 4);
const short = (value) => value >= 1e6 || value < 1e-3 ? value.toExponential(1) : Number(value.toPrecision(3)).toLocaleString("en-US", {maximumFractionDigits: 6});
const drawMap = (place) => {
  const map = data.maps[place.dataset.map];
  if (!map) return;
  const levels = Uint8Array.from(atob(map.levels), (letter) => letter.charCodeAt(0));
  const state = {map, levels, level: OUTSIDE, cursor: null, ...axes(map)};
  const parts = {
    canvas: make("canvas", {tabindex: 0, role: "img", "aria-label": "Map of the errors; the arrow keys move"}),
    said: make("output", {"aria-live": "polite"}), count: make("output"), wrong: make("output"),
    bars: make("div", {class: "bars", role: "img", "aria-label": "Errors in units of the tolerance"}),
  };
  const draw = () => { paint(state, parts); recount(state, parts); };
  place.append(controls(state, draw), make("div", {class: "pair"},
    make("div", {}, parts.canvas, parts.said),
    make("div", {class: "plots"}, parts.count, parts.wrong, make("h3", {}, unit(map)), parts.bars, ends(map), ...ulps(map))));
  listen(state, parts, draw);
  maps.set(place.dataset.map, draw);
  draw();
};
const unit = (map) => map.is_absolute ? "Errors, absolute (the tolerance is 0)" : "Errors in units of the tolerance";
const axes = (map) => {
  const count = map.cells.length;
  if (count >= 2) return {rows: count - 2, columns: count - 1, fixed: map.cells.map(() => 0), wrap: 0};
  const size = count ? map.cells[0] : 1;
  return {rows: -1, columns: -1, fixed: [0], wrap: Math.min(size, size % 32 === 0 || size > 64 ? 32 : size)};
};
const controls = (state, draw) => {
  const {map} = state;
  const box = make("div", {class: "controls"});
  const said = make("span", {}, "× 1");
  const slider = make("input", {
    type: "range", class: "level", min: LOWEST, max: HIGHEST, value: OUTSIDE, "aria-label": "Tolerance",
    oninput: () => { state.level = Number(slider.value); said.textContent = `× ${short(factor(state.level))}`; draw(); },
  });
  box.append(make("label", {}, map.is_absolute ? "allowed difference" : "tolerance", slider, said));
  if (map.cells.length > 2) box.append(...pair(state, box, draw));
  if (map.cells.length <= 1 && map.cells[0] > 8) {
    const wrap = make("input", {
      type: "number", min: 1, max: Math.min(256, map.cells[0]), value: state.wrap,
      oninput: () => { state.wrap = Math.max(1, Math.min(256, Number(wrap.value) || 1)); draw(); },
    });
    box.append(make("label", {}, "elements in a row", wrap));
  }
  return box;
};
const pair = (state, box, draw) => {
  const {map} = state;
  const choice = (name) => {
    const list = make("select", {onchange: () => choose(name, Number(list.value))});
    map.cells.forEach((_, axis) => list.append(make("option", {value: axis, selected: axis === state[name]}, `${axis} (${map.shape[axis]})`)));
    return list;
  };
  const lists = {rows: choice("rows"), columns: choice("columns")};
  const rest = make("span", {class: "controls"});
  const choose = (name, axis) => {
    const other = name === "rows" ? "columns" : "rows";
    if (state[other] === axis) { state[other] = state[name]; lists[other].value = state[other]; }
    state[name] = axis;
    sliders();
    draw();
  };
  const sliders = () => {
    rest.replaceChildren();
    map.cells.forEach((size, axis) => {
      if (axis === state.rows || axis === state.columns || size < 2) return;
      const said = make("span", {}, String(state.fixed[axis] * map.block[axis]));
      const slider = make("input", {
        type: "range", min: 0, max: size - 1, value: state.fixed[axis], "aria-label": `Index of axis ${axis}`, "data-axis": axis,
        oninput: () => { state.fixed[axis] = Number(slider.value); said.textContent = slider.value * map.block[axis]; draw(); },
      });
      rest.append(make("label", {}, `axis ${axis}`, slider, said));
    });
  };
  // The plane with the most errors is shown first.
  worstPlane(state);
  sliders();
  return [make("label", {}, "rows: axis", lists.rows), make("label", {}, "columns: axis", lists.columns), rest];
};
const worstPlane = (state) => {
  const at = state.levels.findIndex((level) => level >= OUTSIDE);
  let left = at < 0 ? 0 : at;
  for (let axis = state.map.cells.length - 1; axis >= 0; axis--) {
    state.fixed[axis] = left % state.map.cells[axis];
    left = Math.floor(left / state.map.cells[axis]);
  }
};
const extent = (state) => state.rows >= 0
  ? [state.map.cells[state.rows], state.map.cells[state.columns]]
  : [Math.ceil((state.map.cells[0] || 1) / state.wrap), state.wrap];
const cellAt = (state, row, column) => {
  const {cells} = state.map;
  if (state.rows < 0) {
    const at = row * state.wrap + column;
    return at < (cells[0] || 1) ? at : -1;
  }
  return cells.reduce((at, size, axis) =>
    at * size + (axis === state.rows ? row : axis === state.columns ? column : state.fixed[axis]), 0);
};
const scale = () => ({back: colour("--raised"), near: colour("--cold"), bad: colour("--bad"), odd: colour("--odd"),
  nan: colour("--grad"), line: colour("--line"), text: colour("--text")});
const paint = (state, {canvas}) => {
  const [rows, columns] = extent(state), colours = scale();
  const room = Math.min(560, (canvas.parentElement.parentElement.clientWidth || 560) - 4);
  const size = Math.max(2, Math.min(22, Math.floor((room - 12) / columns), Math.floor(480 / rows)));
  const strip = 8, gap = 2, ratio = window.devicePixelRatio || 1;
  const width = columns * size + gap + strip, height = rows * size + gap + strip;
  Object.assign(canvas, {width: width * ratio, height: height * ratio});
  canvas.style.width = `${width}px`;
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  const inner = size > 5 ? size - 1 : size;
  const wrong = {rows: new Set(), columns: new Set()};
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) {
      const at = cellAt(state, row, column);
      if (at < 0) continue;
      const level = state.levels[at];
      const isWrong = level >= state.level;
      if (isWrong) { wrong.rows.add(row); wrong.columns.add(column); }
      context.globalAlpha = 1;
      context.fillStyle = colours.back;
      context.fillRect(column * size, row * size, inner, inner);
      context.globalAlpha = !level ? 0 : level === NOT_FINITE ? 1 : isWrong
        ? Math.min(1, 0.55 + (level - state.level) / 60) : Math.max(0.08, 0.35 - (state.level - level) / 120);
      context.fillStyle = level === NOT_FINITE ? colours.nan : isWrong ? colours.bad : colours.near;
      context.fillRect(column * size, row * size, inner, inner);
    }
  }
  context.globalAlpha = 1;
  context.fillStyle = colours.odd;
  for (const row of wrong.rows) context.fillRect(columns * size + gap, row * size, strip, inner);
  for (const column of wrong.columns) context.fillRect(column * size, rows * size + gap, inner, strip);
  if (state.cursor) {
    context.strokeStyle = colours.text;
    context.lineWidth = 2;
    context.strokeRect(state.cursor[1] * size + 1, state.cursor[0] * size + 1, size - 2, size - 2);
  }
  state.size = size;
  state.wrong = wrong;
};
const spans = (indices, block, size) => {
  const sorted = [...indices].sort((a, b) => a - b), found = [];
  for (const index of sorted) {
    const last = found.at(-1);
    if (last && last[1] === index - 1) last[1] = index; else found.push([index, index]);
  }
  const shown = found.slice(0, 8).map(([a, b]) => {
    const [low, high] = [a * block, Math.min((b + 1) * block, size) - 1];
    return low === high ? String(low) : `${low} to ${high}`;
  });
  return shown.join(", ") + (found.length > 8 ? " …" : "");
};
const recount = (state, {count, wrong, bars}) => {
  const {map} = state;
  const total = map.counts.reduce((sum, [, each]) => sum + each, 0);
  const outside = map.counts.reduce((sum, [level, each]) => sum + (level >= state.level ? each : 0), 0);
  const times = short(factor(state.level));
  count.textContent = `${number(outside)} of ${number(total)} elements ${map.is_absolute ? `differ by more than ${times}`
    : `are outside ${times === "1" ? "the tolerance" : `${times} times the tolerance`}`} (shape [${map.shape.join(", ")}])`;
  const inPlane = map.cells.length > 2 ? " in this plane" : "";
  wrong.textContent = state.rows < 0 || !state.wrong.rows.size ? (state.rows < 0 ? "" : `nothing outside${inPlane}`)
    : `rows ${spans(state.wrong.rows, map.block[state.rows], map.shape[state.rows])}; columns ${
      spans(state.wrong.columns, map.block[state.columns], map.shape[state.columns])}${inPlane}`;
  bars.replaceChildren(...histogram(map.counts, (level) => level >= state.level, (level, each) =>
    `${number(each)}: ${level === 0 ? "equal" : level === NOT_FINITE ? "not finite on one side" : `about ${short(factor(level))}`}`));
};
const histogram = (counts, isBad, title) => {
  const most = Math.log1p(Math.max(...counts.map(([, each]) => each)));
  return counts.map(([level, each]) => make("i", {
    class: isBad(level) ? "bad" : "", title: title(level, each), style: `height:${Math.max(3, 72 * Math.log1p(each) / most)}px`,
  }));
};
const ends = (map) => {
  const seen = map.counts.map(([level]) => level);
  const name = (level) => level === 0 ? "equal" : level === NOT_FINITE ? "not finite" : short(factor(level));
  return make("div", {class: "axis"}, make("span", {}, name(seen[0] ?? 0)), make("span", {}, name(seen.at(-1) ?? 0)));
};
const ulps = (map) => {
  if (!map.ulps.length) return [];
  const name = (bucket) => bucket === 0 ? "0" : bucket >= 64 ? "not finite" : bucket === 1 ? "1" : `below ${number(2 ** bucket)}`;
  const bars = make("div", {class: "bars", role: "img", "aria-label": "Errors in ULP"},
    ...histogram(map.ulps, () => false, (bucket, each) => `${number(each)}: ${name(bucket)} ULP`));
  return [make("h3", {}, "Errors in ULP"), bars, make("div", {class: "axis"},
    make("span", {}, name(map.ulps[0][0])), make("span", {}, name(map.ulps.at(-1)[0])))];
};
const listen = (state, parts, draw) => {
  const {canvas, said} = parts;
  const move = (row, column) => {
    const [rows, columns] = extent(state);
    state.cursor = [Math.max(0, Math.min(rows - 1, row)), Math.max(0, Math.min(columns - 1, column))];
    paint(state, parts);
    said.textContent = describe(state);
  };
  canvas.addEventListener("pointermove", (event) => move(Math.floor(event.offsetY / state.size), Math.floor(event.offsetX / state.size)));
  canvas.addEventListener("keydown", (event) => {
    const step = {ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1]}[event.key];
    if (!step) return;
    event.preventDefault();
    const [row, column] = state.cursor || [0, -1 * step[1]];
    move(row + step[0], column + step[1]);
  });
};
const describe = (state) => {
  const {map} = state, [row, column] = state.cursor, at = cellAt(state, row, column);
  if (at < 0) return "";
  const index = state.rows < 0 ? (map.cells.length ? [at] : [])
    : map.cells.map((_, axis) => axis === state.rows ? row : axis === state.columns ? column : state.fixed[axis]);
  const where = index.map((each, axis) => map.block[axis] > 1
    ? `${each * map.block[axis]}:${Math.min(map.shape[axis], (each + 1) * map.block[axis])}` : each);
  const level = state.levels[at];
  const amount = level === 0 ? "equal" : level === NOT_FINITE ? "finite on one side only"
    : `about ${short(factor(level))} ${map.is_absolute ? "apart" : "times the tolerance"}`;
  return `[${where.join(", ")}]: ${map.block.some((each) => each > 1) ? "at worst " : ""}${amount}`;
};
for (const panel of panels) {
  panel.addEventListener("toggle", () => {
    const place = panel.querySelector(".map");
    if (panel.open && place && !place.childElementCount) drawMap(place);
  });
}

// Keys.
const step = (by) => {
  const shown = panels.filter((panel) => !panel.hidden);
  const at = shown.findIndex((panel) => panel.contains(document.activeElement));
  const next = shown[Math.max(0, Math.min(shown.length - 1, at < 0 ? (by > 0 ? 0 : shown.length - 1) : at + by))];
  next?.querySelector("summary").focus();
  next?.scrollIntoView({block: "nearest"});
};
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const isTyping = event.target.matches("input, select, textarea");
  if (event.key === "Escape") {
    search.value = "";
    toggles.forEach((each) => each.setAttribute("aria-pressed", "false"));
    filter();
    search.blur();
  } else if (isTyping) return;
  else if (event.key === "/") { event.preventDefault(); search.focus(); search.select(); }
  else if (event.key === "j") step(1);
  else if (event.key === "k") step(-1);
});
const openNamed = () => {
  const panel = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (panel?.classList.contains("panel")) { panel.open = true; panel.scrollIntoView(); }
};
window.addEventListener("hashchange", openNamed);

drawGrid();
if (tests.size) document.getElementById("tests").hidden = false;
listTests();
if (panels.length === 1) panels[0].open = true;
openNamed();
