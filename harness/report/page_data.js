"use strict";
// The run as the page uses it: columns of numbers, bars with lanes, the scale of time.

const data = JSON.parse(document.getElementById("data").textContent);
const texts = data.texts, steps = data.steps, messages = data.messages;
const nodeCount = data.nodes.length;
// Columns: a second master and strangers have one only where they did something.
const columnOf = [];
let columnCount = 0;
for (const node of data.nodes) columnOf.push(node.shown ? columnCount++ : -1);
const CONTROL = 0, FLOW = 1, BULK = 2;
const ARRIVED = 1, LOST = 2, WITHDRAWN = 3;
const outcomeNames = ["success", "failed", "unanswered"];
const outcomeColours = ["#1f9d55", "#d1242f", "#b08800"];
const kindNames = ["control", "flow", "bulk"];
const kindColours = ["#2f6fde", "#8a949e", "#8e3fb5"];

function nodeName(node) { return data.nodes[node].name; }

// Where the effects of each step begin.
const effectsBegin = new Int32Array(steps.at.length + 1);
for (let i = 0; i < steps.at.length; ++i) effectsBegin[i + 1] = effectsBegin[i] + steps.effects[i];
function effectsOf(step) {
  const list = [];
  for (let i = effectsBegin[step]; i < effectsBegin[step + 1]; ++i) list.push(texts[data.effects[i]]);
  return list;
}

const stepsOfNode = Array.from({ length: nodeCount }, () => []);
for (let i = 0; i < steps.at.length; ++i) stepsOfNode[steps.node[i]].push(i);

// Steps at which a process starts or ends.
const turns = new Map();
for (let i = 0; i < steps.at.length; ++i) {
  const text = texts[steps.event[i]];
  if (text === "process starts") turns.set(i, "starts");
  if (text.startsWith("process ends")) turns.set(i, "ends");
}

// Lanes beside each column: operations that overlap stand side by side.
const lanesOfNode = new Array(nodeCount).fill(1);
{
  const free = Array.from({ length: nodeCount }, () => []);
  for (const bar of data.operations) {
    const lanes = free[bar.node];
    let lane = lanes.findIndex((end) => end <= bar.begin);
    if (lane < 0) lane = lanes.length;
    lanes[lane] = Math.max(bar.end, bar.begin + 1);
    bar.lane = lane;
    bar.type = "operation";
    lanesOfNode[bar.node] = Math.max(lanesOfNode[bar.node], lanes.length);
  }
  for (const bar of data.calls) bar.type = "call";
}

// Times at which a node has no process: [node, begin, end, why].
const deadTimes = [];
for (let node = 0; node < nodeCount; ++node) {
  if (!data.nodes[node].ours || !data.nodes[node].shown) continue;
  let since = 0, why = "not started yet";
  for (const life of data.lives) {
    if (life.node !== node) continue;
    if (life.begin > since) deadTimes.push([node, since, life.begin, why]);
    since = life.end < 0 ? data.end : life.end;
    why = life.how;
  }
  if (data.end > since) deadTimes.push([node, since, data.end, why]);
}

// --- the scale of time ------------------------------------------------------------------------------------------------
// `u` is a position on the time axis before zooming. Squeezed: each gap between two moments takes the logarithm of its
// length, so bursts and long waits fit on one screen and order is kept. Plain: u is the time itself.
const moments = (() => {
  const all = [0, data.end];
  for (const t of steps.at) all.push(t);
  for (let i = 0; i < messages.sent.length; ++i) {
    all.push(messages.sent[i]);
    if (messages.fate[i] === ARRIVED) all.push(messages.ended[i]);
  }
  for (const list of [data.calls, data.operations, data.faults, data.pauses])
    for (const item of list) all.push(item.begin, Math.min(item.end, data.end));
  const sorted = Float64Array.from(all).sort();
  let count = 0;
  for (let i = 0; i < sorted.length; ++i) if (i === 0 || sorted[i] !== sorted[i - 1]) sorted[count++] = sorted[i];
  return sorted.slice(0, count);
})();
const squeezed = (() => {
  const gaps = [];
  for (let i = 1; i < moments.length; ++i) gaps.push(moments[i] - moments[i - 1]);
  gaps.sort((a, b) => a - b);
  const unit = Math.min(1e6, Math.max(1e3, gaps[gaps.length >> 2] || 1e3));
  const at = new Float64Array(moments.length);
  for (let i = 1; i < moments.length; ++i) at[i] = at[i - 1] + Math.log1p((moments[i] - moments[i - 1]) / unit);
  return at;
})();
let squeeze = true;

function interpolate(from, to, value) {
  let low = 0, high = from.length - 1;
  if (high < 1 || value <= from[0]) return to[0];
  if (value >= from[high]) return to[high];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (from[middle] <= value) low = middle; else high = middle;
  }
  return to[low] + (to[high] - to[low]) * (value - from[low]) / (from[high] - from[low]);
}
function positionOf(time) { return squeeze ? interpolate(moments, squeezed, time) : time; }
function timeOf(position) {
  return squeeze ? interpolate(squeezed, moments, position) : Math.min(Math.max(position, 0), data.end);
}
// Positions of everything that is drawn often, once for each scale.
const placed = { sent: null, ended: null, step: null };
function place() {
  placed.sent = Float64Array.from(messages.sent, positionOf);
  placed.ended = Float64Array.from(messages.ended, positionOf);
  placed.step = Float64Array.from(steps.at, positionOf);
}

function timeText(time, digits = 3) { return (time / 1e6).toFixed(digits) + " ms"; }
