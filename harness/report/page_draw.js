// The space-time diagram: one column for each node, time downwards. Only what is visible is drawn.

const canvas = document.getElementById("canvas"), stage = document.getElementById("stage");
const pen = canvas.getContext("2d");
const axisWidth = 96, headHeight = 24, columnLeast = 92;
const view = { top: 0, scale: 1, left: 0, width: 1, height: 1, column: columnLeast };
let fitted = null;           // the times that fill the window until somebody moves
const shown = { control: true, flow: true, bulk: true, calls: true, operations: true, faults: true, events: true };
let selected = null;         // { type, index } or a bar
let hitSteps = new Set(), hitMessages = new Set(), hitBars = new Set();
let shapes = [];             // of the last drawing, for the pointer
let together = new Map();    // messages that fall onto the same pixels, by the one that is drawn

const stripes = (() => {
  const make = (ink, paper) => {
    const tile = document.createElement("canvas");
    tile.width = tile.height = 8;
    const brush = tile.getContext("2d");
    brush.fillStyle = paper;
    brush.fillRect(0, 0, 8, 8);
    brush.strokeStyle = ink;
    brush.lineWidth = 1.5;
    brush.beginPath();
    for (const shift of [-8, 0, 8]) { brush.moveTo(shift, 8); brush.lineTo(shift + 8, 0); }
    brush.stroke();
    return pen.createPattern(tile, "repeat");
  };
  return { dead: make("#8b929a", "#d5d9de"), absent: make("#e4e7eb", "#f6f7f9"), paused: make("#b9a4e0", "#ece5fa") };
})();

function columnX(node) { return axisWidth - view.left + (columnOf[node] + 0.5) * view.column; }
function yOf(position) { return headHeight + (position - view.top) * view.scale; }
function yOfTime(time) { return yOf(positionOf(time)); }
function positionAt(y) { return view.top + (y - headHeight) / view.scale; }

function resize() {
  const box = stage.getBoundingClientRect(), ratio = window.devicePixelRatio || 1;
  view.width = Math.max(box.width, 50);
  view.height = Math.max(box.height, 50);
  canvas.width = Math.round(view.width * ratio);
  canvas.height = Math.round(view.height * ratio);
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  view.column = Math.max(columnLeast, (view.width - axisWidth - 6) / columnCount);
  view.left = Math.min(Math.max(view.left, 0), Math.max(0, columnCount * view.column + axisWidth - view.width));
}

function fit(begin, end) {
  let from = positionOf(begin), to = positionOf(end);
  const room = Math.max((to - from) * 0.06, squeeze ? 2 : 1e3);
  from -= room;
  to += room;
  view.top = from;
  view.scale = (view.height - headHeight) / (to - from);
  fitted = [begin, end];
  redraw();
}

function barBox(bar) {
  const x = columnX(bar.node);
  if (bar.type === "call") return { x: x - 17, w: 10 };
  const lanes = lanesOfNode[bar.node];
  const w = Math.min(14, Math.max(3, (view.column / 2 - 12) / lanes - 2));
  return { x: x + 7 + bar.lane * (w + 2), w };
}

let pending = false;
function redraw() {
  if (pending) return;
  pending = true;
  requestAnimationFrame(() => { pending = false; draw(); });
}

function draw() {
  shapes = [];
  pen.fillStyle = "#fff";
  pen.fillRect(0, 0, view.width, view.height);
  pen.save();
  pen.beginPath();
  pen.rect(0, headHeight, view.width, view.height - headHeight);
  pen.clip();
  const low = view.top, high = positionAt(view.height);
  drawAxis();
  drawFutures();
  drawAbsence(low, high);
  if (shown.faults) drawFaults(low, high);
  drawLifelines();
  drawBars(low, high);
  drawMessages(low, high);
  if (shown.events) drawSteps(low, high);
  drawMarks();
  pen.restore();
  drawHead();
}

function drawAxis() {
  pen.font = "11px system-ui, sans-serif";
  pen.textBaseline = "middle";
  pen.textAlign = "right";
  for (let y = headHeight + 26; y < view.height; y += 56) {
    const time = timeOf(positionAt(y)), step = timeOf(positionAt(y + 28)) - timeOf(positionAt(y - 28));
    if (step <= 0) continue;  // before the begin or behind the end
    const digits = Math.min(6, Math.max(0, Math.ceil(7 - Math.log10(step))));
    pen.fillStyle = "#eceff2";
    pen.fillRect(axisWidth - 4, y, view.width, 1);
    pen.fillStyle = "#59636e";
    pen.fillText(timeText(time, digits), axisWidth - 8, y);
  }
}

// At the left edge: how many futures, drawn anew from there, fail in the same way.
function drawFutures() {
  data.futures.forEach(([at, drawn, failed], index) => {
    const next = index + 1 < data.futures.length ? data.futures[index + 1][0] : data.end;
    const top = Math.max(yOfTime(at), headHeight), bottom = Math.min(Math.max(yOfTime(next), top + 1), view.height);
    if (bottom < top) return;
    pen.fillStyle = `rgba(200,32,47,${0.04 + 0.96 * failed / drawn})`;
    pen.fillRect(0, top, 8, bottom - top);
    shapes.push({ x: 0, y: top, w: 10, h: bottom - top, what: { type: "futures", index } });
  });
}

function band(node, begin, end, fill, least = 0) {
  const top = yOfTime(begin), bottom = Math.max(yOfTime(end), top + least);
  if (bottom < headHeight || top > view.height) return null;
  const x = columnX(node) - view.column / 2 + 3;
  pen.fillStyle = fill;
  const from = Math.max(top, headHeight - 2), to = Math.min(bottom, view.height + 2);
  pen.fillRect(x, from, view.column - 6, to - from);
  return { x, y: from, w: view.column - 6, h: to - from };
}

function drawAbsence() {
  deadTimes.forEach(([node, begin, end, why], index) => {
    const box = band(node, begin, end, why === "not started yet" ? stripes.absent : stripes.dead);
    if (box) shapes.push({ ...box, what: { type: "absence", index } });
  });
  data.pauses.forEach((pause, index) => {
    const box = band(pause.node, pause.begin, pause.end, stripes.paused);
    if (box) shapes.push({ ...box, what: { type: "pause", index } });
  });
}

function drawFaults() {
  pen.textAlign = "left";
  pen.font = "bold 10px system-ui, sans-serif";
  const labels = [];
  data.faults.forEach((fault, index) => {
    const chosen = selected && selected.type === "fault" && selected.index === index;
    const last = fault.end > fault.begin;
    let left = Infinity, right = -Infinity;
    const sides = [[fault.nodes, "rgba(240,150,0,0.20)"], [fault.others, "rgba(220,90,20,0.20)"]];
    for (const [nodes, fill] of sides) {
      for (const node of nodes) {
        const box = band(node, fault.begin, fault.end, last ? fill : "#e08a00", last ? 3 : 2.5);
        if (!box) continue;
        left = Math.min(left, box.x);
        right = Math.max(right, box.x + box.w);
        shapes.push({ ...box, what: { type: "fault", index } });
      }
    }
    if (left > right) return;
    const y = yOfTime(fault.begin);
    pen.strokeStyle = chosen ? "#a34800" : "#e08a00";
    pen.lineWidth = chosen ? 3 : 1.5;
    pen.setLineDash([6, 3]);
    pen.beginPath();
    pen.moveTo(left, y);
    pen.lineTo(right, y);
    pen.stroke();
    pen.setLineDash([]);
    const text = "\u26a1 " + fault.kind;
    // Beside what was said at the same height, if there is anything.
    let x = left + 3;
    for (const label of labels) if (Math.abs(label.y - y) < 11 && x < label.right && label.x < x + 60) x = label.right + 4;
    const wide = pen.measureText(text).width;
    labels.push({ x, y, right: x + wide });
    pen.fillStyle = "#8a4b00";
    if (y > headHeight - 4) pen.fillText(text, x, y + 8);
  });
}

function drawLifelines() {
  pen.strokeStyle = "#9aa3ad";
  pen.lineWidth = 1;
  pen.beginPath();
  for (let node = 0; node < nodeCount; ++node) {
    if (!data.nodes[node].shown) continue;
    const x = Math.round(columnX(node)) + 0.5;
    pen.moveTo(x, headHeight);
    pen.lineTo(x, view.height);
  }
  pen.stroke();
}

function drawBars() {
  for (const bars of [shown.operations ? data.operations : [], shown.calls ? data.calls : []]) {
    for (const bar of bars) {
      const top = yOfTime(bar.begin), bottom = Math.max(yOfTime(bar.end), top + 2);
      if (bottom < headHeight || top > view.height) continue;
      const { x, w } = barBox(bar), chosen = bar === selected;
      pen.globalAlpha = bar.type === "call" ? 0.7 : 0.9;
      pen.fillStyle = outcomeColours[bar.outcome];
      pen.fillRect(x, top, w, bottom - top);
      pen.globalAlpha = 1;
      if (bar.outcome !== 0 && bottom - top > 5) {  // not by colour alone
        pen.strokeStyle = "#fff";
        pen.lineWidth = 1.2;
        pen.beginPath();
        if (bar.outcome === 1) {
          pen.moveTo(x + 2, bottom - 2); pen.lineTo(x + w - 2, bottom - w + 2);
          pen.moveTo(x + 2, bottom - w + 2); pen.lineTo(x + w - 2, bottom - 2);
        } else {
          pen.setLineDash([2, 3]);
          pen.moveTo(x + w / 2, top); pen.lineTo(x + w / 2, bottom);
        }
        pen.stroke();
        pen.setLineDash([]);
      }
      if (bar.concerned || chosen || hitBars.has(bar)) {
        pen.strokeStyle = chosen ? "#000" : bar.concerned ? "#c8202f" : "#e3b500";
        pen.lineWidth = 3;
        pen.strokeRect(x - 2, top - 2, w + 4, bottom - top + 4);
      }
      shapes.push({ x, y: top, w, h: bottom - top, what: bar });
      labelBar(bar, x, w, Math.max(top, headHeight), Math.min(bottom, view.height));
    }
  }
}

// Tags may have twenty digits; their ends tell them apart.
function shortLabel(bar) {
  return bar.label.replace("all-reduce ", "").replace(/ (entries|count) .*/, "").replace(/\d{9,}/g, (tag) => tag.slice(0, 3) + "\u2026" + tag.slice(-4));
}

// Along the bar, where it is long enough.
function labelBar(bar, x, w, top, bottom) {
  if (w < 9 || bottom - top < 40) return;
  pen.font = "10px system-ui, sans-serif";
  let text = shortLabel(bar);
  const room = bottom - top - 16;
  if (pen.measureText(text).width > room) text = text.slice(0, Math.max(0, Math.floor(room / 6)));
  pen.save();
  pen.translate(x + w / 2, top + 4);
  pen.rotate(Math.PI / 2);
  pen.textAlign = "left";
  pen.textBaseline = "middle";
  pen.fillStyle = "#fff";
  pen.fillText(text, 0, 0);
  pen.restore();
}

function messageEnds(i) {
  const from = columnX(messages.from[i]), y = yOf(placed.sent[i]);
  // A newcomer told to dial who was at its address before reaches itself: a line that leaves the column and comes back.
  const to = messages.from[i] === messages.to[i] ? from - 24 : columnX(messages.to[i]);
  if (messages.fate[i] === ARRIVED) return [from, y, to, yOf(placed.ended[i])];
  // Lost or still on its way: it did not get there.
  const fall = messages.fate[i] === LOST ? yOf(placed.ended[i]) : view.height;
  return [from, y, from + (to - from) * 0.55, Math.min(y + 26, Math.max(fall, y + 4))];
}

function drawMessages(low, high) {
  const visible = [[], [], []];
  let count = 0;
  const drawn = new Map();
  together = new Map();
  for (let i = 0; i < messages.sent.length; ++i) {
    const kind = messages.kind[i], fate = messages.fate[i];
    if (!shown[kindNames[kind]] || fate === WITHDRAWN || placed.sent[i] > high) continue;
    const last = fate === ARRIVED ? placed.ended[i] : placed.sent[i] + 30 / view.scale;
    if (last < low) continue;
    // Arrows that fall onto the same pixels are drawn once.
    const place = ((messages.from[i] * nodeCount + messages.to[i]) * 6 + kind * 2 + (fate === LOST ? 1 : 0)) + ":" +
      Math.round(yOf(placed.sent[i])) + ":" + Math.round(yOf(last));
    const first = drawn.get(place);
    if (first !== undefined) {
      together.get(first).push(i);
      continue;
    }
    drawn.set(place, i);
    together.set(i, [i]);
    visible[kind].push(i);
    ++count;
  }
  const heads = count < 4000;
  for (const kind of [FLOW, BULK, CONTROL]) {
    pen.strokeStyle = pen.fillStyle = kindColours[kind];
    pen.lineWidth = kind === BULK ? 1.6 : 1;
    pen.globalAlpha = count > 3000 ? 0.35 : kind === FLOW ? 0.6 : 0.85;
    for (const lost of [false, true]) {
      pen.setLineDash(lost ? [4, 3] : []);
      pen.beginPath();
      const crosses = [];
      for (const i of visible[kind]) {
        if ((messages.fate[i] !== ARRIVED) !== lost) continue;
        const [x1, y1, x2, y2] = messageEnds(i);
        pen.moveTo(x1, y1);
        pen.lineTo(x2, y2);
        if (messages.from[i] === messages.to[i] && !lost) pen.lineTo(x1, y2);
        else if (!lost && heads) arrowHead(x1, y1, x2, y2);
        if (messages.fate[i] === LOST) crosses.push([x2, y2]);
        shapes.push({ line: [x1, y1, x2, y2], what: { type: "message", index: i } });
      }
      pen.stroke();
      pen.setLineDash([]);
      if (crosses.length !== 0) {
        pen.globalAlpha = 1;
        pen.strokeStyle = "#d1242f";
        pen.lineWidth = 1.8;
        pen.beginPath();
        for (const [x, y] of crosses) {
          pen.moveTo(x - 4, y - 4); pen.lineTo(x + 4, y + 4);
          pen.moveTo(x - 4, y + 4); pen.lineTo(x + 4, y - 4);
        }
        pen.stroke();
        pen.strokeStyle = kindColours[kind];
        pen.lineWidth = kind === BULK ? 1.6 : 1;
      }
    }
  }
  pen.globalAlpha = 1;
  if (count < 120) {
    const taken = [];
    for (const kind of [CONTROL, BULK, FLOW]) for (const i of visible[kind]) labelMessage(i, taken);
  }
  highlightMessages();
}

function arrowHead(x1, y1, x2, y2) {
  const angle = Math.atan2(y2 - y1, x2 - x1);
  pen.moveTo(x2 - 7 * Math.cos(angle - 0.4), y2 - 7 * Math.sin(angle - 0.4));
  pen.lineTo(x2, y2);
  pen.lineTo(x2 - 7 * Math.cos(angle + 0.4), y2 - 7 * Math.sin(angle + 0.4));
}

// Along the arrow, where no other label stands.
function labelMessage(i, taken) {
  const [x1, y1, x2, y2] = messageEnds(i);
  const length = Math.hypot(x2 - x1, y2 - y1);
  const most = Math.floor((length - 40) / 5.4);
  if (most < 8) return;
  const answersFirst = [...together.get(i)].sort((a, b) => texts[messages.text[a]].startsWith("notice") - texts[messages.text[b]].startsWith("notice"));
  let text = answersFirst.map((each) => texts[messages.text[each]].replace(/[0-9a-f]{8}\(([a-z0-9]+)\)/g, "$1").replace(/, (epoch|serial|digest).*/, "")).join(" + ");
  if (text.length > most) text = text.slice(0, most - 1) + "\u2026";
  const half = text.length * 2.7 / length;
  for (const middle of [0.5, 0.32, 0.68, 0.2, 0.8]) {
    if (middle - half < 0 || middle + half > 1) continue;
    const spots = [];
    for (let along = -1; along <= 1; along += 0.25) {
      const at = middle + along * half;
      spots.push([x1 + (x2 - x1) * at, y1 + (y2 - y1) * at]);
    }
    if (spots.some(([x, y]) => taken.some(([u, v]) => Math.abs(x - u) < 22 && Math.abs(y - v) < 11))) continue;
    taken.push(...spots);
    pen.save();
    pen.translate(x1 + (x2 - x1) * middle, y1 + (y2 - y1) * middle);
    let angle = Math.atan2(y2 - y1, x2 - x1);
    if (Math.abs(angle) > Math.PI / 2) angle += Math.PI;
    pen.rotate(angle);
    pen.font = "10px system-ui, sans-serif";
    pen.textAlign = "center";
    pen.textBaseline = "bottom";
    pen.lineWidth = 3;
    pen.strokeStyle = "rgba(255,255,255,0.85)";
    pen.strokeText(text, 0, -1);
    pen.fillStyle = kindColours[messages.kind[i]];
    pen.fillText(text, 0, -1);
    pen.restore();
    return;
  }
}

function highlightMessages() {
  const list = [...hitMessages].slice(0, 3000);
  if (selected && selected.type === "message") list.push(selected.index);
  for (const i of list) {
    const [x1, y1, x2, y2] = messageEnds(i);
    if (Math.max(y1, y2) < headHeight || Math.min(y1, y2) > view.height) continue;
    const chosen = selected && selected.type === "message" && selected.index === i;
    pen.strokeStyle = chosen ? "#000" : "rgba(227,181,0,0.7)";
    pen.lineWidth = chosen ? 2.5 : 4;
    pen.beginPath();
    pen.moveTo(x1, y1);
    pen.lineTo(x2, y2);
    pen.stroke();
  }
}

function drawSteps(low, high) {
  const seen = new Set();
  for (let i = 0; i < steps.at.length; ++i) {
    const position = placed.step[i];
    if (position < low || position > high) continue;
    const y = yOf(position), hit = hitSteps.has(i), chosen = selected && selected.type === "step" && selected.index === i;
    const place = steps.node[i] * 100000 + Math.round(y);
    const starts = turns.get(i) === "starts", ends = turns.get(i) === "ends";
    if (seen.has(place) && !hit && !chosen && !starts && !ends) continue;
    seen.add(place);
    const x = columnX(steps.node[i]);
    pen.fillStyle = chosen ? "#000" : hit ? "#e3b500" : starts ? "#1f9d55" : ends ? "#d1242f" : "#59636e";
    pen.beginPath();
    pen.arc(x, y, chosen || hit ? 5 : starts || ends ? 5.5 : 2.2, 0, 7);
    pen.fill();
    if (starts || ends) {
      pen.font = "bold 10px system-ui, sans-serif";
      pen.textAlign = "center";
      pen.textBaseline = "middle";
      pen.fillStyle = "#fff";
      pen.fillText(ends ? "\u00d7" : "+", x, y + 0.5);
    }
    shapes.push({ x: x - 4, y: y - 3, w: 8, h: 6, dot: true, what: { type: "step", index: i } });
  }
}

function drawMarks() {
  const marks = [[data.chaosEnd, "faults stop", "#1f8a4c"], [data.stop, "applications are told to end", "#59636e"]];
  if (!data.held) marks.push([data.end, "VIOLATION " + data.oracle, "#c8202f"]);
  pen.font = "bold 11px system-ui, sans-serif";
  pen.textAlign = "right";
  pen.textBaseline = "bottom";
  for (const [time, text, colour] of marks) {
    const y = yOfTime(time);
    if (time > data.end || y < headHeight || y > view.height) continue;
    pen.strokeStyle = pen.fillStyle = colour;
    pen.lineWidth = 1.5;
    pen.setLineDash([8, 4]);
    pen.beginPath();
    pen.moveTo(axisWidth, y);
    pen.lineTo(view.width, y);
    pen.stroke();
    pen.setLineDash([]);
    pen.fillText(text, view.width - 6, y - 1);
  }
}

function drawHead() {
  pen.fillStyle = "#f6f8fa";
  pen.fillRect(0, 0, view.width, headHeight);
  pen.fillStyle = "#d0d5db";
  pen.fillRect(0, headHeight - 1, view.width, 1);
  pen.textBaseline = "middle";
  pen.textAlign = "center";
  const groups = new Set(data.nodes.map((node) => node.group).filter((group) => group >= 0));
  for (let node = 0; node < nodeCount; ++node) {
    if (!data.nodes[node].shown) continue;
    pen.font = "bold 12px system-ui, sans-serif";
    pen.fillStyle = "#1b1f24";
    pen.fillText(nodeName(node) + (data.nodes[node].group >= 0 && groups.size > 1 ? " (group " + data.nodes[node].group + ")" : ""), columnX(node), headHeight / 2);
  }
  pen.fillStyle = "#f6f8fa";
  pen.fillRect(0, 0, axisWidth - 4, headHeight - 1);
}

// What is under the pointer: dots before bars before arrows before bands.
function shapeAt(x, y) {
  let best = null, distance = 6;
  for (const shape of shapes) {
    if (!shape.line) continue;
    const [x1, y1, x2, y2] = shape.line, dx = x2 - x1, dy = y2 - y1;
    const along = Math.min(1, Math.max(0, ((x - x1) * dx + (y - y1) * dy) / (dx * dx + dy * dy || 1)));
    const away = Math.hypot(x - x1 - along * dx, y - y1 - along * dy);
    if (away < distance) { distance = away; best = shape.what; }
  }
  let box = null;
  for (const shape of shapes) {
    if (shape.line || x < shape.x - 1 || x > shape.x + shape.w + 1 || y < shape.y - 2 || y > shape.y + shape.h + 2) continue;
    if (shape.dot || shape.what.label !== undefined) return shape.what;
    box = shape.what;
  }
  return best || box;
}
