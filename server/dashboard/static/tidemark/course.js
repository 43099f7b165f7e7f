// Makes the lanes of a course zoom together, with one cursor, and names the commit under it. Up is better.
import uPlot from "uplot";

const HEIGHT = 120;
const NAMES = ["ink", "reach", "band", "grid", "one", "step", "flag", "event"];

function inks(host) {
  const probe = document.createElement("span");
  host.append(probe);
  const found = {};
  for (const name of NAMES) {
    probe.className = `ink-${name}`;
    found[name] = getComputedStyle(probe).color;
  }
  probe.remove();
  return found;
}

function speed(size) {
  const times = Math.exp(Math.abs(size));
  const word = size > 0 ? " faster" : size < 0 ? " slower" : "";
  return `${times.toFixed(times < 10 ? 2 : times < 100 ? 1 : 0)}x${word}`;
}

function paintBack(plot, course, colours) {
  const { ctx: context } = plot;
  const { left, top, width, height } = plot.bbox;
  const at = (value) => plot.valToPos(value, "y", true);
  context.save();
  context.fillStyle = colours.band;
  context.fillRect(left, at(course.band), width, at(-course.band) - at(course.band));
  for (const [value] of course.ticks) {
    context.strokeStyle = value === 0 ? colours.one : colours.grid;
    context.beginPath();
    context.moveTo(left, Math.min(Math.max(at(value), top), top + height));
    context.lineTo(left + width, Math.min(Math.max(at(value), top), top + height));
    context.stroke();
  }
  context.restore();
}

function paintMarks(plot, lane, colours) {
  const { ctx: context } = plot;
  const { top, height } = plot.bbox;
  const ratio = uPlot.pxRatio;
  const inside = ([place]) => place >= plot.scales.x.min && place <= plot.scales.x.max;
  context.save();
  for (const [marks, name] of [[lane.steps, "step"], [lane.events, "event"], [lane.flags, "flag"]]) {
    context.strokeStyle = colours[name];
    context.fillStyle = colours[name];
    context.lineWidth = (name === "event" ? 2 : 1) * ratio;
    context.setLineDash(name === "step" ? [4 * ratio, 3 * ratio] : []);
    for (const mark of marks.filter(inside)) {
      const x = plot.valToPos(mark[0], "x", true);
      context.beginPath();
      if (name === "flag") {
        context.moveTo(x, top);
        context.lineTo(x + 9 * ratio, top + 4 * ratio);
        context.lineTo(x, top + 8 * ratio);
        context.fill();
      } else {
        context.moveTo(x, name === "event" ? top + height * 0.92 : top);
        context.lineTo(x, top + height);
        context.stroke();
      }
    }
  }
  context.restore();
}

// What is said of one place: the commits since the revision measured before it, and every lane's value there.
function tell(figure, course, titles, place) {
  const number = course.places.indexOf(place);
  if (number < 0) return "";
  const sha = course.shas[number];
  const author = course.authors[course.by[number]];
  const range = number ? `${course.shas[number - 1]}..${sha}` : sha;
  const values = course.lanes.map((lane, own) => {
    const index = lane.places.indexOf(place);
    if (index < 0) return "";
    return `${titles[own]} ${speed(lane.speeds[index])} [${speed(lane.lows[index])} to ${speed(lane.highs[index])}]`;
  });
  const marks = course.lanes.flatMap((lane, own) =>
    [...lane.steps, ...lane.flags, ...lane.events]
      .filter((mark) => mark[0] === place)
      .map((mark) => `${titles[own]}: ${mark[1]}`),
  );
  return [`${range} ${course.days[number]} ${author}: ${course.subjects[number]}`, ...values.filter(Boolean), ...marks].join("\n");
}

function options(host, course, lane, colours, told) {
  const line = { points: { show: lane.places.length <= 120, size: 4, fill: colours.ink, stroke: colours.ink } };
  return {
    width: host.clientWidth,
    height: HEIGHT,
    padding: [0, 0, 0, 0],
    legend: { show: false },
    cursor: { sync: { key: course.key, setSeries: false }, y: false, drag: { x: true, y: false }, points: { size: 7 } },
    scales: {
      x: { time: false, range: (_plot, low, high) => (low === null ? course.reach : [low, high]) },
      y: { range: [-course.edge, course.edge] },
    },
    axes: [{ show: false }, { show: false }],
    bands: [{ series: [3, 2], fill: colours.reach }],
    series: [
      {},
      { stroke: colours.ink, width: 1.5, ...line },
      { points: { show: false } },
      { points: { show: false } },
    ],
    hooks: {
      drawClear: [(plot) => paintBack(plot, course, colours)],
      draw: [(plot) => paintMarks(plot, lane, colours)],
      setCursor: [(plot) => told(lane.places[plot.cursor.idx])],
      setScale: [(plot, name) => name === "x" && course.zoomed(plot)],
    },
  };
}

// The server sends whole numbers of a small unit, and a lane's places only where it lacks some.
function spread(course) {
  const sizes = (column) => column.map((size) => size * course.unit);
  for (const lane of course.lanes) {
    lane.places = lane.at ? lane.at.map((number) => course.places[number]) : course.places;
    for (const name of ["speeds", "lows", "highs"]) lane[name] = sizes(lane[name]);
  }
  return course;
}

class Figure {
  constructor(figure, course) {
    this.figure = figure;
    this.course = spread(course);
    this.course.reach = this.reach();
    this.course.key = `course-${Math.random()}`;
    this.course.zoomed = (plot) => this.zoomed(plot);
    this.titles = [...figure.querySelectorAll(".lane h3")].map((title) => title.textContent.trim());
    this.hosts = [...figure.querySelectorAll(".stage")];
    this.readout = figure.querySelector(".readout");
    this.all = figure.querySelector(".all");
    this.all.addEventListener("click", () => this.show(...this.course.reach));
    this.plots = [];
    this.busy = false;
  }

  begin() {
    if (this.course.places.length < 2) return false;
    this.draw();
    this.resized = new ResizeObserver(() => this.resize());
    this.resized.observe(this.hosts[0]);
    return true;
  }

  reach() {
    const { places } = this.course;
    const [first, last] = [places[0], places.at(-1)];
    return first === last ? [first - 1, last + 1] : [first, last];
  }

  draw() {
    for (const plot of this.plots) plot.destroy();
    const told = (place) => {
      this.readout.textContent = place === undefined ? "" : tell(this.figure, this.course, this.titles, place);
    };
    this.plots = this.hosts.map((host, number) => {
      const lane = this.course.lanes[number];
      const colours = inks(host);
      host.querySelector("svg")?.remove();
      const data = [lane.places, lane.speeds, lane.lows, lane.highs];
      return new uPlot(options(host, this.course, lane, colours, told), data, host);
    });
    this.show(...this.course.reach);
  }

  show(min, max) {
    this.busy = true;
    for (const plot of this.plots) plot.setScale("x", { min, max });
    this.busy = false;
    this.all.hidden = min <= this.course.reach[0] && max >= this.course.reach[1];
  }

  // What one lane zooms to, all do; a double click asks for its own data's range, which is not that of all.
  zoomed(plot) {
    if (this.busy || !this.plots.includes(plot)) return;
    const { min, max } = plot.scales.x;
    const own = plot.data[0];
    if (min === own[0] && max === own.at(-1)) this.show(...this.course.reach);
    else this.show(min, max);
  }

  resize() {
    const width = this.hosts[0].clientWidth;
    for (const plot of this.plots) if (plot.width !== width) plot.setSize({ width, height: HEIGHT });
  }
}

// The time it takes stands in the browser's own record of this page.
performance.mark("course-begin");
const figures = [];

function begin(element, course) {
  const figure = new Figure(element, course);
  // In a single revision is nothing to zoom.
  if (figure.begin()) figures.push(figure);
}

// Without an answer the server's own drawing stays.
async function ask(element) {
  const answer = await fetch(element.dataset.source).catch(() => undefined);
  if (answer?.ok) begin(element, await answer.json());
}

for (const element of document.querySelectorAll("figure.course")) {
  if (element.dataset.source) ask(element);
  else begin(element, JSON.parse(element.querySelector('script[type="application/json"]').textContent));
}
queueMicrotask(() => queueMicrotask(() => performance.measure("course", "course-begin")));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const figure of figures) figure.draw();
});
