// Draws the boots of a session: faint dots for values, strong shapes for the medians that are judged.
import uPlot from "uplot";

// The axis never covers less than 2.5 % on either side of its middle, so that noise does not look dramatic.
const LEAST_HALF_RANGE = 0.025;

const charts = new Map(JSON.parse(document.getElementById("chart-data").textContent).map((chart) => [chart.id, chart]));
const drawn = new Map();

function inks(host) {
  const probe = document.createElement("span");
  host.append(probe);
  const found = {};
  for (const name of ["base", "patched", "text", "line", "paper"]) {
    probe.className = `ink-${name}`;
    found[name] = getComputedStyle(probe).color;
  }
  probe.remove();
  return found;
}

function range(dots) {
  const values = dots.flatMap((dot) => dot.values);
  if (values.length === 0) return [0, 1];
  const low = Math.min(...values);
  const high = Math.max(...values);
  const middle = (low + high) / 2;
  const half = Math.max(((high - low) / 2) * 1.15, Math.abs(middle) * LEAST_HALF_RANGE) || 1;
  return [middle - half, middle + half];
}

function shape(context, arm, x, y, radius) {
  context.beginPath();
  if (arm === "base") {
    context.arc(x, y, radius, 0, 2 * Math.PI);
  } else {
    const side = radius * 1.25;
    context.moveTo(x, y - side);
    context.lineTo(x + side, y + side * 0.8);
    context.lineTo(x - side, y + side * 0.8);
    context.closePath();
  }
}

function paint(plot, dots, colours) {
  const { ctx: context } = plot;
  const ratio = uPlot.pxRatio;
  context.save();
  for (const dot of dots) {
    context.fillStyle = colours[dot.arm];
    context.globalAlpha = 0.5;
    dot.values.forEach((value, run) => {
      const shift = dot.values.length > 1 ? (run / (dot.values.length - 1) - 0.5) * 0.6 : 0;
      shape(context, dot.arm, plot.valToPos(dot.position + shift, "x", true), plot.valToPos(value, "y", true), 2 * ratio);
      context.fill();
    });
    if (dot.median === null) continue;
    context.globalAlpha = 1;
    context.lineWidth = ratio;
    context.strokeStyle = colours.paper;
    shape(context, dot.arm, plot.valToPos(dot.position, "x", true), plot.valToPos(dot.median, "y", true), 4.5 * ratio);
    context.fill();
    context.stroke();
  }
  context.restore();
}

function tick(value) {
  return Math.abs(value) >= 100000 ? value.toLocaleString("en", { notation: "compact" }) : String(value);
}

function axis(colours, more) {
  const font = '11px ui-monospace, "DejaVu Sans Mono", monospace';
  const grid = { stroke: colours.line, width: 1 };
  return { stroke: colours.text, font, labelFont: font, grid, ticks: { ...grid, size: 4 }, ...more };
}

function positions(boots) {
  const step = Math.ceil(boots / 10);
  return Array.from({ length: boots }, (_, position) => position).filter((position) => position % step === 0);
}

function options(host, chart, readout) {
  const { dots, unit, boots } = chart;
  const colours = inks(host);
  return {
    width: host.clientWidth,
    height: host.clientHeight,
    legend: { show: false },
    cursor: { y: false, points: { show: false }, drag: { x: false, y: false } },
    scales: {
      x: { time: false, range: [-0.6, boots - 0.4] },
      y: { range: range(dots) },
    },
    axes: [
      axis(colours, { size: 24, splits: () => positions(boots), values: (_plot, splits) => splits.map(String) }),
      axis(colours, {
        size: 50,
        label: unit,
        labelSize: 16,
        space: 28,
        values: (_plot, splits) => splits.map(tick),
      }),
    ],
    series: [{}, { paths: () => null, points: { show: false } }],
    hooks: {
      draw: [(plot) => paint(plot, dots, colours)],
      setCursor: [(plot) => tell(readout, dots[plot.cursor.idx], unit)],
    },
  };
}

function tell(readout, dot, unit) {
  readout.textContent = dot && dot.median !== null ? `boot ${dot.position} ${dot.arm}: ${dot.median} ${unit}` : "";
}

function draw(host) {
  const chart = charts.get(host.dataset.chart);
  drawn.get(host)?.destroy();
  host.replaceChildren();
  const data = [chart.dots.map((dot) => dot.position), chart.dots.map((dot) => dot.median)];
  const readout = host.parentElement.querySelector(".readout");
  drawn.set(host, new uPlot(options(host, chart, readout), data, host));
}

const resized = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    const plot = drawn.get(target);
    if (plot && plot.width !== target.clientWidth) plot.setSize({ width: target.clientWidth, height: plot.height });
  }
});

function drawAll() {
  for (const host of document.querySelectorAll(".dots")) draw(host);
}

drawAll();
for (const host of drawn.keys()) resized.observe(host);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
