"use strict";

// Everything the page knows comes from /events: first a snapshot, then a message per step.
const KEPT = 400, LOGGED = 200;
const state = { records: [], events: [], totals: {}, wall: 0, wait: 0, workers: [], title: "unstraggle", over: false };
const at = (id) => document.getElementById(id);
let waiting = false;

function number(value, digits = 4) {
  return value === null || value === undefined || !isFinite(value) ? "-" : Number(value.toPrecision(digits)).toString();
}

function size(bytes) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  const power = Math.min(Math.floor(Math.log10(Math.max(bytes, 1)) / 3), 4);
  return `${number(bytes / 1000 ** power, 3)} ${units[power]}`;
}

function share(count, of) {
  return `${number((100 * count) / of, 2)}\u00a0%`;
}

function take(message) {
  for (const key of ["totals", "wall", "wait", "workers", "title"]) state[key] = message[key];
}

function status(kind, text) {
  at("status").className = kind;
  at("status").textContent = text;
}

function drawNumbers() {
  const last = state.records[state.records.length - 1];
  if (!last) return;
  const steps = state.totals.steps, known = state.records.filter((r) => r.loss !== null);
  at("code").textContent = last.code ? last.code.split("(")[0] : "-";
  at("code").title = last.code;
  at("step").textContent = last.step;
  at("loss").textContent = known.length ? number(known[known.length - 1].loss) : "-";
  at("exact").textContent = `${number((100 * state.totals.exact) / steps)} %`;
  at("wall").textContent = `${number(state.wall / steps, 3)} s`;
  at("wait").textContent = `${number(state.wait / steps, 3)} s`;
  at("last").textContent = `${number(last.wall, 3)} s`;
  at("bytes").textContent = size(state.totals.bytes);
}

function drawLine(id, values) {
  const low = Math.min(...values), high = Math.max(...values), range = high - low || 1;
  const points = values.map((v, i) => `${(i / Math.max(values.length - 1, 1)) * 400},${114 - ((v - low) / range) * 108}`);
  let line = at(id).firstElementChild;
  if (!line) line = at(id).appendChild(document.createElementNS("http://www.w3.org/2000/svg", "polyline"));
  line.setAttribute("points", points.join(" "));
  at(`${id}-range`).textContent = `${number(low, 3)} to ${number(high, 3)}, the last ${values.length} steps`;
}

function stateOf(record, worker) {
  return record.lost.includes(worker) ? "lost" : record.late.includes(worker) ? "late" : "used";
}

function drawCards() {
  const list = at("cards"), last = state.records[state.records.length - 1];
  while (list.children.length < state.workers.length) {
    const card = list.appendChild(document.createElement("li"));
    card.append(document.createElement("b"), document.createElement("span"));
    card.firstChild.append(document.createElement("em"), document.createElement("em"));
  }
  state.workers.forEach((worker, place) => {
    const card = list.children[place], now = stateOf(last, place), steps = state.totals.steps;
    card.className = now;
    card.firstChild.children[0].textContent = `worker ${place}`;
    card.firstChild.children[1].textContent = now;
    card.lastChild.textContent = `late ${share(worker.late, steps)}, lost ${share(worker.lost, steps)}`;
  });
}

function drawMap() {
  const canvas = at("map"), rows = state.workers.length, columns = state.records.length;
  if (!rows) return;
  const high = Math.max(4, Math.min(18, Math.floor(320 / rows)));
  canvas.width = Math.max(columns, 60);
  canvas.height = rows;
  canvas.style.height = `${high * rows}px`;
  const style = getComputedStyle(document.documentElement), pen = canvas.getContext("2d");
  const colours = Object.fromEntries(["used", "late", "lost"].map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
  state.records.forEach((record, place) => {
    for (let worker = 0; worker < rows; worker++) {
      pen.fillStyle = colours[stateOf(record, worker)];
      pen.fillRect(canvas.width - columns + place, worker, 1, 1);
    }
  });
}

function drawLog() {
  at("log").replaceChildren(
    ...state.events.slice().reverse().map((event) => {
      const line = document.createElement("li"), step = document.createElement("span");
      step.textContent = `step ${event.step}`;
      line.className = event.kind;
      line.append(step, event.text);
      return line;
    }),
  );
}

function draw() {
  waiting = false;
  document.title = at("title").textContent = state.title;
  if (!state.records.length) return;
  drawNumbers();
  const losses = state.records.map((r) => r.loss).filter((loss) => loss !== null);
  if (losses.length) drawLine("loss-line", losses);
  drawLine("time-line", state.records.map((r) => r.wall));
  drawCards();
  drawMap();
  drawLog();
}

function soon() {
  if (!waiting) requestAnimationFrame(draw);
  waiting = true;
}

const source = new EventSource("/events");
source.addEventListener("open", () => status("live", "live"));
source.addEventListener("snapshot", (event) => {
  const message = JSON.parse(event.data);
  state.records = message.records;
  state.events = message.events;
  take(message);
  soon();
});
source.addEventListener("step", (event) => {
  const message = JSON.parse(event.data);
  state.records = [...state.records, message.record].slice(-KEPT);
  state.events = [...state.events, ...message.events].slice(-LOGGED);
  take(message);
  soon();
});
source.addEventListener("end", () => {
  state.over = true;
  source.close();
  status("", "the run has ended");
});
source.addEventListener("error", () => {
  if (!state.over) status("gone", "connection lost; trying again");
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", soon);
